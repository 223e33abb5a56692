"""LiteRT, and tflite-runtime, the retired package with the same interface that 32-bit and older boards have.

A TFLite file has a fixed batch, nearly always 1. Two interpreters serve it: one as the file says, and one resized to
the batch that was last asked for, where the model allows that and gives the same answers (resizing costs 4 to 22
microseconds and saves up to four fifths of the time; docs/decisions/0004-engine-options.md). The state of LSTM and SVDF
layers is cleared before every call. Streaming models that keep theirs in resource variables get their rows in order,
one by one, and carry state from row to row: no bundle of windows passes its golden vectors with one.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edge_runtime.errors import EngineError, one_line
from edge_runtime.model.engines.base import Array, EngineFactory, EngineOptions, TensorSpec
from edge_runtime.model.engines.quantization import Affine
from edge_runtime.model.engines.tensors import Inputs, batch_of, in_chunks

# Rows on which the resized interpreter must agree with the other one before it is used.
_TRIAL_ROWS = 3


def _load(package: str, model: bytes, options: EngineOptions, provider_options: Mapping[str, Any]) -> LitertEngine:
    """Load a TFLite model from memory.

    Args:
        package: ``ai_edge_litert`` or ``tflite_runtime``.
        model: the file's bytes.
        options: threads and batch size; these libraries do not spin.
        provider_options: delegates: path of a shared library to its options, for example
            ``{"libvx_delegate.so": {"cache_file_path": "..."}}``.

    Raises:
        EngineError: the package is missing or cannot work here, or refuses a delegate or the model; or the delegates
            take no part of it.
    """
    label, module = _library(package)
    try:
        for path in provider_options:
            # Loaded alone first: their own Delegate trips in its destructor over a library that is not there.
            ctypes.CDLL(path)
        delegates = [module.load_delegate(path, dict(value)) for path, value in provider_options.items()]
    except (OSError, ValueError) as error:
        raise EngineError(f"{label} cannot load a delegate: {one_line(error)}") from error
    if delegates:
        label += _taken(module, model, delegates, ", ".join(provider_options))

    def interpreter() -> Any:
        return module.Interpreter(
            model_content=model,
            num_threads=options.threads,
            experimental_delegates=delegates or None,
        )

    try:
        return LitertEngine(interpreter, label, 1 if delegates else options.max_batch)
    except (ValueError, RuntimeError) as error:
        raise EngineError(f"{label} refuses the model: {one_line(error)}") from error


def _taken(module: Any, model: bytes, delegates: list[Any], names: str) -> str:
    """Count the nodes that delegates take of a model: it runs on the CPU without a word if that is nothing.

    XNNPACK, which these libraries hand the rest to by themselves, is left out of this trial, so that every part that
    was taken over is an external delegate's.

    Returns:
        What to add to the engine's name.

    Raises:
        EngineError: nothing, or the library refuses them or the model.
    """
    try:
        trial = module.Interpreter(
            model_content=model,
            experimental_delegates=delegates,
            experimental_op_resolver_type=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        trial.allocate_tensors()
        operators = [detail["op_name"] for detail in trial._get_ops_details()]  # noqa: SLF001 - nothing public says it
    except (ValueError, RuntimeError) as error:
        raise EngineError(f"the interpreter refuses {names} or the model: {one_line(error)}") from error
    if "DELEGATE" not in operators:
        raise EngineError(
            f"{names} takes no operator of this model, so it would run on the CPU; "
            "compile the model for the accelerator, take another variant, or leave the delegate out"
        )
    return f" on {names}"


load_litert: EngineFactory = functools.partial(_load, "ai_edge_litert")
load_tflite_runtime: EngineFactory = functools.partial(_load, "tflite_runtime")


def _library(package: str) -> tuple[str, Any]:
    """Return the name with version, and the interpreter module, of a package."""
    new = package == "ai_edge_litert"
    if not new and int(np.__version__.split(".")[0]) >= 2:
        # Its metadata allows numpy 2, yet the first Interpreter() then ends in "_ARRAY_API not found".
        raise EngineError("tflite-runtime works with numpy 1 only; run: pip install 'numpy<2', or use ai-edge-litert")
    try:
        version = getattr(importlib.import_module(package), "__version__", "of unknown version")
        module = importlib.import_module(f"{package}.interpreter")
    except ImportError as error:
        extra = "tflite" if new else "tflite-runtime"
        raise EngineError(f'cannot import {package} ({error}); run: pip install "edge-runtime[{extra}]"') from error
    return f"{'LiteRT' if new else 'tflite-runtime'} {version}", module


class _Session:
    """One interpreter, allocated for one batch size at a time."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self.inputs: list[dict[str, Any]] = interpreter.get_input_details()
        self._in = [detail["index"] for detail in self.inputs]
        self._out = [detail["index"] for detail in interpreter.get_output_details()]
        self.batch = 0
        """What `resize` set last; 0 is the file's own."""
        interpreter.allocate_tensors()

    def resize(self, batch: int) -> None:
        """Set the first axis of every input.

        Raises:
            ValueError, RuntimeError: the model does not allow it.
        """
        for detail in self.inputs:
            self._interpreter.resize_tensor_input(detail["index"], [batch, *detail["shape"][1:]])
        self._interpreter.allocate_tensors()
        self.batch = batch

    def call(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once, on arrays of the file's own types; the answers are copies."""
        interpreter = self._interpreter
        try:
            # LSTM and SVDF keep their state between calls; a window's answer must not depend on the window before it.
            interpreter.reset_all_variables()
            for index, array in zip(self._in, inputs, strict=True):
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in self._out]
        except (ValueError, RuntimeError) as error:
            raise EngineError(f"the interpreter failed to run the model: {one_line(error)}") from error

    def outputs(self) -> list[dict[str, Any]]:
        """Details of the outputs as they are after the last call: some files misstate a shape until they have run."""
        return list(self._interpreter.get_output_details())


