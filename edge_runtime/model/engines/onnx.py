"""ONNX Runtime.

Measured choices (docs/decisions/0004-engine-options.md): one thread without spinning, arena and memory pattern as
they come, buffers bound once for batch 1 on the CPU and plain `run` for anything larger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_runtime.errors import EngineError, one_line
from edge_runtime.model.engines import providers
from edge_runtime.model.engines.base import Array, EngineOptions, TensorSpec
from edge_runtime.model.engines.tensors import Inputs, batch_of, in_chunks

_CPU = providers.CPU

# ONNX element types as the library spells them, to (type in the file, type at our edge). Floats of any width are
# float32 outside.
_TYPES: dict[str, tuple[type[np.generic], type[np.generic]]] = {
    "tensor(float)": (np.float32, np.float32),
    "tensor(float16)": (np.float16, np.float32),
    "tensor(double)": (np.float64, np.float32),
    "tensor(int8)": (np.int8, np.int8),
    "tensor(uint8)": (np.uint8, np.uint8),
    "tensor(int16)": (np.int16, np.int16),
    "tensor(uint16)": (np.uint16, np.uint16),
    "tensor(int32)": (np.int32, np.int32),
    "tensor(uint32)": (np.uint32, np.uint32),
    "tensor(int64)": (np.int64, np.int64),
    "tensor(uint64)": (np.uint64, np.uint64),
    "tensor(bool)": (np.bool_, np.bool_),
}


def load(model: bytes, options: EngineOptions, provider_options: Mapping[str, Any]) -> OnnxEngine:
    """Load an ONNX model from memory.

    Args:
        model: the file's bytes, without external data.
        options: threads, spinning and batch size.
        provider_options: execution providers by name with their options, in order of preference, for example
            ``{"CUDAExecutionProvider": {}}``; the CPU always stands last. `edge_runtime.model.engines.providers` says
            which keys are ours and not the vendor's.

    Raises:
        EngineError: onnxruntime is missing, lacks a provider that was asked for, or refuses the model; or the
            providers do not start, or take no part of it.
    """
    ort = _library()
    wanted = providers.requested(provider_options)
    missing = [p.name for p in wanted if not p.library and p.name not in ort.get_available_providers()]
    if missing:
        raise EngineError(
            f"this onnxruntime has no {', '.join(missing)} (it has {', '.join(ort.get_available_providers())}); "
            "install the build for your accelerator or leave it out",
        )
    session_options = ort.SessionOptions()
    session_options.intra_op_num_threads = options.threads
    session_options.inter_op_num_threads = 1
    session_options.log_severity_level = 4  # fatal only: an error reaches the caller as an exception
    spinning = "1" if options.spinning else "0"
    for key, value in {
        "session.intra_op.allow_spinning": spinning,
        "session.inter_op.allow_spinning": spinning,
        "session.load_model_format": "ONNX",  # never guess another format from the bytes
    }.items():
        session_options.add_session_config_entry(key, value)
    if not wanted:
        return OnnxEngine(_session(ort, model, session_options, [_CPU]), options, f"onnxruntime {ort.__version__}")
    return _accelerated(ort, model, session_options, options, wanted)


def file_tensors(model: bytes) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the inputs and outputs of a file as it stores them, the first axis included; -1 stands for any size.

    Raises:
        EngineError: onnxruntime is missing, or does not take the file.
    """
    ort = _library()
    session = _session(ort, model, ort.SessionOptions(), ["CPUExecutionProvider"])

    def stored(kind: str, value: Any) -> TensorSpec:
        spec, dtype = _spec(kind, value)
        return TensorSpec(spec.name, dtype, spec.shape)

    inputs, outputs = session.get_inputs(), session.get_outputs()
    return tuple(stored("input", one) for one in inputs), tuple(stored("output", one) for one in outputs)


def available_providers() -> list[str]:
    """List the execution providers of the installed onnxruntime; empty where there is none.

    That one is listed does not mean that it starts: its vendor's libraries are looked for when a model is loaded.
    """
    try:
        names: list[str] = _library().get_available_providers()
    except EngineError:
        return []
    return names


