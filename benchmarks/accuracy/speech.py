"""One ONNX file of Google's speech embedding, from the two files that openWakeWord has it in.

    python -m benchmarks.accuracy.speech FOLDER --rate 8000 --samples 8000 -o speech.onnx

FOLDER holds ``melspectrogram.onnx`` and ``embedding_model.onnx``; the recipe's teacher then is
``{ type = "embedding", file = "speech.onnx" }``. What `benchmarks.accuracy.peers.SpeechEmbedding` does to a window
between the files is in the graph:

1. The window is resampled to 16 kHz, and scaled to integers of 16 bits.
2. The spectrogram's floor lies 80 dB below its greatest value: that of each window, not of all windows of a batch.
3. Its rows are scaled, and cut into pieces of 76 frames, 8 frames apart; a shorter window repeats its first frame.

Source of the embedding: Lin et al. 2020 (arXiv:2002.01322).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.edge import Edge, read_through
from edge_export.graph.onnx_graph.model import from_proto, to_proto
from edge_export.graph.onnx_graph.passes.canonicalise import Canonicalise, without_traces
from onnx import compose

from edge_runtime.errors import ConfigError

MEL_FILE, NET_FILE = "melspectrogram.onnx", "embedding_model.onnx"
RATE_HZ = 16000
FULL_SCALE = 32767.0
FRAME, FRAME_HOP, BANDS = 512, 160, 32
"""Samples of a spectrogram's frame, samples between frames, and values of each."""
PIECE, PIECE_HOP = 76, 8
"""Frames of one embedding, and frames between embeddings."""
WIDTH = 96
"""Values of one embedding."""


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.speech", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=f"with {MEL_FILE} and {NET_FILE}")
    parser.add_argument("--rate", type=int, default=RATE_HZ, metavar="HZ", help=f"of the windows; default {RATE_HZ}")
    parser.add_argument("--samples", type=int, required=True, help="in a window")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    given = parser.parse_args()
    try:
        model = join(given.folder, rate_hz=given.rate, samples=given.samples)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    given.out.write_bytes(model.SerializeToString(deterministic=True))
    return 0


