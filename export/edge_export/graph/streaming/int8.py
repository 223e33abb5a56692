"""Int8 networks whose states are integers, calibrated by rolling them along real recordings.

A calibrator that is fed windows does not know what a state holds (microsoft/onnxruntime issue 19601 asks for a way).
Here the float network runs as a stream, its states go from update to update, and what each tensor holds on the way
decides its range. The *windowed* network is then quantised with these ranges, and that one is converted: a state lies
where its QuantizeLinear stood, so it has one scale on both sides, and in mode ``window`` the stateful int8 network
answers what the windowed int8 network answers, to the last bit of its integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper

from edge_export.data.dataset import Float32
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.histogram import Histogram
from edge_export.graph.quantize.ranges import activations, choose
from edge_export.graph.quantize.write import prepare, write
from edge_export.graph.streaming.convert import MAX_WORK, to_streaming
from edge_export.graph.streaming.emit import HOP, GraphWriter
from edge_export.graph.streaming.model import StreamingModel
from edge_export.graph.streaming.plan import Mode, analyse
from edge_export.graph.streaming.runner import session
from edge_export.graph.streaming.window_graph import WindowGraph
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedStreaming:
    """An int8 network in both forms.

    Attributes:
        windowed: takes windows; what the stateful one is compared with.
        streaming: takes hops; its states are integers wherever what they hold is quantised.
    """

    windowed: onnx.ModelProto
    streaming: StreamingModel


def quantize_streaming(
    model: onnx.ModelProto,
    streams: Sequence[Float32],
    *,
    hop: int,
    scheme: Scheme,
    mode: Mode = "window",
    max_work: float = MAX_WORK,
) -> QuantizedStreaming:
    """Quantise a windowed float network by the values it meets along streams, and convert it.

    Args:
        model: float ONNX, one input (batch, channels, samples).
        streams: (channels, samples) recordings of training groups, each longer than a window.
        hop: samples from one window to the next.
        scheme: types and how ranges follow from values; in the form ``qdq``.
        mode: see `edge_export.graph.streaming`.
        max_work: see `to_streaming`.

    Raises:
        ConfigError: no usable stream, a scheme of another form, or a network that cannot be converted.
    """
    if scheme.form != "qdq":
        raise ConfigError(f"scheme form '{scheme.form}' holds no place for states; quantise in the form 'qdq'")
    prepared = prepare(model)
    collected = collect_along(prepared, streams, hop=hop, mode=mode)
    ranges = choose(collected, scheme.calibration, percentile=scheme.percentile, symmetric=scheme.symmetric)
    windowed = write(prepared, ranges, scheme)
    return QuantizedStreaming(
        windowed=windowed, streaming=to_streaming(windowed, hop=hop, mode=mode, max_work=max_work)
    )


def collect_along(
    model: onnx.ModelProto, streams: Sequence[Float32], *, hop: int, mode: Mode = "window"
) -> Mapping[str, Histogram]:
    """Count the values of every tensor that quantisation touches, along streams.

    1. Every stream starts from a reset: recordings do not follow each other.
    2. It counts from its first whole window: before, states hold in part what they started with.

    Args:
        model: windowed float network, as `edge_export.graph.quantize.write.prepare` gives it.
        streams: (channels, samples) each.
        hop: samples from one window to the next.
        mode: see `edge_export.graph.streaming`.

    Returns:
        A histogram by the tensor's name in the windowed network.

    Raises:
        ConfigError: no stream is longer than a window, or one has other channels or is not finite.
    """
    plan = analyse(WindowGraph(model), hop=hop, mode=mode)
    writer = GraphWriter(plan)
    stateful = writer.write()
    watched = {name: writer.made(name) for name in activations(model)}
    tensors = sorted({tensor for made in watched.values() for tensor in made if tensor != HOP})
    known = {info.name for info in stateful.graph.output}
    stateful.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors if name not in known)
    network = session(stateful)
    warm_up = -(-(plan.graph.samples + plan.delay) // hop)
    histograms = {name: Histogram() for name, made in watched.items() if made}
    wanted = [*(state.output for state in writer.states), *tensors]
    counted = 0
    for number, stream in enumerate(streams):
        if stream.ndim != 2 or stream.shape[0] != plan.graph.channels or not np.isfinite(stream).all():
            raise ConfigError(
                f"stream {number} must be ({plan.graph.channels}, samples) of finite numbers, not {stream.shape}"
            )
        rows = plan.graph.batch or 1
        states = {state.name: np.stack([state.initial] * rows) for state in writer.states}  # rule 1
        for update in range(stream.shape[1] // hop):
            samples = np.ascontiguousarray(stream[None, :, update * hop : (update + 1) * hop]).repeat(rows, axis=0)
            found = dict(zip(wanted, network.run(wanted, {HOP: samples, **states}), strict=True)) | {HOP: samples}
            states = {state.name: found[state.output] for state in writer.states}
            if update + 1 < warm_up:  # rule 2
                continue
            counted += 1
            for name, histogram in histograms.items():
                for tensor in watched[name]:
                    histogram.add(found[tensor])
    if not counted:
        raise ConfigError(f"calibration needs a stream of at least {warm_up * hop} samples; none is as long")
    return MappingProxyType(histograms)