def _session(ort: Any, model: bytes, session_options: Any, wanted: list[Any] | None, what: str = "the model") -> Any:
    try:
        # Without its fallback, which prints to standard output and goes on with the CPU.
        session = ort.InferenceSession(model, session_options, providers=wanted, enable_fallback=0)
        session.disable_fallback()
    except Exception as error:
        raise EngineError(f"onnxruntime refuses {what}: {one_line(error)}") from error
    return session


def _accelerated(
    ort: Any, model: bytes, session_options: Any, options: EngineOptions, wanted: list[providers.Provider]
) -> OnnxEngine:
    """Load a model on execution providers, once it is sure that they take some of it."""
    wanted = providers.prepare(ort, model, session_options, wanted, options.max_batch)
    plugged = any(provider.library for provider in wanted)
    named = None if plugged else [*((provider.name, provider.options) for provider in wanted), _CPU]
    asked = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
    with contextlib.ExitStack() as stack:
        profile = None if asked else stack.enter_context(providers.ProfileFolder(session_options))
        names = ", ".join(provider.name for provider in wanted)
        session = _session(ort, model, session_options, named, f"{names} or the model")
        active = session.get_providers()
        lost = [provider.name for provider in wanted if provider.name not in active]
        if lost:
            raise EngineError(f"onnxruntime could not start {', '.join(lost)}; it would have used {', '.join(active)}")
        engine = OnnxEngine(session, options, f"onnxruntime {ort.__version__}", cpu_only=False)
        try:
            engine.placement = providers.placement(session, profile.end(session) if profile is not None else None)
            engine.name += providers.check_placement(engine.placement, wanted)
        except EngineError:
            engine.close()
            raise
    return engine