def join(folder: Path, *, rate_hz: int, samples: int) -> onnx.ModelProto:
    """Join the two files.

    Args:
        folder: where they are.
        rate_hz: of the windows.
        samples: in a window.

    Returns:
        A model from ``window``, (batch, 1, samples) between -1 and 1, to ``features``, (batch, pieces, 96).

    Raises:
        ConfigError: a file is missing or another one, or the window is shorter than a frame of 32 ms.
    """
    mel, net = _read(folder / MEL_FILE, "mel_"), _read(folder / NET_FILE, "net_")
    frames = (math.ceil(samples * RATE_HZ / rate_hz) - FRAME) // FRAME_HOP + 1
    if frames < 1:
        raise ConfigError(f"{samples} samples at {rate_hz} Hz are shorter than a frame of {FRAME / RATE_HZ:g} s")
    between = [(mel.graph.output[0].name, net.graph.input[0].name)]
    whole = from_proto(without_traces(compose.merge_models(mel, net, io_map=between)))
    graph = whole.graph
    window = ir.Value(name="window", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", 1, samples]))
    read_through(graph, window, _sound(Edge(graph, "sound", graph[0]), window, rate_hz, samples))
    _floor_by_window(graph)
    pieces = _cut(graph, between[0][0], frames)
    end = Edge(graph, "end")
    features = end.node("Reshape", graph.outputs[0], end.constant([-1, pieces, WIDTH], np.int64))
    features.name, features.type = "features", window.type
    features.shape = ir.Shape(["batch", pieces, WIDTH])
    graph.outputs[:] = [features]
    return to_proto(Canonicalise()(whole).model)


def _read(path: Path, prefix: str) -> onnx.ModelProto:
    try:
        return compose.add_prefix(onnx.load(str(path)), prefix)
    except FileNotFoundError as error:
        raise ConfigError(f"{path.name} is missing; FOLDER needs {MEL_FILE} and {NET_FILE} of openWakeWord") from error


def _sound(front: Edge, window: ir.Value, rate_hz: int, samples: int) -> ir.Value:
    """(batch, 1, samples) at the window's rate to (batch, samples) at 16 kHz, scaled (rule 1)."""
    scale = front.constant(FULL_SCALE, np.float32)
    if rate_hz == RATE_HZ:
        return front.node("Mul", front.node("Squeeze", window, front.constant([1], np.int64)), scale)
    filters, left, down = resampling(rate_hz, RATE_HZ)
    count, up = math.ceil(samples * RATE_HZ / rate_hz), len(filters)
    right = (math.ceil(count / up) - 1) * down + filters.shape[1] - samples - left
    found = front.node(
        "Conv", window, front.constant(filters[:, None], np.float32), strides=[down], pads=[left, max(0, right)]
    )
    in_turns = front.node("Transpose", found, perm=[0, 2, 1])
    flat = front.node("Reshape", in_turns, front.constant([0, -1], np.int64))
    ends = (front.constant([each], np.int64) for each in (0, count, 1))
    return front.node("Mul", front.node("Slice", flat, *ends), scale)


def resampling(rate_hz: int, wanted_hz: int) -> tuple[Float32, int, int]:
    """Design the filters that change a rate, as `scipy.signal.resample_poly` does by default.

    Output sample ``m * up + phase`` is the product of a filter with input samples from ``m * down - left`` on.

    Args:
        rate_hz: of the input.
        wanted_hz: of the output.

    Returns:
        (up, taps) a filter for each phase, ``left``, and ``down``.
    """
    up, down = (rate // math.gcd(rate_hz, wanted_hz) for rate in (wanted_hz, rate_hz))
    half = 10 * max(up, down)
    whole = np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    whole *= up / whole.sum()
    left = half // up
    offsets = np.arange(-left, ((up - 1) * down + half) // up + 1)
    place = np.arange(up)[:, None] * down - offsets * up + half
    known = (place >= 0) & (place <= 2 * half)
    return np.where(known, whole[np.clip(place, 0, 2 * half)], 0.0).astype(np.float32), left, down


def _floor_by_window(graph: ir.Graph) -> None:
    """Take the greatest value of each window, where the file takes that of the whole batch (rule 2)."""
    greatest = next((node for node in graph if node.op_type == "ReduceMax"), None)
    clip = next((node for node in reversed(graph) if node.op_type == "Clip"), None)
    if greatest is None or clip is None or clip.inputs[1] is None:
        raise ConfigError(f"{MEL_FILE} is not openWakeWord's: it has no floor below its greatest value")
    greatest.attributes.add(ir.AttrInt64s("axes", [1, 2, 3]))
    greatest.attributes.add(ir.AttrInt64("keepdims", 1))
    clip.op_type = "Max"
    clip.resize_inputs(2)


def _cut(graph: ir.Graph, rows: str, frames: int) -> int:
    """Scale the spectrogram's rows, and cut them into pieces (rule 3); returns their number."""
    spectrogram = next(value for node in graph for value in node.outputs if value.name == rows)
    (first,) = (use.node for use in spectrogram.uses())
    edge = Edge(graph, "cut", first)
    starts = np.arange(0, max(1, frames - PIECE + 1), PIECE_HOP)
    places = np.maximum(starts[:, None] + np.arange(PIECE) - max(0, PIECE - frames), 0)
    tenth = edge.node("Div", spectrogram, edge.constant(10.0, np.float32))
    scaled = edge.node("Add", tenth, edge.constant(2.0, np.float32))
    pieces = edge.node("Gather", scaled, edge.constant(places, np.int64), axis=2)
    flat = edge.node("Reshape", pieces, edge.constant([-1, PIECE, BANDS, 1], np.int64))
    first.replace_input_with(0, flat)
    return len(starts)


if __name__ == "__main__":
    sys.exit(main())
