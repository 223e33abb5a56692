"""From a windowed network to a stateful one."""

from __future__ import annotations

import onnx

from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.streaming.aggregate import frames_reduced_first
from edge_export.graph.streaming.emit import GraphWriter, activate_before_squeeze
from edge_export.graph.streaming.model import StreamingModel
from edge_export.graph.streaming.plan import Mode, NodeCost, analyse
from edge_export.graph.streaming.window_graph import WindowGraph
from edge_runtime.errors import ConfigError

MAX_WORK = 0.5
"""Share of a window's arithmetic above which an update is not worth its states."""


_NOTICED = 0.02
"""Share of a window's arithmetic from which on a node is named as one that stands in the way."""


def to_streaming(
    model: onnx.ModelProto, *, hop: int, mode: Mode = "window", max_work: float = MAX_WORK
) -> StreamingModel:
    """Convert a windowed network into one that computes only what a hop of new samples brings.

    Args:
        model: float or quantised (QuantizeLinear/DequantizeLinear) ONNX, one input (batch, channels, samples).
        hop: samples from one window to the next; a multiple of the network's strides.
        mode: ``window``: answers equal the windowed network's on every window. ``stream``: recurrent layers carry
            their state and padding inside the window is gone; see `graph.streaming` for what answers equal then.
        max_work: multiply-accumulates of an update, as a share of the windowed network's, that are still accepted.

    Raises:
        ConfigError: the network cannot be converted, or an update would cost more than `max_work`. The message names
            the nodes that stand in the way and what to train instead.
    """
    plan = analyse(WindowGraph(model), hop=hop, mode=mode)
    if (split := frames_reduced_first(plan)) is not None:
        plan = analyse(WindowGraph(split), hop=hop, mode=mode)
    writer = GraphWriter(plan)
    stateful = writer.write()
    activate_before_squeeze(stateful)
    converted = StreamingModel(
        model=canonicalise(stateful),
        states=tuple(writer.states),
        hop=hop,
        window=plan.graph.samples,
        mode=mode,
        delay=plan.delay,
        warm_up=-(-(plan.graph.samples + plan.delay) // hop),
        costs=plan.costs(),
    )
    if converted.work > max_work:
        raise ConfigError(_too_much(converted, max_work))
    return converted


def _too_much(converted: StreamingModel, max_work: float) -> str:
    total = sum(cost.window for cost in converted.costs)
    costly = [cost for cost in converted.costs if cost.reason and cost.update > _NOTICED * total]
    culprits = sorted(costly, key=lambda cost: cost.update, reverse=True)
    share = converted.hop / converted.window
    text = f"an update of {converted.hop} samples would cost {converted.work:.0%} of a window, more than {max_work:.0%}"
    if not culprits:
        return f"{text}; the hop alone is {share:.0%} of the window, take a shorter one or allow more by max_work"
    named = "; ".join(_culprit(cost, total) for cost in culprits[:3])
    return f"{text}: {named}. Train with convolutions without padding, or with padding on the left and the last step"


def _culprit(cost: NodeCost, total: int) -> str:
    return f"{cost.node} ({cost.update / total:.0%}): {cost.reason}"
