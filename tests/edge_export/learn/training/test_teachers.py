"""Teachers of every kind that needs no torch: ONNX files, kept answers, ensembles, the cloud's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edge_export.data.dataset import UNLABELLED, Dataset, Recording
from edge_export.data.field_corrections import match, read_answers
from edge_export.learn.training.teachers import OnnxTeacher, log_probabilities

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.types import Answer, Correction, Prediction
from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, windows

LABELS = ("still", "walk", "fall")


def logits_net(seed: int = 0) -> bytes:
    b = GraphBuilder(3, 40, seed=seed)
    t = b.node("Relu", b.conv("window", 3, 8, 5))
    t = b.node("Flatten", b.node("GlobalAveragePool", t))
    content: bytes = b.model(b.dense(t, 8, 4)).SerializeToString()
    return content


def test_an_onnx_file_teaches_with_probabilities_or_logits() -> None:
    x = windows(70, 3, 40)
    model = device_net()
    answers = OnnxTeacher(model=model.SerializeToString(), output="probabilities", classes=4).answer(x)
    np.testing.assert_allclose(np.exp(answers), onnx_answers(model, x), atol=1e-6)
    by_logits = OnnxTeacher(model=logits_net(), output="logits").answer(x)
    np.testing.assert_allclose(np.exp(by_logits).sum(axis=1), 1, atol=1e-5)
    assert by_logits.dtype == np.float32


def loudest_net(over: list[int] | None) -> bytes:
    """Divides its windows by their loudest sample: of the whole batch, or over some axes."""
    b = GraphBuilder(3, 40)
    axes = [] if over is None else [b.constant(np.array(over, np.int64))]
    loudest = b.node("ReduceMax", b.node("Abs", "window"), *axes, keepdims=1)
    t = b.node("Relu", b.conv(b.node("Div", "window", loudest), 3, 8, 5))
    t = b.node("Flatten", b.node("GlobalAveragePool", t))
    content: bytes = b.model(b.dense(t, 8, 4)).SerializeToString()
    return content


def test_a_teacher_whose_answer_depends_on_the_windows_beside_it_is_refused_with_the_cause() -> None:
    x = windows(8, 3, 40) * np.arange(1, 9, dtype=np.float32)[:, None, None]
    OnnxTeacher(model=loudest_net([1, 2]), output="logits").check_alone(x)
    with pytest.raises(ConfigError, match=r"8 windows together differ by .* over the batch .* by itself"):
        OnnxTeacher(model=loudest_net(None), output="logits").check_alone(x)


def test_answers_are_kept_by_model_windows_and_kind_and_never_asked_twice(tmp_path: Path) -> None:
    x, model = windows(20, 3, 40), logits_net()
    cache = tmp_path / "kept"
    teacher = OnnxTeacher(model=model, output="logits", cache=cache)
    first = teacher.answer(x)
    (kept,) = cache.iterdir()
    np.savez(kept, answers=first + 1)  # only a reader of the file would say this
    np.testing.assert_array_equal(teacher.answer(x), first + 1)
    changed = x.copy()
    changed[7, 1, 3] += 0.5
    assert np.abs(teacher.answer(changed) - first).max() < 0.9
    OnnxTeacher(model=logits_net(seed=1), output="logits", cache=cache).answer(x)
    assert len(list(cache.iterdir())) == 3
    kept.write_bytes(b"cut short")
    with pytest.raises(ConfigError, match=r"\.npz: cached answers of a teacher cannot be read; delete"):
        teacher.answer(x)


def test_logits_of_any_size_become_log_probabilities() -> None:
    logits = np.array([[1e4, 0.0, -1e4], [0.1, 0.2, 0.3]])
    answers = log_probabilities(logits, "logits")
    np.testing.assert_allclose(answers[0], [0, -1e4, -2e4], rtol=1e-6)
    np.testing.assert_allclose(np.exp(answers[1]), np.exp(logits[1]) / np.exp(logits[1]).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (lambda: OnnxTeacher(model=logits_net(), output="probabilities"), "say that its output is logits"),
        (lambda: OnnxTeacher(model=logits_net(), output="logits", classes=7), r"not \(5, 7\); is it the right model"),
        (lambda: OnnxTeacher(model=b"not a model", output="logits"), "teacher: "),
    ],
)
def test_a_teacher_that_is_not_what_it_is_taken_for_is_refused(
    teacher: Callable[[], OnnxTeacher], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        teacher().answer(windows(5, 3, 40))


def test_windows_of_another_shape_are_refused_with_both_shapes() -> None:
    with pytest.raises(ConfigError, match=r"takes windows of shape \(-1, 3, 40\), not \(5, 2, 40\)"):
        OnnxTeacher(model=logits_net(), output="logits").answer(windows(5, 2, 40))


CONTRACT = InputContract(
    channels=(Channel(name="x", unit="g"), Channel(name="y", unit="g")), rate_hz=50, window=20, hop=10
)


def stream() -> Dataset:
    values = np.random.default_rng(4).standard_normal((100, 2)).astype(np.float32)
    t = 1000 + np.arange(100) / 50
    return Dataset(
        name="field",
        channels=(Channel(name="x", unit="g"), Channel(name="y", unit="g")),
        rate_hz=50,
        classes=("fall", "still", "walk"),
        recordings=(Recording(name="belt-7", group="a", label=UNLABELLED, values=values, t=t),),
    )


def correction(id_: str, scores: list[float]) -> Correction:
    best = int(np.argmax(scores))
    return Correction(
        id=id_, key="belt-7", start=0.0, end=0.4, label=LABELS[best], confidence=scores[best], scores=scores,
        route="cloud", hard=True, model="big/3", variant="cloud", latency_ms=80.0, supersedes="walk", late=False,
    )  # fmt: skip


def prediction(id_: str) -> Prediction:
    return Prediction(
        id=id_, key="belt-7", start=0.0, end=0.4, label="walk", confidence=0.4, scores=[0.3, 0.4, 0.3],
        route="provisional", hard=True, model="small/1", variant="onnx-int8", latency_ms=1.0,
    )  # fmt: skip


def test_logged_answers_find_the_windows_they_are_about(tmp_path: Path) -> None:
    dataset = stream()
    recording = dataset.recordings[0]
    assert recording.t is not None
    cut = cut_recording(CONTRACT, "belt-7", recording.t, recording.values)
    log = tmp_path / "answers.jsonl"
    lines: list[Answer] = [
        prediction(cut[2].id),
        correction(cut[2].id, [0.1, 0.2, 0.7]),
        correction(cut[5].id, [0.9, 0.1, 0.0]),
        correction(cut[2].id, [0.0, 0.25, 0.75]),  # asked again after a crash
        correction("belt-8@1", [1.0, 0.0, 0.0]),
    ]
    log.write_bytes(b"\n".join(line.to_json() for line in lines) + b"\n")
    answers = read_answers(log, LABELS)
    assert len(answers) == 3
    found = match(answers, LABELS, dataset, CONTRACT)
    assert found.unmatched == 1
    np.testing.assert_array_equal(found.x, np.stack([cut[2].samples.T, cut[5].samples.T]))
    np.testing.assert_array_equal(found.y, [UNLABELLED] * 2)
    # In the order of the data set's classes: fall, still, walk.
    np.testing.assert_allclose(np.exp(found.teacher), [[0.75, 0, 0.25], [0, 0.9, 0.1]], atol=1e-6)
    assert np.isfinite(found.teacher).all()


@pytest.mark.parametrize(
    ("line", "labels", "message"),
    [
        (b"{not json", LABELS, r"log\.jsonl:2: not an answer of the runtime"),
        (b'{"route": "cloud", "id": "a@1"}', LABELS, r"log\.jsonl:2: not an answer"),
        (correction("a@1", [0.5, 0.2, 0.1]).to_json(), LABELS, r"log\.jsonl:2: .*no probabilities"),
        (correction("a@1", [0.5, 0.4, 0.1]).to_json(), ("still", "walk"), "3 scores for 2 labels"),
        (correction("a@1", [0.5, 0.4, 0.1]).to_json(), ("walk", "still", "fall"), "in the bundle's order"),
        (prediction("a@1").to_json(), LABELS, "holds no answer of the cloud"),
    ],
)
def test_a_log_that_is_none_is_refused_by_line(
    tmp_path: Path, line: bytes, labels: tuple[str, ...], message: str
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\n" + line + b"\n")
    with pytest.raises(ConfigError, match=message):
        read_answers(log, labels)


def test_a_log_of_other_streams_or_classes_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(correction("elsewhere@3", [0.5, 0.4, 0.1]).to_json())
    answers = read_answers(log, LABELS)
    with pytest.raises(ConfigError, match=r"none of 1 logged answers is about .* for example 'elsewhere@3'"):
        match(answers, LABELS, stream(), CONTRACT)
    with pytest.raises(ConfigError, match="the log knows no class 'fall'"):
        match(answers, ("still", "walk", "run"), stream(), CONTRACT)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_answers(tmp_path / "missing.jsonl", LABELS)