def _library() -> Any:
    """Import onnxruntime with its telemetry off.

    From 1.29 on its Linux wheels write a device id and a database under the user's cache and open sockets to upload,
    unless this variable is set before the first session (microsoft/onnxruntime pull requests 27379 and 29843). An
    operator who sets it to 0 has asked for it.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime  # noqa: PLC0415 - heavy, and only devices with ONNX variants have it
    except ImportError as error:
        raise EngineError(f'cannot import onnxruntime ({error}); run: pip install "edge-runtime[onnx]"') from error
    return onnxruntime


class OnnxEngine:
    """A loaded ONNX model; see `edge_runtime.model.engines.base.Engine`.

    How a batch reaches the model follows from the file:

    1. A free first axis on every input takes any batch, up to `max_batch` at a time.
    2. The same fixed first axis on every input is filled up to its size.
    3. Inputs that do not agree on one (a state tensor, a scalar) are run as given; the caller answers for the batch.
    4. It runs once at load where all other axes are fixed; buffers are bound for batch 1 alone.

    Args:
        session: onnxruntime's session.
        options: batch size.
        name: library and version.
        cpu_only: buffers in the processor's memory may be bound.
    """

    def __init__(self, session: Any, options: EngineOptions, name: str, *, cpu_only: bool = True) -> None:
        self.name = name
        self.placement: providers.Placement | None = None
        """Where the nodes run; None on the CPU alone, and where onnxruntime cannot say."""
        self._session: Any = session
        self._in = [_spec("input", value) for value in session.get_inputs()]
        self._out = [_spec("output", value) for value in session.get_outputs()]
        self._in_names = [spec.name for spec, _ in self._in]
        self._out_names = [spec.name for spec, _ in self._out]
        self._casts = [stored if stored != spec.dtype else None for spec, stored in self._in]
        self._narrow = any(stored != spec.dtype for spec, stored in (*self._in, *self._out))
        first = {spec.shape[0] if spec.shape else None for spec, _ in self._in}
        fixed = first.pop() if len(first) == 1 else None
        self._exact = fixed is not None and fixed > 0  # rule 2
        self._size = fixed if fixed is not None and fixed > 0 else options.max_batch  # rules 1 and 2
        self._batched = fixed is not None  # rule 3
        self.inputs = tuple(self._public(spec) for spec, _ in self._in)
        self.outputs = tuple(self._public(spec) for spec, _ in self._out)
        self._check = Inputs(self.inputs).check
        self._bound_in: list[Array] = []
        self._bound_out: list[Array] = []
        self._binding: Any = None
        if self._batched and all(n > 0 for spec, _ in self._in for n in spec.shape[1:]):  # rule 4
            self._warm_up(bind=cpu_only and (not self._exact or self._size == 1))  # rule 4

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        if self._session is None:
            raise EngineError("this engine is closed; load the model again")
        inputs = self._check(arrays)
        if not self._batched:
            return tuple(self._call(inputs))
        n = len(inputs[0]) if len(inputs) == 1 else batch_of(inputs)
        if n == 1 and self._binding is not None:
            return tuple(self._call_bound(inputs))
        if n == self._size or (n < self._size and not self._exact):
            return tuple(self._call(inputs))
        call = self._call if self._size > 1 or self._binding is None else self._call_bound
        return tuple(in_chunks(call, inputs, self._size, exact=self._exact))

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        self._binding = None
        self._session = None

    def _call(self, inputs: Sequence[Array]) -> list[Array]:
        if self._narrow:
            inputs = [_narrowed(array, cast) for array, cast in zip(inputs, self._casts, strict=True)]
        feed = dict(zip(self._in_names, map(np.ascontiguousarray, inputs), strict=True))
        try:
            answers: list[Array] = self._session.run(self._out_names, feed)
        except Exception as error:
            raise EngineError(f"onnxruntime failed to run the model: {one_line(error)}") from error
        if self._narrow:
            return [answer.astype(spec.dtype, copy=False) for answer, (spec, _) in zip(answers, self._out, strict=True)]
        return answers

    def _call_bound(self, inputs: Sequence[Array]) -> list[Array]:
        """Batch 1 through the buffers that were bound at load: no allocation, no name look-up."""
        for buffer, array in zip(self._bound_in, inputs, strict=True):
            np.copyto(buffer, array)
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise EngineError(f"onnxruntime failed to run the model: {one_line(error)}") from error
        return self._bound_out

    def _warm_up(self, *, bind: bool) -> None:
        """Run zeros once, so that what fails fails at load; then bind the buffers of batch 1 where that is possible."""
        rows = self._size if self._exact else 1
        zeros = [np.zeros((rows, *spec.shape[1:]), spec.dtype) for spec, _ in self._in]
        answers = self._call(zeros)
        if not bind or self._narrow:
            return
        for answer, (spec, _) in zip(answers, self._out, strict=True):
            if answer.shape[:1] != (1,) or any(n < 0 for n in spec.shape[1:]):
                return
        self._bound_in, self._bound_out = zeros, [np.empty_like(answer, order="C") for answer in answers]
        self._binding = self._session.io_binding()
        for name, buffer in zip(self._in_names, self._bound_in, strict=True):
            self._binding.bind_input(name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
        for name, buffer in zip(self._out_names, self._bound_out, strict=True):
            self._binding.bind_output(name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)

    def _public(self, spec: TensorSpec) -> TensorSpec:
        """Free the first axis of a spec for callers: a fixed batch is the engine's business."""
        if self._exact and spec.shape and spec.shape[0] == self._size:
            return TensorSpec(spec.name, spec.dtype, (-1, *spec.shape[1:]))
        return spec


def _spec(kind: str, value: Any) -> tuple[TensorSpec, np.dtype[Any]]:
    """Our spec of a model's input or output, and the type the file stores."""
    if value.type not in _TYPES:
        raise EngineError(
            f"{kind} '{value.name}' is a {value.type}, which is not supported; export plain tensors "
            "(skl2onnx: options={'zipmap': False})"
        )
    stored, outside = _TYPES[value.type]
    shape = tuple(n if isinstance(n, int) and n >= 0 else -1 for n in value.shape)
    return TensorSpec(value.name, np.dtype(outside), shape), np.dtype(stored)


def _narrowed(array: Array, cast: np.dtype[Any] | None) -> Array:
    """Our float32 in the width the file stores; what half precision cannot hold saturates."""
    if cast is None:
        return array
    if cast == np.float16:
        limit = np.finfo(np.float16).max
        array = np.clip(array, -limit, limit)
    return array.astype(cast)
