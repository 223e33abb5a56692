"""The second way to TensorFlow Lite: litert-torch and ai-edge-quantizer, compared with ours tensor by tensor.

Both are large (2.2 GB with their compilers) and pin what the rest of the toolchain leaves free, so they live in an
environment of their own, and are run in it as a process::

    python3.11 -m venv litert
    litert/bin/pip install torch==2.13.0
    litert/bin/pip install 'litert-torch==0.10.*' 'ai-edge-quantizer==0.10.*'

ai-edge-quantizer alone is enough for `quantize`. It calibrates by a moving average unless told otherwise, which clips:
13 to 19 dB of signal to noise were measured, 30 to 36 dB with the ranges used here.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edge_runtime.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn  # noqa: TID251 - this is the export toolchain

Array = npt.NDArray[Any]

INSTALL = (
    "python3.11 -m venv litert && litert/bin/pip install torch==2.13.0 "
    "'litert-torch==0.10.*' 'ai-edge-quantizer==0.10.*'"
)
"""How the environment is made."""

_WORKER = Path(__file__).with_name("litert_worker.py")

_PRODUCTS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "TRANSPOSE_CONV"})
"""Operators that both files have one of for each layer of the network, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the libraries live.

    Attributes:
        python: interpreter of an environment made as `INSTALL` says.
        timeout_s: for one conversion, in seconds.
    """

    python: Path
    timeout_s: float = 600

    def run(self, *arguments: str | Path) -> None:
        """Run the worker there.

        Raises:
            ConfigError: the interpreter is missing, lacks a library, or the library refuses the model.
        """
        command = [str(self.python), str(_WORKER), *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout_s, check=False)  # noqa: S603 - the caller's own interpreter
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"cannot run {self.python.name} for LiteRT's own converter: {error}") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            hint = f"; make the environment with: {INSTALL}" if "ModuleNotFoundError" in lines[-1] else ""
            raise ConfigError(f"LiteRT's own converter failed: {lines[-1]}{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far one layer's result lies apart in two files.

    Attributes:
        ours: name of the tensor in the first file.
        theirs: name in the second.
        largest: difference, in real units.
        sqnr_db: power of the first over power of the difference, in decibels; infinite where they are equal.
    """

    ours: str
    theirs: str
    largest: float
    sqnr_db: float


def convert(network: nn.Module, *, channels: int, samples: int, environment: Environment) -> bytes:
    """Convert a torch network by litert-torch.

    Args:
        network: maps (1, channels, samples) to answers; batch normalisation folded, which litert-torch does not do.
        channels: of the input.
        samples: of the input.
        environment: that has litert-torch.

    Returns:
        A float TensorFlow Lite file with a batch of 1.
    """
    import torch  # noqa: PLC0415, TID251 - the other functions do without

    with tempfile.TemporaryDirectory() as folder:
        program, out = Path(folder) / "network.pt2", Path(folder) / "network.tflite"
        torch.export.save(torch.export.export(network.eval(), (torch.zeros(1, channels, samples),)), program)
        environment.run("convert", program, out)
        return out.read_bytes()


def quantize(model: bytes, inputs: Mapping[str, Array], environment: Environment) -> bytes:
    """Quantise a float file by ai-edge-quantizer: int8 weights and activations, ranges over all that was seen.

    Args:
        model: a float TensorFlow Lite file; ours will do.
        inputs: calibration windows (n, ...) by the names in the file's signature.
        environment: that has ai-edge-quantizer.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, data, out = (Path(folder) / name for name in ("float.tflite", "inputs.npz", "int8.tflite"))
        source.write_bytes(model)
        np.savez(data, **dict(inputs))  # type: ignore[arg-type]  # names are keys here
        environment.run("quantize", source, data, out)
        return out.read_bytes()


def compare(ours: bytes, theirs: bytes, window: Array) -> list[Difference]:
    """Compare the results of all layers, from the first to the last.

    Args:
        ours: a TensorFlow Lite file with one input.
        theirs: another file of the same network.
        window: (1, ...) float32, the input of both.

    Raises:
        ConfigError: the files do not have the same layers.
    """
    first, second = _layers(ours, window), _layers(theirs, window)
    sizes = [[array.size for _, array in layers] for layers in (first, second)]
    if sizes[0] != sizes[1]:
        raise ConfigError(f"the files do not hold the same layers: results of {sizes[0]} and of {sizes[1]} numbers")
    return [
        _difference(name, other, array.ravel(), twin.ravel())
        for (name, array), (other, twin) in zip(first, second, strict=True)
    ]


def _difference(ours: str, theirs: str, array: Array, twin: Array) -> Difference:
    noise = float(np.square(array - twin).sum())
    power = float(np.square(array).sum())
    decibels = float("inf") if noise == 0 else float(10 * np.log10(max(power, 1e-30) / noise))
    return Difference(ours=ours, theirs=theirs, largest=float(np.abs(array - twin).max()), sqnr_db=decibels)


def _layers(model: bytes, window: Array) -> list[tuple[str, Array]]:
    """Name and real values of each layer's result."""
    interpreter = Interpreter(
        model_content=model,
        num_threads=1,
        # Only without a delegate does every tensor exist.
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    interpreter.set_tensor(source["index"], _stored(source, window))
    interpreter.invoke()
    names = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
    parsed = schema.ModelT.InitFromPackedBuf(model, 0)
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    found = []
    for operator in parsed.subgraphs[0].operators:
        code = parsed.operatorCodes[operator.opcodeIndex]
        if names[max(code.builtinCode, code.deprecatedBuiltinCode)] in _PRODUCTS:
            detail = details[operator.outputs[0]]
            found.append((str(detail["name"]), _real(detail, interpreter.get_tensor(detail["index"]))))
    return found


def _stored(detail: Mapping[str, Any], window: Array) -> Array:
    scale, zero = detail["quantization"]
    if detail["dtype"] != np.int8:
        return window.astype(np.float32).reshape(detail["shape"])
    integers: Array = np.clip(np.rint(window / scale) + zero, -128, 127).astype(np.int8)
    return integers.reshape(detail["shape"])


def _real(detail: Mapping[str, Any], array: Array) -> Array:
    scale, zero = detail["quantization"]
    return array.astype(np.float64) if array.dtype != np.int8 else (array.astype(np.float64) - zero) * scale
