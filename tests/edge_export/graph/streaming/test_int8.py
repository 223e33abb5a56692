"""Stateful int8 networks, calibrated along streams."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import pytest
from edge_export.graph.quantize import Scheme
from edge_export.graph.streaming import StreamingRunner, collect_along, parity, quantize_streaming, to_streaming
from edge_export.graph.streaming.runner import session

from edge_runtime.errors import ConfigError
from tests.edge_export.graph.streaming import architectures as nets
from tests.edge_export.graph.streaming.signals import noise

TYPES: list[Literal["uint8", "int8"]] = ["uint8", "int8"]


@pytest.mark.parametrize("activations", TYPES)
@pytest.mark.parametrize(
    "model",
    [nets.valid_student(), nets.tcn(aggregation="ReduceMean"), nets.tcn(causal=True)],
    ids=["student", "tcn and mean", "causal tcn"],
)
def test_the_stateful_int8_network_answers_what_the_windowed_one_does(
    model: onnx.ModelProto, activations: Literal["uint8", "int8"]
) -> None:
    streams = [noise(6, 600, seed=seed) for seed in (1, 2)]
    int8 = quantize_streaming(model, streams, hop=12, scheme=Scheme(activations=activations))
    found = parity(int8.windowed, int8.streaming, noise(2, 6, 128 + 100 * 12, seed=3))
    assert found.windows >= 200
    assert found.max_abs_diff <= 1e-6
    assert found.agreement == 1.0
    assert {state.dtype for state in int8.streaming.states} == {activations}
    # And the integers say nearly what the floats say.
    assert parity(model, int8.streaming, streams[0]).agreement > 0.8


def test_states_of_integers_start_from_their_zero() -> None:
    int8 = quantize_streaming(nets.tcn(), [noise(6, 600)], hop=12, scheme=Scheme(activations="int8"))
    first, *others = int8.streaming.states
    assert -128 < first.initial.flat[0] < 127
    assert all((state.initial == -128).all() for state in others)


def test_calibration_along_a_stream_meets_the_values_of_its_windows() -> None:
    model, stream = nets.tcn(aggregation="ReduceMean"), noise(6, 128 + 40 * 12)
    along = collect_along(model, [stream], hop=12)
    windows = np.stack([stream[:, start : start + 128] for start in range(4, 40 * 12 + 1, 12)])
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    names = [name for name in along if name != "window"]
    probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    values = dict(zip(names, session(probe).run(names, {"window": windows}), strict=True))
    assert len(names) > 20
    for name, array in values.items():
        # The stream computes a frame once, the windows ten times: the same values, but for the first window's.
        assert along[name].low >= array.min() - 1e-5
        assert along[name].high <= array.max() + 1e-5
        assert along[name].high - along[name].low > 0.5 * np.ptp(array)


def test_a_recurrent_network_keeps_its_own_state_in_float() -> None:
    model = nets.gru_net(stride=1)
    streams = [noise(6, 900, seed=4)]
    int8 = quantize_streaming(model, streams, hop=12, scheme=Scheme(activations="uint8"), mode="stream")
    assert {state.dtype for state in int8.streaming.states} == {"uint8", "float32"}
    stream = noise(1, 6, 1200, seed=5)
    float_answers = StreamingRunner(to_streaming(model, hop=12, mode="stream")).run(stream)
    answers = StreamingRunner(int8.streaming).run(stream)
    assert (answers.argmax(axis=-1) == float_answers.argmax(axis=-1)).mean() > 0.9


def test_calibration_without_a_usable_stream_is_refused() -> None:
    scheme, model = Scheme(activations="uint8"), nets.tcn()
    with pytest.raises(ConfigError, match=r"at least 132 samples; none is as long"):
        quantize_streaming(model, [noise(6, 128)], hop=12, scheme=scheme)
    with pytest.raises(ConfigError, match=r"stream 1 must be \(6, samples\) of finite numbers, not \(3, 500\)"):
        quantize_streaming(model, [noise(6, 500), noise(3, 500)], hop=12, scheme=scheme)
    broken = noise(6, 500)
    broken[0, 7] = np.nan
    with pytest.raises(ConfigError, match="stream 0 must be"):
        quantize_streaming(model, [broken], hop=12, scheme=scheme)
    with pytest.raises(ConfigError, match="form 'qdq'"):
        quantize_streaming(model, [noise(6, 500)], hop=12, scheme=Scheme(activations="uint8", form="qoperator"))
