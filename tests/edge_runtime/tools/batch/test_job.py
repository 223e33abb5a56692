"""How a job is cut into groups, what is remembered of it, and what is added up."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.app.python_api import single_variant
from edge_runtime.io.recordings.labels import Labels
from edge_runtime.io.recordings.score import Score
from edge_runtime.io.recordings.tally import Tally
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.tools.batch.job import Group, GroupFigures, Job, Totals, grouped, joined


def layout(**fields: object) -> RecordingConfig:
    return RecordingConfig(files=(Path("a.csv"),), **fields)  # type: ignore[arg-type]


def files(*keys: str) -> list[tuple[Path, str]]:
    return [(Path(f"{i}.csv"), key) for i, key in enumerate(keys)]


def keys(*names: str) -> GroupFigures:
    return GroupFigures.of(names, Metrics(), Tally(), None, {})


def test_files_are_answered_apart_unless_they_have_a_key_in_common() -> None:
    groups = grouped(files("a", "b", "a", "c"), layout())
    assert [[path.stem for path, _ in group.files] for group in groups] == [["0", "2"], ["1"], ["3"]]
    assert [group.number for group in groups] == [0, 1, 2]


@pytest.mark.parametrize("fields", [{"key": "w1"}, {"partial": True}])
def test_files_that_complete_each_other_are_one_group(fields: dict[str, object]) -> None:
    assert grouped(files("a", "b"), layout(**fields)) == [Group(0, tuple(files("a", "b")))]


def test_groups_that_turn_out_to_share_keys_are_joined_also_through_a_third() -> None:
    answered = [
        (Group(number, ((Path(f"{number}.csv"), str(number)),)), keys(*found))
        for number, found in enumerate([("a",), ("b", "c"), ("d",), ("c", "e"), ("e", "a")])
    ]
    assert [[path.stem for path, _ in group.files] for group in joined(answered)] == [["0", "1", "3", "4"]]
    assert joined(answered)[0].number == 0
    assert not joined(answered[:3])


def test_a_group_is_another_one_once_a_file_or_the_job_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("one")
    group = Group(0, ((path, "a"),))
    before = group.digest("job")
    assert group.digest("job") == before
    assert group._replace(number=4).digest("job") == before
    assert group.digest("another job") != before
    path.write_text("more")
    assert group.digest("job") != before


def test_a_job_is_another_one_once_what_its_answers_depend_on_has_changed(tmp_path: Path) -> None:
    bundle = tmp_path / "a.edge"
    bundle.write_bytes(b"one")
    job = Job(model=single_variant(bundle), layout=layout(), window=WindowConfig())
    before = job.digest()
    assert job.digest() == before
    assert Job(model=job.model, layout=layout(scale=(2.0,)), window=job.window).digest() != before
    assert Job(model=job.model, layout=layout(), window=WindowConfig(lateness_s=1)).digest() != before
    bundle.write_bytes(b"two")
    assert job.digest() != before


def test_figures_survive_the_disk_and_anything_else_is_no_figures() -> None:
    score = Score(("a", "b"), Labels(0.02, 0.1))
    figures = GroupFigures.of(["w"], Metrics(), Tally(), score, {"a.csv": "why"})
    assert GroupFigures.from_json(figures.to_json()) == figures
    for other in (b"", b"[]", b"{}", figures.to_json()[:-9]):
        with pytest.raises(ValueError, match=r"."):
            GroupFigures.from_json(other)


def test_totals_are_sums() -> None:
    metrics = Metrics()
    metrics.counts["samples_total"] = 3
    metrics.dropped["late"] = 1
    totals = Totals(None)
    for _ in range(2):
        totals.add(GroupFigures.of(["w"], metrics, Tally(), None, {}))
    assert totals.plain()["counts"] == {"samples_total": 6}
    assert totals.plain()["dropped"] == {"late": 2}
