"""Stateful graphs along what a phone and a watch recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.graph.quantize import Scheme
from edge_export.graph.streaming import StreamingRunner, parity, quantize_streaming, to_streaming

from tests.edge_export.graph.streaming import architectures as nets
from tests.edge_export.graph.streaming.signals import prefix_answers


def recording(shared: Path, person: str, place: str, samples: int) -> np.ndarray:
    """(6, samples) acceleration in m/s2 and angular rate in rad/s, at 100 Hz."""
    with np.load(shared / "data" / "har-phone-watch" / f"{person}.npz") as file:
        values = file[f"{place}_x"]
    assert len(values) >= samples
    return np.ascontiguousarray(values[:samples].T, np.float32)


@pytest.mark.parametrize(
    "model",
    [nets.valid_student(), nets.tcn(aggregation="ReduceMean"), nets.tcn(causal=True)],
    ids=["student", "tcn and mean", "causal tcn"],
)
def test_a_recording_is_answered_like_its_windows(shared: Path, model: onnx.ModelProto) -> None:
    streams = np.stack([recording(shared, "s02", place, 6_000) for place in ("sp", "sw")])
    found = parity(model, to_streaming(model, hop=12), streams)
    assert found.windows >= 2 * 480
    assert found.max_abs_diff <= 1e-5
    assert found.agreement == 1.0


def test_an_int8_network_answers_a_recording_like_its_windows(shared: Path) -> None:
    calibration = [recording(shared, person, "sp", 3_000) for person in ("s05", "s06")]
    int8 = quantize_streaming(nets.valid_student(), calibration, hop=12, scheme=Scheme(activations="uint8"))
    found = parity(int8.windowed, int8.streaming, recording(shared, "s02", "sp", 6_000))
    assert found.max_abs_diff <= 1e-6
    assert found.agreement == 1.0


def test_a_recurrent_network_has_seen_the_whole_recording(shared: Path) -> None:
    stream = recording(shared, "s03", "sw", 1_200)[None]
    streaming = to_streaming(nets.gru_net(), hop=12, mode="stream")
    answers = StreamingRunner(streaming).run(stream)
    (expected,) = prefix_answers(lambda samples: nets.gru_net(samples=samples), 1_200, 1, stream)
    np.testing.assert_allclose(answers[-1], expected, atol=1e-5)
