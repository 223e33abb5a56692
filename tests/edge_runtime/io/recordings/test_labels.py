"""A window has the label that covers most of it; what says so may be samples, stretches or ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.labels import LEAST, Labels, Played, Stretch, read_labels


def labels_of(*texts: str, key: str = "w", rate_hz: float = 10.0, start: float = 0.0) -> Labels:
    labels = Labels(1 / rate_hz, 5 / rate_hz)
    labels.add(key, start + np.arange(len(texts)) / rate_hz, texts)
    return labels


def test_the_label_of_most_samples_counts() -> None:
    labels = labels_of(*["walk"] * 6, *["run"] * 4)
    assert labels.of("", "w", 0.0, 1.0) == "walk"
    assert labels.of("", "w", 0.2, 0.9) == "walk"
    assert labels.of("", "w", 0.5, 1.0) == "run"
    assert labels.of("", "other", 0.0, 1.0) == ""


def test_less_than_half_labelled_is_unlabelled() -> None:
    labels = labels_of(*["walk"] * 5, *[""] * 5)
    assert labels.of("", "w", 0.0, 1.0) == "walk"
    assert labels.of("", "w", 0.1, 1.1) == ""
    assert labels.of("", "w", 0.6, 1.0) == ""


def test_a_gap_between_samples_belongs_to_no_label() -> None:
    labels = labels_of("walk", "walk")
    labels.add("w", np.array([100.0, 100.1]), ["walk", "walk"])
    assert labels.of("", "w", 40.0, 41.0) == ""
    assert labels.of("", "w", 100.0, 100.2) == "walk"


@given(st.lists(st.sampled_from(["", "a", "b"]), min_size=4, max_size=60), st.data())
def test_stretches_of_samples_do_not_depend_on_how_they_are_cut(texts: list[str], data: st.DataObject) -> None:
    whole, parts, at = labels_of(*texts), Labels(0.1, 0.5), 0
    while at < len(texts):
        end = data.draw(st.integers(at + 1, len(texts)))
        parts.add("w", np.arange(at, end) / 10, texts[at:end])
        at = end
    first = data.draw(st.integers(0, len(texts) - 2))
    last = data.draw(st.integers(first + 1, len(texts)))
    found = whole.of("", "w", first / 10, last / 10)
    assert parts.of("", "w", first / 10, last / 10) == found
    counts = {name: texts[first:last].count(name) for name in ("a", "b")}
    if sum(counts.values()) < LEAST * (last - first):
        assert found == ""
    else:
        assert counts[found] == max(counts.values())


def test_samples_out_of_order_and_stretches_within_stretches_are_found() -> None:
    labels = Labels(0.1, 0.5)
    labels.add_stretch("w", Stretch(0.0, 100.0, "long"))
    labels.add_stretch("w", Stretch(10.0, 11.0, "short"))
    labels.add_stretch("", Stretch(200.0, 300.0, "all"))
    assert labels.of("", "w", 50.0, 51.0) == "long"
    assert labels.of("", "w", 200.0, 201.0) == labels.of("", "other", 200.0, 201.0) == "all"
    labels.add("w", np.array([400.0, 399.9]), ["late", "late"])
    assert labels.of("", "w", 399.9, 400.1) == "late"


def test_an_id_counts_before_all_else() -> None:
    labels = labels_of(*["walk"] * 10)
    labels.add_id("w@0", "run")
    assert labels.of("w@0", "w", 0.0, 1.0) == "run"
    assert labels.of("w@5", "w", 0.0, 1.0) == "walk"


def read(path: Path, *files: tuple[Path, str]) -> Labels:
    labels = Labels(0.1, 0.5)
    read_labels(path, labels, Played(files))
    return labels


@pytest.mark.parametrize(
    "text",
    [
        "start,end,label,key\n0,10,walk,w\n10,20,run,w\n",
        "start_ms;end_ms;label\n0;10000;walk\n10000;20000;run\n",
        "Label,Start,End,file\nwalk,,10,w.csv\nrun,10,,data/w.csv\nelse,0,20,not-played.csv\n",
    ],
)
def test_a_table_of_stretches(text: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(text)
    labels = read(tmp_path / "labels.csv", (tmp_path / "data" / "w.csv", "w"))
    assert (labels.of("", "w", 1, 2), labels.of("", "w", 11, 12)) == ("walk", "run")


def test_a_file_of_one_name_in_another_folder_is_another_file(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(f"label,file\nwalk,p1/w.csv\nrun,p2/w.csv\nsit,{tmp_path}/p3/w.csv\n")
    files = [(tmp_path / person / "w.csv", person) for person in ("p1", "p2", "p3")]
    labels = read(tmp_path / "labels.csv", *files)
    assert [labels.of("", key, 0, 1) for _, key in files] == ["walk", "run", "sit"]
    labels = read(tmp_path / "labels.csv", files[1])
    assert [labels.of("", key, 0, 1) for _, key in files] == ["", "run", ""]


def test_a_name_that_two_files_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("label,file\nwalk,w.csv\n")
    files = [(tmp_path / person / "w.csv", person) for person in ("p1", "p2")]
    with pytest.raises(ConfigError, match=r"row 1: 'w.csv' may be .*p1/w.csv or .*p2/w.csv; write the folder"):
        read(tmp_path / "labels.csv", *files)
    labels = read(tmp_path / "labels.csv", *((path, "both") for path, _ in files))  # one key is stated for all
    assert labels.of("", "both", 0, 1) == "walk"


def test_stretches_may_be_dates(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("start,end,label\n2023-11-14 22:13:20,2023-11-14 22:13:30,walk\n")
    assert read(tmp_path / "labels.csv").of("", "any", 1_700_000_001.0, 1_700_000_002.0) == "walk"


def test_json_lines_name_windows_or_stretches(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    rows = [{"id": "w@7", "label": "run", "group": "p1"}, {}, {"start": 0, "end": 5, "label": "walk", "key": "w"}]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)) + b"\n\n")
    labels = read(path)
    assert (labels.of("w@7", "w", 0, 1), labels.of("w@8", "w", 0, 1), labels.of("", "w", 5, 6)) == ("run", "walk", "")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "start,end\n1,2\n", "needs the column label"),
        ("a.csv", "start,end,label\n2,1,walk\n", "row 1: start must lie before end"),
        ("a.csv", "start,end,label\nsoon,1,walk\n", "column 'start': row 1"),
        ("a.csv", "start,end,label\n1,2\n", "line 2 has another number of columns"),
        ("a.csv", "", "must name the columns"),
        ("a.jsonl", "{}\n[1]\n", "line 2: an object"),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.jsonl", '{"label":"a","start":[]}\n', "line 1: start and end must be"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=told):
        read(tmp_path / name)
