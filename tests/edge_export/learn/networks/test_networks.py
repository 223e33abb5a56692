"""The networks and their training, in steps few enough for a test."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

from edge_export.data.dataset import Dataset, Recording  # noqa: E402 - only where torch is
from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.graph.tflite.convert import convert  # noqa: E402
from edge_export.learn.networks import Calibrated  # noqa: E402
from edge_export.learn.training.distill import Distillation, distil, label_pool  # noqa: E402
from edge_export.learn.training.loop import answer, fit_labels, start  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402

from edge_runtime.manifest import Channel  # noqa: E402
from tests.edge_export.graphs import onnx_answers, operators, windows  # noqa: E402
from tests.edge_export.learn.networks.pair import ContextNet, DeviceNet  # noqa: E402
from tests.edge_export.learn.training.tones import ArraySampler  # noqa: E402

SCALE = (1.0, 0.5, 0.25)
from tests.edge_export.recordings import cut_windows  # noqa: E402


def waves(groups: int = 3) -> Dataset:
    """Three classes that differ in frequency; groups that differ in amplitude."""
    random = np.random.default_rng(4)
    recordings = []
    for group in range(groups):
        for label, frequency in enumerate((0.5, 1.5, 4.0)):
            t = np.arange(400)[:, None] / 50 + np.array([0.0, 0.1, 0.2])
            values = (1 + 0.3 * group) * np.sin(2 * np.pi * frequency * t) + 0.1 * random.standard_normal((400, 3))
            recordings.append(
                Recording(name=f"{group}-{label}", group=str(group), label=label, values=values.astype(np.float32))
            )
    return Dataset(
        name="waves",
        channels=tuple(Channel(name=n, unit="1") for n in "xyz"),
        rate_hz=50.0,
        classes=("slow", "middle", "fast"),
        recordings=tuple(recordings),
    )


def drawn(seed: int) -> ArraySampler:
    seen = cut_windows(waves(), samples=120, hop=10)
    return ArraySampler(seen.x, seen.y, seed=seed)


def trained(seed: int, steps: int = 60) -> ContextNet:
    start(seed)
    network = ContextNet(scale=SCALE, classes=3, widths=(8, 8))
    fit_labels(network, drawn(seed), Training(steps=steps, batch=32))
    return network


def test_filling_is_left_out_of_a_context() -> None:
    """More filling in front of the same signal changes the answer no more than the strides' alignment does."""
    network = trained(0)
    stride = network.stride
    signal = windows(6, 3, 240)
    answers = []
    for length in (120, 120 + stride, 120 + 5 * stride):
        context = np.concatenate([np.repeat(signal[:, :, 160:161], length - 80, axis=2), signal[:, :, 160:]], axis=2)
        answers.append(answer(network, context))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-5)
    np.testing.assert_allclose(answers[2], answers[0], atol=1e-5)
    unfilled = answer(network, signal[:, :, 120:])
    assert np.abs(unfilled - answers[0]).max() > 1e-3


def test_training_learns_and_is_the_same_for_the_same_seed() -> None:
    unseen = cut_windows(waves().only(["1"]), samples=120, hop=60)
    one, two = trained(3), trained(3)
    np.testing.assert_array_equal(answer(one, unseen.x), answer(two, unseen.x))
    assert (answer(one, unseen.x).argmax(axis=1) == unseen.y).mean() > 0.9
    assert np.abs(answer(trained(4), unseen.x) - answer(one, unseen.x)).max() > 1e-3


def test_a_student_learns_from_the_teacher_s_answers_alone() -> None:
    teacher = Calibrated([trained(0)])
    start(1)
    pool = label_pool(teacher, drawn(8), size=600, samples=40)
    assert pool.x.shape == (600, 3, 40)
    np.testing.assert_allclose(np.exp(pool.teacher).sum(axis=1), 1, atol=1e-4)
    student = DeviceNet(scale=SCALE, classes=3, widths=(8, 8), dropout=0.0)
    distil(student, pool, Distillation(pool=600, teacher_share=1.0), Training(steps=150, learning_rate=1e-2), seed=2)
    seen = cut_windows(waves(), samples=120, hop=60, context=120)
    agree = answer(student, seen.x[:, :, -40:]).argmax(axis=1) == answer(teacher, seen.x).argmax(axis=1)
    assert agree.mean() > 0.85


def test_an_ensemble_answers_with_the_mean_and_a_temperature_softens_it() -> None:
    members, x = [trained(0, 10), trained(1, 10)], windows(5, 3, 120)
    mean = np.mean([answer(Calibrated([m]), x) for m in members], axis=0)
    np.testing.assert_allclose(answer(Calibrated(members), x), mean, atol=1e-5)
    softer = np.sqrt(mean) / np.sqrt(mean).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answer(Calibrated(members, 2.0), x), softer, atol=1e-5)


@pytest.mark.parametrize("make", [DeviceNet, ContextNet])
def test_the_onnx_file_answers_as_torch_does_for_any_batch_and_names_no_place(make: type) -> None:
    start(0)
    network = Calibrated([make(scale=SCALE, classes=3, widths=(8, 8))], 1.3)
    model = to_onnx(network, channels=3, samples=100)
    content = model.SerializeToString()
    for trace in (b"/home", b"/tmp", b".py", b"site-packages", b"stack_trace", b"networks"):
        assert trace not in content
    for batch in (1, 2, 7):
        x = windows(batch, 3, 100)
        np.testing.assert_allclose(onnx_answers(model, x), answer(network, x), atol=1e-5)
    assert to_onnx(network, channels=3, samples=100).SerializeToString() == content


def test_the_device_net_s_tflite_form_needs_no_padding_operator() -> None:
    start(0)
    names = operators(convert(to_onnx(Calibrated([DeviceNet(scale=SCALE, classes=3)]), channels=3, samples=100)))
    assert "PAD" not in names
    assert names.count("TRANSPOSE") == 1