class LitertEngine:
    """A loaded TFLite model; see `edge_runtime.model.engines.base.Engine`.

    1. Inputs and outputs that the file quantises are float32 outside: windows are quantised on the way in, saturating,
       and answers turned back into floats on the way out.
    2. Rows are a batch where all inputs have the same first axis; else, and at the file's own size, it runs as given.
    3. The model runs once at load, so that what fails fails there; a fresh interpreter serves, since the trial may have
       left state in a model that keeps some.
    4. A model of batch 1 is resized to larger ones where its answers stay the same; else rows go in parts of its size.

    Args:
        interpreter: makes a fresh interpreter of the model.
        name: library and version.
        max_batch: rows in one call; 1 gives every row a call of its own.
    """

    def __init__(self, interpreter: Callable[[], Any], name: str, max_batch: int) -> None:
        self.name = name
        self._max_batch = max_batch
        trial = _Session(interpreter())
        self._in_affine = [affine_of(detail) for detail in trial.inputs]
        first = {int(detail["shape"][0]) if len(detail["shape"]) else 0 for detail in trial.inputs}
        self._batched = len(first) == 1 and 0 not in first  # rule 2
        self._size = first.pop() if self._batched else 0
        rows = max(_TRIAL_ROWS, self._size) if self._batched else 0
        tried = samples(trial.inputs, self._in_affine, np.random.default_rng(0), rows)
        answers = trial.call([sample[: self._size] if self._batched else sample for sample in tried])  # rule 3
        outputs = trial.outputs()
        self._out_affine = [affine_of(detail) for detail in outputs]
        by_row = self._batched and all(answer.shape[:1] == (self._size,) for answer in answers)
        self.inputs = tuple(
            _spec(d, a, by_row=self._batched) for d, a in zip(trial.inputs, self._in_affine, strict=True)
        )
        self.outputs = tuple(_spec(d, a, by_row=by_row) for d, a in zip(outputs, self._out_affine, strict=True))
        self._check = Inputs(self.inputs).check
        self._quantized = any(affine is not None for affine in self._in_affine)
        self._convert_out = any(  # rule 1
            affine is not None or answer.dtype in (np.float16, np.float64)
            for answer, affine in zip(answers, self._out_affine, strict=True)
        )
        self._buffers: dict[int, tuple[Array, Array]] = {}
        self._many: _Session | None = None
        if by_row and self._size == 1 and max_batch > 1:  # rule 4
            self._many = _resizable(trial, interpreter, tried)
        self._single: _Session | None = _Session(interpreter())  # rule 3

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        single = self._single
        if single is None:
            raise EngineError("this engine is closed; load the model again")
        inputs = self._check(arrays)
        if self._quantized:  # rule 1
            inputs = [self._quantize(k, array) for k, array in enumerate(inputs)]
        n = len(inputs[0]) if len(inputs) == 1 else batch_of(inputs) if self._batched else 0
        if not self._batched or n == self._size:  # rule 2
            answers = single.call(inputs)
        elif self._many is None:  # rule 4
            answers = in_chunks(single.call, inputs, self._size, exact=True)
        elif n <= self._max_batch:  # rule 4
            answers = self._call_many(inputs)
        else:
            answers = in_chunks(self._call_many, inputs, self._max_batch)
        if not self._convert_out:  # rule 1
            return tuple(answers)
        return tuple(
            _plain(answer) if affine is None else affine.dequantize(answer)
            for answer, affine in zip(answers, self._out_affine, strict=True)
        )

    def _quantize(self, k: int, array: Array) -> Array:
        """Input `k` as its integers, computed in buffers that are kept for the shape last seen."""
        affine = self._in_affine[k]
        if affine is None:
            return array
        work, out = self._buffers.get(k, (array, array))
        if work.shape != array.shape or work is array:
            work, out = np.empty(array.shape, affine.work_dtype), np.empty(array.shape, affine.dtype)
            self._buffers[k] = work, out
        return affine.quantize(array, work, out)

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        self._single = None
        self._many = None
        self._buffers.clear()

    def _call_many(self, inputs: Sequence[Array]) -> list[Array]:
        many, rows = self._many, len(inputs[0])
        assert many is not None
        if many.batch != rows:
            try:
                many.resize(rows)
            except (ValueError, RuntimeError) as error:
                raise EngineError(f"the interpreter cannot take {rows} windows at once: {one_line(error)}") from error
        return many.call(inputs)


