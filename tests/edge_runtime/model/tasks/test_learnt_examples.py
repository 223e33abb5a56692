"""Examples that users add: what counts, what is refused, what a restart has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tasks.build import build_task
from edge_runtime.model.tasks.learnt_examples import (
    MAX_BYTES,
    MAX_EXAMPLES,
    RECENT,
    LearntExamples,
    read_examples,
    vectors_of,
)
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32
from tests.edge_runtime.batches import numbers_after
from tests.task_bundles import OUTPUTS, task_bundle

BARE = EmbeddingOutput(size=2, distance="l2", k=1)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return _manifest(tmp_path_factory.mktemp("bundle"), BARE)


def _manifest(folder: Path, output: Any = BARE, **more: Any) -> Manifest:
    with open_bundle(task_bundle(folder / "task.edge", output, **more)) as bundle:
        return bundle.manifest


def learnt(manifest: Manifest) -> LearntExamples:
    examples = LearntExamples()
    examples.use(manifest)
    return examples


def numbers(*values: float) -> Float32:
    return np.array(values, np.float32)


def window(slot: int) -> Window:
    return Window("k", slot, 0.0, np.zeros((8, 3), np.float32), np.zeros((8, 3), np.float32), 0.0)


def label_of(examples: LearntExamples, manifest: Manifest, *values: float) -> str:
    task = examples.taught(build_task(manifest, threshold=0.5))
    (found,) = task.decide(np.array([values], np.float32)).best
    return str(found.label)


def test_an_example_counts_at_once_and_no_more_when_it_is_removed(manifest: Manifest) -> None:
    examples = learnt(manifest)
    assert label_of(examples, manifest, 1, 0) == "unknown"
    assert examples.add("door", [("a@0", numbers(1, 0))], vectors_of(manifest)) == 1
    assert examples.add("tap", [("a@8", numbers(0, 1)), ("a@9", numbers(0, 2))], vectors_of(manifest)) == 2
    assert (label_of(examples, manifest, 1, 0.1), label_of(examples, manifest, 0, 1.2)) == ("door", "tap")
    assert examples.counts() == {"door": 1, "tap": 2}
    assert examples.remove(labels=["tap"]) == 2
    assert label_of(examples, manifest, 0, 1.2) == "door"
    (door,) = read_examples(examples.save())[1]
    assert examples.remove([door.id]) == 1
    assert label_of(examples, manifest, 1, 0) == "unknown"


def test_a_window_is_named_by_the_id_of_its_prediction(manifest: Manifest) -> None:
    examples = learnt(manifest)
    windows = [window(slot) for slot in range(RECENT + 2)]
    rows = np.arange(2 * len(windows), dtype=np.float32).reshape(-1, 2)
    rows[-1] = np.nan
    numbers_after(examples, windows, rows, {("k", RECENT)})
    assert examples.add_windows("door", ["k@5"]) == 1
    assert label_of(examples, manifest, 10, 11) == "door"
    for gone in ("k@nothing", f"k@{RECENT}", f"k@{RECENT + 1}"):
        with pytest.raises(
            StoreError, match="is none of the last 256 that were answered, or its readings were suspect"
        ):
            examples.add_windows("door", ["k@6", gone])
    assert examples.counts() == {"door": 1}, "all of them or none"
    numbers_after(examples, [window(9000 + i) for i in range(RECENT)], rows[:RECENT])
    with pytest.raises(StoreError, match="none of the last"):
        examples.add_windows("door", ["k@5"])


def test_the_same_numbers_stand_there_once_under_one_label(manifest: Manifest) -> None:
    examples = learnt(manifest)
    assert examples.add("door", [("a@0", numbers(1, 0)), ("a@1", numbers(1, 0))], vectors_of(manifest)) == 1
    assert examples.add("door", [("a@0", numbers(1, 0))], vectors_of(manifest)) == 0
    with pytest.raises(StoreError, match=r"window 'a@0' is an example of 'door' already; remove .* first"):
        examples.add("tap", [("a@0", numbers(1, 0))], vectors_of(manifest))


@pytest.mark.parametrize("label", ["", " door", "do\nor", "\x07", "x" * 65, "a\u202eb"])
def test_a_label_that_would_not_print_is_refused(manifest: Manifest, label: str) -> None:
    with pytest.raises(StoreError, match="write 1 to 64 printable characters"):
        learnt(manifest).add(label, [("a@0", numbers(1, 0))], vectors_of(manifest))


def test_numbers_that_do_not_fit_are_refused(manifest: Manifest) -> None:
    examples, made_by = learnt(manifest), vectors_of(manifest)
    with pytest.raises(StoreError, match="has 3 numbers, and linear/1 answers with 2"):
        examples.add("door", [("a@0", numbers(1, 0, 0))], made_by)
    with pytest.raises(StoreError, match="not finite; take another one"):
        examples.add("door", [("a@0", numbers(1, np.nan))], made_by)
    with pytest.raises(StoreError, match="made by another model than the one that answers now, linear/1"):
        examples.add("door", [("a@0", numbers(1, 0))], "another")
    assert not examples.save()


def test_a_thousand_examples_are_refused_and_so_are_large_ones(manifest: Manifest, tmp_path: Path) -> None:
    examples, made_by = learnt(manifest), vectors_of(manifest)
    with pytest.raises(StoreError, match=r"1000 examples .* too many .* 500 in all is the most"):
        examples.add("door", [(f"a@{i}", numbers(1, i)) for i in range(1000)], made_by)
    assert examples.add("door", [(f"a@{i}", numbers(1, i)) for i in range(MAX_EXAMPLES)], made_by) == MAX_EXAMPLES
    with pytest.raises(StoreError, match="too many"):
        examples.add("door", [("a@9999", numbers(-1, 0))], made_by)
    assert examples.counts() == {"door": MAX_EXAMPLES}
    read_examples(examples.save())
    size = MAX_BYTES // 4 // 3
    large = _manifest(tmp_path, EmbeddingOutput(size=size))
    wide, ones = learnt(large), np.ones(size, np.float32)
    assert wide.add("door", [(f"a@{i}", i * ones) for i in (1, 2, 3)], vectors_of(large)) == 3
    with pytest.raises(StoreError, match=r"4 examples of 5\.3 MiB are too many"):
        wide.add("door", [("a@4", 4 * ones)], vectors_of(large))


def test_a_model_that_is_no_embedding_takes_none(tmp_path: Path) -> None:
    other = _manifest(tmp_path, OUTPUTS["regression"])
    examples = learnt(other)
    with pytest.raises(StoreError, match="linear/1 is no embedding, and its labels come from training"):
        examples.add("door", [("a@0", numbers(1))], vectors_of(other))
    with pytest.raises(StoreError, match="is no embedding"):
        examples.add_windows("door", ["a@0"])
    task = build_task(other)
    assert examples.taught(task) is task


def test_examples_of_another_model_are_kept_not_used_and_told_of_once(
    manifest: Manifest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = _manifest(tmp_path, EmbeddingOutput(size=3, distance="l2", k=1), name="wider")
    assert vectors_of(other) != vectors_of(manifest)
    examples = learnt(manifest)
    examples.add("door", [("a@0", numbers(1, 0))], vectors_of(manifest))
    for _ in range(3):
        examples.use(other)
        assert label_of(examples, other, 1, 0, 0) == "unknown"
        examples.use(manifest)
        assert label_of(examples, manifest, 1, 0) == "door"
    (said,) = [one for one in caplog.messages if "are not used" in one]
    assert "1 are not used, since another model made them (linear/1)" in said
    examples.use(other)
    assert examples.add("tap", [("a@0", numbers(1, 0, 0))], vectors_of(other)) == 1
    assert examples.remove(other_models=True) == 1
    assert examples.counts() == {"tap": 1}


def test_the_same_model_under_another_version_keeps_its_examples(manifest: Manifest, tmp_path: Path) -> None:
    newer = _manifest(tmp_path, OUTPUTS["embedding"], files={"examples.npy": np.array([[0, 1, 1]], "f4")}, version=2)
    assert vectors_of(newer) == vectors_of(manifest)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-9, 9, width=32)), max_size=20))
def test_a_restart_has_what_was_saved(manifest: Manifest, words: list[tuple[str, float]]) -> None:
    first, again = learnt(manifest), learnt(manifest)
    for i, (label, value) in enumerate(words):
        first.add(label, [(f"k@{i}", numbers(i, value))], vectors_of(manifest))
    again.restore(first.save())
    assert again.save() == first.save()
    assert again.counts() == first.counts()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"examples": 7},
        {"examples": [{"id": "x"}]},
        {"answers": None, "examples": [1]},
        "numbers",
        "label",
    ],
)
def test_a_file_that_is_none_is_refused_whole(manifest: Manifest, change: Any) -> None:
    examples = learnt(manifest)
    examples.add("door", [("a@0", numbers(1, 0))], vectors_of(manifest))
    plain = orjson.loads(examples.save())
    if isinstance(change, str):
        plain["examples"][0][change] = {"numbers": "?!", "label": "a\nb"}[change]
    else:
        plain |= change
    with pytest.raises(StoreError):
        examples.restore(orjson.dumps(plain))
    with pytest.raises(StoreError, match="cannot be read"):
        examples.restore(examples.save()[:-9])
    assert examples.counts() == {"door": 1}
