"""The loop that a competent user writes by hand, which `edge-runtime bench` and the benchmarks compare with.

paho's ``on_message``, a decode, a ring buffer per device, one call of the engine's library for each window, one
`publish` for each result. It does what such a program should: one thread for the model, ``TCP_NODELAY`` set, no copy
without need, and orjson. It leaves out what such programs leave out: gaps, late samples, bad input, durability.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import orjson

from edge_runtime.manifest import Manifest, Variant
from edge_runtime.types import Float32

Call = Callable[[Float32], list[float]]
"""From one window, (n_samples, n_channels), to the scores."""

Decode = Callable[[bytes | bytearray, int], tuple[float, Float32]]
"""From a payload and the number of channels to the first stamp and the samples, (n_samples, n_channels)."""

Dumps = Callable[[Any], bytes | str]


def decode_raw(payload: bytes | bytearray, channels: int) -> tuple[float, Float32]:
    """Eight bytes of time, then little-endian float32."""
    (t,) = struct.unpack_from("<d", payload)
    return t, np.frombuffer(payload, np.float32, offset=8).reshape(-1, channels)


def json_decoder(loads: Callable[[bytes | bytearray], Any]) -> Decode:
    """Make a decoder of ``{"t": seconds, "values": [[...], ...]}``, with the JSON parser given."""

    def decode(payload: bytes | bytearray, _channels: int) -> tuple[float, Float32]:
        message = loads(payload)
        return message["t"], np.array(message["values"], np.float32)

    return decode


def onnx_call(model: bytes, *, channels_first: bool = True) -> Call:
    """Run a window through `InferenceSession.run`."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort  # noqa: PLC0415 - not before telemetry is off

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def call(window: Float32) -> list[float]:
        x = np.ascontiguousarray(window.T) if channels_first else window
        scores: list[float] = session.run(None, {name: x[np.newaxis]})[0][0].tolist()
        return scores

    return call


def tflite_call(model: bytes, interpreter_class: Any, *, channels_first: bool = False) -> Call:
    """Run a window through a TensorFlow Lite interpreter, quantised by hand where the file takes integers."""
    interpreter = interpreter_class(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    in_scale, in_zero = source["quantization"]
    out_scale, out_zero = result["quantization"]

    def call(window: Float32) -> list[float]:
        x = (window.T if channels_first else window)[np.newaxis]
        if in_scale:
            limits = np.iinfo(source["dtype"])
            x = np.clip(np.rint(x / np.float32(in_scale)) + in_zero, limits.min, limits.max).astype(source["dtype"])
        interpreter.set_tensor(source["index"], x)
        interpreter.invoke()
        y = interpreter.get_tensor(result["index"])[0]
        if out_scale:
            y = (y.astype(np.float32) - out_zero) * np.float32(out_scale)
        scores: list[float] = y.tolist()
        return scores

    return call


class Ring:
    """The newest samples of one device."""

    def __init__(self, window: int, hop: int, channels: int, slot: int) -> None:
        self.window, self.hop, self.slot = window, hop, slot
        self.data = np.zeros((8 * window, channels), np.float32)
        self.begin = self.end = 0

    def push(self, values: Float32) -> list[tuple[int, Float32]]:
        """Windows that these samples complete, with the number of their first sample."""
        n = len(values)
        if self.end + n > len(self.data):
            kept = self.data[self.begin : self.end].copy()
            self.data[: len(kept)] = kept
            self.begin, self.end = 0, len(kept)
        self.data[self.end : self.end + n] = values
        self.end += n
        ready = []
        while self.end - self.begin >= self.window:
            ready.append((self.slot, self.data[self.begin : self.begin + self.window]))
            self.begin += self.hop
            self.slot += self.hop
        return ready


class Cutting(NamedTuple):
    """Windows that a program cuts."""

    window: int
    """Samples."""
    hop: int
    """Samples."""
    rate_hz: float
    channels: int
    """Channels of a sample."""


class HandWritten:
    """Messages in, results out.

    Args:
        client: a paho client; its `publish` takes the results.
        call: the model.
        decode: the decoder of a payload.
        dumps: the encoder to JSON.
        labels: labels of the scores, in order.
        cutting: windows that it cuts.
    """

    def __init__(
        self,
        client: Any,
        call: Call,
        *,
        decode: Decode = decode_raw,
        dumps: Dumps = orjson.dumps,
        labels: tuple[str, ...],
        cutting: Cutting,
    ) -> None:
        self.client, self.call, self.decode, self.dumps = client, call, decode, dumps
        self.labels = labels
        self.window, self.hop, self.rate_hz, self.channels = cutting
        self.rings: dict[str, Ring] = {}

    @classmethod
    def for_bundle(cls, client: Any, call: Call, manifest: Manifest) -> HandWritten:
        """Build the loop for a bundle's own windows and labels, raw payloads."""
        contract = manifest.input
        return cls(
            client,
            call,
            labels=manifest.output.labels,
            cutting=Cutting(contract.window, contract.hop, contract.rate_hz, len(contract.channels)),
        )

    def handle(self, topic: str, payload: bytes | bytearray) -> None:
        """Handle one message of ``sensors/KEY/raw``."""
        key = topic.split("/")[1]
        t, values = self.decode(payload, self.channels)
        ring = self.rings.get(key)
        if ring is None:
            ring = self.rings[key] = Ring(self.window, self.hop, self.channels, round(t * self.rate_hz))
        for slot, window in ring.push(values):
            scores = self.call(window)
            best = max(range(len(scores)), key=scores.__getitem__)
            result = {
                "id": f"{key}@{slot}",
                "key": key,
                "start": slot / self.rate_hz,
                "end": (slot + self.window) / self.rate_hz,
                "label": self.labels[best],
                "confidence": scores[best],
                "scores": scores,
            }
            self.client.publish(f"results/{key}", self.dumps(result))


def library_call(variant: Variant, model: bytes, engine: str) -> Call:
    """Load the engine's own library, as a hand-written program uses it.

    Args:
        variant: a bundle's variant.
        model: its file.
        engine: name of the engine that runs it (see `edge_runtime.model.engines`).
    """
    channels_first = variant.layout == "NCW"
    if engine == "onnxruntime":
        return onnx_call(model, channels_first=channels_first)
    from importlib import import_module  # noqa: PLC0415

    package = "ai_edge_litert" if engine == "litert" else "tflite_runtime"
    interpreter = import_module(f"{package}.interpreter").Interpreter
    return tflite_call(model, interpreter, channels_first=channels_first)


def no_delay(_client: Any, _userdata: Any, sock: Any) -> None:
    """Switch Nagle's algorithm off, as paho's ``on_socket_open``: else a result waits 20 to 30 ms."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