def _resizable(trial: _Session, interpreter: Callable[[], Any], tried: list[Array]) -> _Session | None:
    """Build a second interpreter for whole batches, or None if this model must be given its rows one by one.

    A model qualifies when its answers do not depend on the order of the rows (it keeps no state) and when several rows
    at once get the answers that each gets alone (no reshape folds the batch into another axis).

    Args:
        trial: the model at batch 1.
        interpreter: makes a fresh one.
        tried: a few rows per input.
    """
    alone = in_chunks(trial.call, tried, 1)
    backwards = in_chunks(trial.call, [sample[::-1] for sample in tried], 1)
    if not all(_same(a, b[::-1]) for a, b in zip(alone, backwards, strict=True)):
        return None
    try:
        many = _Session(interpreter())
        many.resize(len(tried[0]))
        together = many.call(tried)
    except (ValueError, RuntimeError, EngineError):
        return None  # XNNPACK or a kernel says while preparing that its shape is fixed
    return many if all(_same(a, b) for a, b in zip(alone, together, strict=True)) else None


def _same(a: Array, b: Array) -> bool:
    """Equal up to the rounding that a kernel's other row count may bring (none was seen on 19 real models)."""
    if a.shape != b.shape:
        return False
    return np.allclose(a, b, rtol=0, atol=1e-6, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)


def samples(
    details: list[dict[str, Any]], affines: list[Affine | None], rng: np.random.Generator, rows: int = 0
) -> list[Array]:
    """Make inputs to try a model with, as a file stores them; zeros where a number may be an index.

    Args:
        details: the library's details of a file's inputs.
        affines: their quantisation.
        rng: the same numbers for the same one.
        rows: size of the first axis; 0 for the file's own.
    """
    made: list[Array] = []
    for detail, affine in zip(details, affines, strict=True):
        shape = tuple(int(n) for n in detail["shape"])
        if rows:
            shape = (rows, *shape[1:])
        dtype = np.dtype(detail["dtype"])
        if affine is not None:
            limits = np.iinfo(dtype)
            made.append(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        elif dtype.kind == "f":
            made.append(rng.standard_normal(shape).astype(dtype))
        else:
            made.append(np.zeros(shape, dtype))
    return made


def affine_of(detail: dict[str, Any]) -> Affine | None:
    """Return the quantisation of an input or output; None where the file stores plain numbers."""
    parameters, dtype = detail["quantization_parameters"], np.dtype(detail["dtype"])
    scales = parameters["scales"]
    if dtype.kind not in "iu" or not len(scales):
        return None
    if len(scales) > 1:
        raise ValueError(f"'{detail['name']}' is quantised per channel at the model's edge")
    return Affine(float(scales[0]), int(parameters["zero_points"][0]), dtype)


def _spec(detail: dict[str, Any], affine: Affine | None, *, by_row: bool) -> TensorSpec:
    dtype = np.dtype(detail["dtype"])
    if dtype.kind not in "fiub":
        raise ValueError(f"'{detail['name']}' holds {dtype}, which is not supported")
    shape = tuple(int(n) for n in detail["shape"])
    if by_row:
        shape = (-1, *shape[1:])
    floating = affine is not None or dtype.kind == "f"
    return TensorSpec(detail["name"], np.dtype(np.float32) if floating else dtype, shape)


def _plain(answer: Array) -> Array:
    """Floats of any width as float32, everything else as it is."""
    return answer.astype(np.float32) if answer.dtype.kind == "f" and answer.dtype != np.float32 else answer
