"""The command ``replay``: every layout of a file, captured messages, and a score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime import open_model, replay
from edge_runtime.tools.cli import main
from tests.integration.running import Stream, answers, streams, write_recording
from tests.models import tiny_bundle

LABELS = ("left", "right", "up")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", variants=("onnx-fp32",))


@pytest.fixture(scope="module")
def recorded() -> list[Stream]:
    return streams(2, 200)


def run(bundle: Path, out: Path, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    """The answers, without what a clock gave."""
    assert main(["replay", str(bundle), *map(str, arguments), "--out", str(out)]) == code
    return [answer | {"latency_ms": 0} for answer in answers(out)]


@pytest.fixture(scope="module")
def expected(bundle: Path, recorded: list[Stream], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the recording gives in our own JSON."""
    folder = tmp_path_factory.mktemp("expected")
    found = run(bundle, folder / "expected.jsonl", write_recording(folder / "own.jsonl", recorded))
    assert len(found) > 10
    return sorted(found, key=lambda answer: str(answer["id"]))


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert sorted(found, key=lambda answer: str(answer["id"])) == expected


def rows(recorded: list[Stream]) -> list[tuple[float, str, list[float]]]:
    every = [(t, s.key, v) for s in recorded for t, v in zip(s.t.tolist(), s.values.tolist(), strict=True)]
    return sorted(every)


