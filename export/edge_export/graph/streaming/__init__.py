"""Streaming conversion: a trained windowed network becomes a stateful graph that computes only what a hop brings.

A windowed network sees a window of samples and answers; the next window shares most of its samples with this one, and
everything the network computed of them. `to_streaming` keeps those results as states, explicit inputs and outputs of
the graph, and leaves the arithmetic of the new samples. It is the key-value cache of sensor models.

**The rule.** Between two windows ``hop`` samples apart, a tensor with a time axis moves by ``hop / stride`` frames and
is otherwise the same, *except* for frames that see the zeros which a padded layer puts around the window. A frame of
the stream has no zeros beside it, so a padded frame of one window is not a frame of the next. The conversion therefore
knows of every tensor which frames depend on samples alone. Those are computed once, when they are new, and kept as
long as anything reads them; frames at an edge are computed again in every update. Operators that look at the window
as a whole (the mean over time, the dense head, attention, anything unknown) are computed again from kept frames. So

- answers equal the windowed network's **on every window**, up to the rounding of a sum in another order, whatever the
  network is made of: an operator this package does not know costs time, never exactness;
- what it costs is counted (`StreamingModel.costs`), and a network whose update would cost more than ``max_work`` of a
  window is refused, by a message that names the nodes and the padding which stand in the way.

**What to train.**

=============================================  ====================================================================
network                                        in an update
=============================================  ====================================================================
convolutions and pools without padding         the hop alone; a shortcut around one is cropped (on its left for
                                               ``x[:, :, 2 * reach:]``), any head
padding on the left (causal) and a head that   the hop alone, as long as the receptive field fits into the window
reads the last step
padding on the left and a head that reads      the hop, and in each layer as many frames as the receptive field so
the whole window (mean, max, flatten)          far reaches beyond the window's start
padding on both sides ("same")                 the same at both ends
strides                                        the hop must be a multiple of the total stride
recurrent layers                               everything behind the first one, in mode ``window``
squeeze-and-excitation, normalisation over     everything behind it
time, attention
=============================================  ====================================================================

So a student meant for streams has convolutions without padding, or causal ones with a last-step head and a receptive
field within the window; has time in front of frequency in two-dimensional parts, where kept frames lie side by side in
memory; and is large enough: an update costs its call, states and nodes whatever the arithmetic, so that a window which
takes less than some 100 microseconds gains little (``python -m benchmarks streaming``).

**Recurrent layers, and mode** ``stream``. A windowed GRU starts from zero at the start of each window, so each step of
each window is new. In mode ``stream`` its state is carried instead, and padding inside the window is gone: what was a
zero beside the window is the sample that stands there. The answer then equals that of *the same network evaluated on
the whole stream since the reset as its one window*, with every frame before the first sample zero at each layer (for
causal convolutions that is the network itself); a head that reads the window reads the latest frames, as many as the
window has. It does not equal the windowed network's answer: how far it differs is a property of what was trained, and
`parity` measures it. Padding on the right looks ahead, so answers come `StreamingModel.delay` samples late.

**Integers.** A quantised windowed network (QuantizeLinear/DequantizeLinear) converts like a float one. States are then
kept as the integers between layers, one scale in and out, and the answers are those of the windowed int8 network.
`quantize_streaming` finds the ranges by rolling the states along recordings.
"""

from edge_export.graph.streaming.convert import to_streaming
from edge_export.graph.streaming.int8 import QuantizedStreaming, collect_along, quantize_streaming
from edge_export.graph.streaming.model import StreamingModel, StreamState
from edge_export.graph.streaming.plan import Mode, NodeCost
from edge_export.graph.streaming.runner import Parity, StreamingRunner, parity

__all__ = [
    "Mode",
    "NodeCost",
    "Parity",
    "QuantizedStreaming",
    "StreamState",
    "StreamingModel",
    "StreamingRunner",
    "collect_along",
    "parity",
    "quantize_streaming",
    "to_streaming",
]
