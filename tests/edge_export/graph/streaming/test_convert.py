"""Stateful graphs answer what windowed networks answer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from edge_export.graph.streaming import StreamingRunner, parity, to_streaming
from edge_export.graph.streaming.plan import analyse
from edge_export.graph.streaming.window_graph import WindowGraph
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from tests.edge_export.graph.streaming import architectures as nets
from tests.edge_export.graph.streaming.signals import noise, prefix_answers
from tests.edge_export.graphs import onnx_answers

CLOSE = 1e-4


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(net=nets.networks(), times=st.integers(1, 6), batch=st.sampled_from([1, 3]), seed=st.integers(0, 99))
def test_any_network_gives_the_windowed_answers_on_every_window(
    net: nets.Net, times: int, batch: int, seed: int
) -> None:
    shape = net.model.graph.input[0].type.tensor_type.shape.dim
    channels, samples = shape[1].dim_value, shape[2].dim_value
    hop = min(net.stride * times, (samples - 1) // net.stride * net.stride)
    streaming = to_streaming(net.model, hop=hop, max_work=9.0)
    found = parity(net.model, streaming, noise(batch, channels, samples + 9 * hop, seed=seed))
    assert found.windows >= 9 * batch
    assert found.max_abs_diff <= CLOSE
    assert streaming.delay == 0


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(net=nets.networks(padding=False), times=st.integers(1, 4))
def test_networks_without_padding_compute_no_frame_twice(net: nets.Net, times: int) -> None:
    samples = net.model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    hop = min(net.stride * times, (samples - 1) // net.stride * net.stride)
    plan = analyse(WindowGraph(net.model), hop=hop, mode="window")
    kept = [position for position in plan.runs if plan.steps[position].keeps]
    for position in kept:
        frames = plan.frames[net.model.graph.node[position].output[0]]
        computed = sum(stop - start for start, stop in plan.runs[position])
        assert computed <= hop // frames.stride, net.model.graph.node[position].name


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(
    ("model", "hop"),
    [
        (nets.valid_student(), 12),
        (nets.valid_student(samples=125), 8),
        (nets.tcn(), 13),
        (nets.tcn(aggregation="ReduceMean"), 12),
        (nets.tcn(causal=True), 12),
        (nets.spectrogram_net(), 400),
    ],
    ids=["student", "student with a tail", "tcn", "tcn and mean", "causal tcn", "spectrogram"],
)
def test_long_streams_are_answered_like_their_windows(model: onnx.ModelProto, hop: int, batch: int) -> None:
    streaming = to_streaming(model, hop=hop)
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    stream = noise(batch, channels, streaming.window + 300 * hop)
    found = parity(model, streaming, stream)
    assert found.windows >= 300 * batch
    assert found.max_abs_diff <= 1e-5
    assert found.agreement == 1.0
    assert streaming.work < 0.2


@pytest.mark.parametrize("cell", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_recurrent_network_in_stream_mode_has_seen_the_whole_stream(cell: str, batch: int) -> None:
    stream = noise(batch, 6, 12 * 24)
    streaming = to_streaming(nets.gru_net(cell=cell), hop=12, mode="stream")
    answers = StreamingRunner(streaming, batch=batch).run(stream)
    expected = prefix_answers(lambda samples: nets.gru_net(cell=cell, samples=samples), 12, 24, stream)
    np.testing.assert_allclose(answers, expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0.01
    assert streaming.delay == 0


def test_a_causal_tcn_in_stream_mode_has_seen_the_whole_stream() -> None:
    stream = noise(1, 6, 10 * 16)
    streaming = to_streaming(nets.tcn(samples=32, causal=True), hop=16, mode="stream")
    answers = StreamingRunner(streaming).run(stream)
    expected = prefix_answers(lambda samples: nets.tcn(samples=samples, causal=True), 16, 10, stream)
    # Receptive field: 1 + 4 * (1 + 2 + 4 + 8) = 61 samples, more than the window of 32.
    np.testing.assert_allclose(answers, expected, atol=1e-5)


def test_the_size_of_the_hop_does_not_change_answers_in_stream_mode() -> None:
    model = nets.gru_net(aggregation="mean")
    stream = noise(2, 6, 480)
    fine = StreamingRunner(to_streaming(model, hop=8, mode="stream"), batch=2).run(stream)
    coarse = StreamingRunner(to_streaming(model, hop=24, mode="stream"), batch=2).run(stream)
    np.testing.assert_allclose(fine[2::3], coarse, atol=1e-6)


def test_padding_on_both_sides_delays_a_stream_by_its_right_half() -> None:
    """In stream mode the zeros at a window's end are the samples to come; away from the ends nothing else changes."""

    def build(samples: int) -> onnx.ModelProto:
        net = nets.NetBuilder(2, samples, seed=3)
        net.convolution(4, 5, left=2, right=2).apply("Relu").convolution(4, 3, stride=2, left=1, right=1).apply("Relu")
        if samples > 48:
            net.tensor, net.frames = net.cut(net.frames // 2 - 12, net.frames // 2 - 12), 24
        return net.head("ReduceMean")

    streaming = to_streaming(build(48), hop=4, mode="stream")
    # The last frame of the window reads up to two samples behind it.
    assert streaming.delay == 2
    stream = noise(1, 2, 400)
    answers = StreamingRunner(streaming).run(stream)
    # The long network's middle: frames 38 to 62 of 100, which begin at sample 76 of the stream.
    start = 102
    expected = onnx_answers(build(200), stream[:, :, start : start + 200])
    update = (start + 76 + 48 + streaming.delay) // 4
    np.testing.assert_allclose(answers[update - 1], expected, atol=1e-5)


def test_a_reset_equals_a_fresh_start() -> None:
    streaming = to_streaming(nets.gru_net(), hop=12, mode="stream")
    runner, stream = StreamingRunner(streaming), noise(1, 6, 240)
    first = runner.run(stream)
    assert np.abs(runner.run(stream) - first).max() > 0
    runner.reset()
    np.testing.assert_array_equal(runner.run(stream), first)
    np.testing.assert_array_equal(StreamingRunner(streaming).run(stream), first)


def test_streams_side_by_side_do_not_touch() -> None:
    streaming, streams = to_streaming(nets.tcn(), hop=8), noise(3, 6, 400)
    together = StreamingRunner(streaming, batch=3).run(streams)
    for row in range(3):
        alone = StreamingRunner(streaming).run(streams[row : row + 1])
        np.testing.assert_allclose(together[:, row], alone[:, 0], atol=1e-6)


def test_states_have_the_batch_in_front_and_say_what_they_are() -> None:
    streaming = to_streaming(nets.gru_net(), hop=12, mode="stream")
    inputs = {info.name: info for info in streaming.model.graph.input}
    assert list(inputs) == ["hop", *(state.name for state in streaming.states)]
    outputs = [info.name for info in streaming.model.graph.output]
    assert outputs[1:] == [state.output for state in streaming.states]
    for state in streaming.states:
        dims = inputs[state.name].type.tensor_type.shape.dim
        assert dims[0].dim_param == "batch"
        assert tuple(dim.dim_value for dim in dims[1:]) == state.shape == state.initial.shape


def test_answers_count_from_the_first_whole_window() -> None:
    streaming = to_streaming(nets.valid_student(samples=125), hop=12)
    assert streaming.warm_up == 11
    assert parity(nets.valid_student(samples=125), streaming, noise(6, 132)).windows == 1
    with pytest.raises(ConfigError, match="ends before the first answer counts"):
        parity(nets.valid_student(samples=125), streaming, noise(6, 131))


def test_a_fixed_batch_stays_fixed() -> None:
    model = nets.with_batch(nets.valid_student(), 2)
    streaming = to_streaming(model, hop=12)
    assert streaming.model.graph.input[1].type.tensor_type.shape.dim[0].dim_value == 2
    assert parity(model, streaming, noise(2, 6, 300)).max_abs_diff <= 1e-5


def test_the_same_network_gives_the_same_bytes() -> None:
    first, second = (to_streaming(nets.tcn(causal=True), hop=8).model for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_padding_that_costs_too_much_is_named() -> None:
    net = nets.NetBuilder(3, 64)
    for _ in range(4):
        net.convolution(8, 15, left=7, right=7).apply("Relu")
    with pytest.raises(ConfigError, match=r"more than 50%: Conv 'Conv_\d' .*padding inside the window.*Train with"):
        to_streaming(net.head("pool"), hop=8)


def test_a_hop_that_cuts_through_frames_is_refused_with_the_next_ones() -> None:
    with pytest.raises(ConfigError, match=r"4 samples apart, which do not divide a hop of 10; take hop 8 or 12"):
        to_streaming(nets.valid_student(), hop=10)


def test_a_recurrent_layer_in_window_mode_is_refused_with_the_other_mode() -> None:
    with pytest.raises(ConfigError, match=r"GRU 'recurrent'.*mode='stream' carries its state"):
        to_streaming(nets.gru_net(), hop=12)


@pytest.mark.parametrize("hop", [0, -4, 128, 200])
def test_a_hop_must_lie_inside_the_window(hop: int) -> None:
    with pytest.raises(ConfigError, match=r"hop -?\d+ must be between 1 and 127"):
        to_streaming(nets.valid_student(), hop=hop)


def test_a_short_overlap_is_refused_with_its_share() -> None:
    with pytest.raises(ConfigError, match="the hop alone is 50% of the window"):
        to_streaming(nets.valid_student(), hop=64)