@pytest.mark.slow
def test_a_table_of_several_keys_in_another_unit_with_other_names(
    bundle: Path, recorded: list[Stream], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "log.txt"
    lines = [f"{t * 1e6!r}%{key}%{a * 2!r}%{b * 2!r}%{c * 2!r}\n" for t, key, (a, b, c) in rows(recorded)]
    path.write_text("when%who%a%b%c\n" + "".join(lines))
    found = run(
        bundle, tmp_path / "out.jsonl", path, "--format", "csv", "--separator", "%", "--key-column", "who",
        "--time-column", "when", "--time-unit", "us", "--scale", "0.5",
        "--column", "c0=a", "--column", "c1=b", "--column", "c2=c",
    )  # fmt: skip
    assert [
        a | {"scores": 0, "confidence": 0, "start": 0, "end": 0} for a in sorted(found, key=lambda a: str(a["id"]))
    ] == [a | {"scores": 0, "confidence": 0, "start": 0, "end": 0} for a in expected]


@pytest.mark.slow
def test_an_npz_without_stamps_under_other_names(bundle: Path, tmp_path: Path) -> None:
    x = streams(1, 200)[0].values
    np.savez(tmp_path / "plain.npz", x=x, offset=[0, 100, 200], rate=50)
    np.savez(tmp_path / "other.npz", samples=x, cuts=[0, 100, 200])
    other = run(
        bundle,
        tmp_path / "out.jsonl",
        tmp_path / "other.npz",
        "--values",
        "samples",
        "--boundaries",
        "cuts",
        "--rate",
        "50",
    )
    expected = run(bundle, tmp_path / "expected.jsonl", tmp_path / "plain.npz")
    assert [str(a["id"]).replace("other", "plain") for a in other] == [a["id"] for a in expected]
    assert [a["scores"] for a in other] == [a["scores"] for a in expected]


def app(folder: Path, bundle: Path, source: str) -> Path:
    path = folder / "app.toml"
    path.write_text(
        f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\n[broker.b]\nurl = "mqtt://localhost"\n{source}'
        '[[sink]]\ntype = "stdout"\n'
    )
    return path


MQTT = """
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[source.codec]
type = "json"
time = "when"
time_unit = "ms"
channels = { c0 = "v.x", c1 = "v.y", c2 = "v.z" }
"""


def test_captured_messages_are_answered_as_the_application_would(
    bundle: Path, recorded: list[Stream], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "captured.txt"
    lines = [
        b"1795418940.75 watch/%s/imu " % key.encode()
        + orjson.dumps({"when": t * 1e3, "v": dict(zip("xyz", values, strict=True))})
        for t, key, values in rows(recorded)
    ]
    path.write_bytes(b"\n".join(lines))
    found = run(bundle, tmp_path / "out.jsonl", path, "--source", app(tmp_path, bundle, MQTT))
    assert sorted(str(a["id"]) for a in found) == [a["id"] for a in expected]
    assert {a["id"]: a["label"] for a in found} == {a["id"]: a["label"] for a in expected}


def table(folder: Path, recorded: list[Stream]) -> Path:
    """The samples of all streams under column names that are no default."""
    path = folder / "log.csv"
    path.write_text(
        "when,who,c0,c1,c2\n" + "".join(f"{t!r},{key},{a!r},{b!r},{c!r}\n" for t, key, (a, b, c) in rows(recorded))
    )
    return path


def test_a_layout_may_come_from_an_application_and_options_count_more(
    bundle: Path, recorded: list[Stream], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = table(tmp_path, recorded)
    (tmp_path / "source.toml").write_text(
        '[[source]]\ntype = "recording"\nfiles = ["other.csv"]\ntime = "when"\nkey_column = "whose"\n'
    )
    source = ("--source", tmp_path / "source.toml")
    same(run(bundle, tmp_path / "out.jsonl", path, *source, "--key-column", "who"), expected)


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        (MQTT, ["--key", "w"], "key: not for captured messages, which are read as"),
        (MQTT, ["--labels", "what"], "label: not for captured messages"),
        ("", [], "0 [[source]] tables"),
        (MQTT.replace("topics", "topic"), [], "app.toml:10: source[0].topic: unknown key"),
        ("[[source]]\ntype = [\n", [], "not valid TOML"),
        ('[[source]]\ntype = "recording"\nfiles = ["a"]\n', ["--separator", ";;"], "delimiter must be one character"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(
    source: str, options: list[str], told: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captured.txt").touch()
    path = app(tmp_path, bundle, source)
    assert main(["replay", str(bundle), str(tmp_path / "captured.txt"), "--source", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert (told in error, error.count("\n")) == (True, 1), error


def labelled(folder: Path, recorded: list[Stream], name: str = "what") -> Path:
    """A second of each label in turn."""
    path = folder / "log.csv"
    path.write_text(
        f"t,key,c0,c1,c2,{name}\n"
        + "".join(f"{t!r},{key},{a!r},{b!r},{c!r},{LABELS[int(t) % 3]}\n" for t, key, (a, b, c) in rows(recorded))
    )
    return path


def score(bundle: Path, out: Path, *arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    run(bundle, out, *arguments, "--json")
    return dict(orjson.loads(capsys.readouterr().out)["score"])


@pytest.mark.slow
def test_labels_of_a_column_a_table_and_of_windows_give_the_same_score(
    bundle: Path, recorded: list[Stream], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = labelled(tmp_path, recorded), tmp_path / "out.jsonl"
    names = [*open_labels(bundle)]
    path.write_text(path.read_text().replace("left", names[0]).replace("right", names[1]).replace("up", names[2]))
    found = score(bundle, out, path, "--labels", "what", capsys=capsys)
    predicted = answers(out)
    assert found["windows"] == len(predicted) > 10
    assert np.sum(found["confusion"]) == found["windows"]
    assert found["accuracy"] == np.trace(found["confusion"]) / found["windows"]
    assert sum(key["windows"] for key in found["keys"].values()) == found["windows"]

    seconds = sorted({int(t) for t, _, _ in rows(recorded)})
    stretches = "".join(f"{second},{second + 1},{names[second % 3]}\n" for second in seconds)
    (tmp_path / "labels.csv").write_text("start,end,label\n" + stretches)
    by_time = score(bundle, out, path, "--labels", tmp_path / "labels.csv", capsys=capsys)
    assert by_time == found

    right = [{"id": answer["id"], "label": answer["label"]} for answer in predicted[:-3]]
    (tmp_path / "labels.jsonl").write_bytes(b"\n".join(map(orjson.dumps, right)))
    by_id = score(bundle, out, path, "--labels", tmp_path / "labels.jsonl", capsys=capsys)
    assert (by_id["windows"], by_id["accuracy"], by_id["unlabelled"]) == (len(right), 1.0, 3)


def open_labels(bundle: Path) -> tuple[str, ...]:
    with open_model(bundle) as model:
        return model.manifest.output.labels


def test_a_score_for_people(
    bundle: Path, recorded: list[Stream], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(bundle, tmp_path / "out.jsonl", labelled(tmp_path, recorded), "--labels", "what")
    text = capsys.readouterr().err
    assert "samples, " in text
    assert "score: no window has a label\nwindows left out: " in text
    assert "labelled 'right', which the model does not have" in text


def test_a_recording_shorter_than_a_window_says_so(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recording(tmp_path / "short.jsonl", streams(1, 7))
    assert run(bundle, tmp_path / "out.jsonl", path) == []
    assert "no window: " in (text := capsys.readouterr().err)
    assert "samples of key watch-0" in text


def test_a_program_says_the_same_of_its_files(
    bundle: Path, recorded: list[Stream], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = table(tmp_path, recorded)
    with open_model(bundle) as model:
        found = [vars(one) | {"latency_ms": 0} for one in replay(model, path, time="when", key_column="who")]
        same(found, expected)
        with pytest.raises(TypeError, match="whose"):
            list(replay(model, path, whose="w"))
