"""What a processor's integer instructions do to a quantised layer.

x86 without VNNI multiplies uint8 by int8 with ``vpmaddubsw``: two neighbouring products are added in 16 bits, and the
sum saturates without a word. 255 x 127 x 2 = 64770 does not fit into 32767; 255 x 64 x 2 = 32640 does. onnxruntime
takes that path for its matrix products and dense convolutions, also for int8 activations, which it shifts to uint8
first. Its depthwise kernels and XNNPACK's (TensorFlow Lite) widen to 16 bits before they multiply, and Arm's widen or
use dot products into 32 bits: those are exact.

So a search can ask before it ships 8-bit weights to a target that cannot add them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from edge_export.data.dataset import Float32
from edge_export.onnx_graph.graph import Array, Net, observe
from edge_export.quantize.layers import Layer, layer_of
from edge_runtime.errors import ConfigError

_INT16 = np.iinfo(np.int16)


class Arithmetic(Enum):
    """The widest integer path of a processor, by what it means for 8-bit products."""

    X86_VNNI = "x86 with VNNI"
    X86_AVX512 = "x86 with AVX-512, without VNNI"
    X86_AVX2 = "x86 with AVX2, without VNNI"
    X86_OLD = "x86 without AVX2"
    ARM_I8MM = "Arm with int8 matrix products"
    ARM_DOTPROD = "Arm with dot products"
    ARM_V8_0 = "Armv8.0 or older, without dot products"
    OTHER = "another processor"

    @property
    def saturates(self) -> bool:
        """Whether uint8 x int8 products are added in saturating pairs; 8-bit weights are then not safe.

        Armv8.0 adds pairs in 16 bits, too, but of int8 x int8: twice 127 x 128 fits.
        """
        return self in {Arithmetic.X86_AVX512, Arithmetic.X86_AVX2, Arithmetic.X86_OLD}

    @property
    def weight_bits(self) -> int:
        """Most bits of weights that are exact here."""
        return 7 if self.saturates else 8


def arithmetic(flags: Iterable[str], machine: str) -> Arithmetic:
    """Tell the integer path from what the kernel says of a processor.

    Args:
        flags: words of the ``flags`` line (x86) or the ``Features`` line (Arm) of ``/proc/cpuinfo``.
        machine: as ``uname -m`` gives it.
    """
    words = frozenset(flags)
    if machine in {"x86_64", "AMD64", "i686", "i386"}:
        if words & {"avx_vnni", "avx512_vnni", "avx512vnni"}:
            return Arithmetic.X86_VNNI
        if "avx512bw" in words:
            return Arithmetic.X86_AVX512
        return Arithmetic.X86_AVX2 if "avx2" in words else Arithmetic.X86_OLD
    if machine in {"aarch64", "arm64"} or machine.startswith("armv"):
        if "i8mm" in words:
            return Arithmetic.ARM_I8MM
        return Arithmetic.ARM_DOTPROD if "asimddp" in words else Arithmetic.ARM_V8_0
    return Arithmetic.OTHER


def detect(cpuinfo: Path = Path("/proc/cpuinfo"), machine: str | None = None) -> Arithmetic:
    """The integer path of this machine.

    Args:
        cpuinfo: where the kernel lists the processors' features.
        machine: of another machine whose file it is; default: this one.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read the processor's features from {cpuinfo}: {error.strerror}") from error
    of_each = [
        frozenset(line.partition(":")[2].split())
        for line in lines
        if line.partition(":")[0].strip() in {"flags", "Features"}
    ]
    # Cores may differ (big.LITTLE); a thread may land on any of them.
    common = frozenset.intersection(*of_each) if of_each else frozenset[str]()
    return arithmetic(common, machine or platform.machine())


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """What saturating pairs would do to one layer on some windows.

    Attributes:
        layer: name of its node.
        sums: number of answers, each a sum of products, that were looked at.
        saturated: how many of them have at least one pair beyond 16 bits.
        largest_error: of an answer, in steps of the output (before clipping to 0..255).
    """

    layer: str
    sums: int
    saturated: int
    largest_error: float


def saturation(model: onnx.ModelProto, windows: Float32) -> tuple[Saturation, ...]:
    """Count the answers that saturating pair sums would change, layer by layer.

    Depthwise and other grouped convolutions are not among the layers: their kernels widen first. Each layer is fed
    what exact arithmetic gives, so that one layer's fault does not count again in the next.

    Args:
        model: quantised, with QuantizeLinear/DequantizeLinear pairs and int8 weights.
        windows: (n, ...) inputs; a few dozen are enough.

    Returns:
        One entry per dense convolution, Gemm and product with constant weights, in graph order.
    """
    net = Net(model)
    found = list(_integer_layers(net))
    counts = {layer.name: [0, 0, 0.0] for layer, *_ in found}
    for values in observe(model, [source for _, source, *_ in found], windows, batch=16) if found else ():
        for layer, source, weights, zero, factor in found:
            total, saturated, worst = counts[layer.name]
            x = values[source].astype(np.int32)
            offset = 0
            if values[source].dtype == np.int8:
                offset = 128  # onnxruntime shifts to uint8 for this instruction
            kernel = tuple(weights.shape[2:]) if layer.operator == "Conv" else ()
            rows = _channels_last(layer.columns(x + offset, kernel, fill=zero + offset)[0], kernel)
            columns = _channels_last(layer.matrix(weights.astype(np.int32))[0], kernel)
            exact = rows @ columns.T
            real = pair_sums(rows, columns)
            wrong = np.abs(real - exact)
            counts[layer.name] = [
                total + exact.size,
                saturated + int((wrong > 0).sum()),
                max(worst, float((wrong * factor).max(initial=0.0))),
            ]
    return tuple(
        Saturation(layer=name, sums=int(total), saturated=int(saturated), largest_error=float(worst))
        for name, (total, saturated, worst) in counts.items()
    )


def pair_sums(rows: npt.NDArray[np.int32], columns: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Multiply as ``vpmaddubsw`` does: neighbouring products are added in 16 bits, saturating, and those in 32 bits.

    Args:
        rows: (positions, inputs) of 0..255.
        columns: (outputs, inputs) of -128..127.

    Returns:
        (positions, outputs).
    """
    if rows.shape[1] % 2:
        rows, columns = (np.pad(array, ((0, 0), (0, 1))) for array in (rows, columns))
    result = np.empty((len(rows), len(columns)), np.int32)
    for output, weights in enumerate(columns):
        pairs = (rows * weights).reshape(len(rows), -1, 2).sum(axis=2)
        result[:, output] = np.clip(pairs, _INT16.min, _INT16.max).sum(axis=1)
    return result


def _integer_layers(net: Net) -> Iterator[tuple[Layer, str, Array, int, Array]]:
    """(layer, quantised tensor it reads, stored weights, zero point of the input, output steps per unit of the sum)."""
    for node in net.graph.node:
        if node.op_type not in {"Conv", "Gemm", "MatMul"}:
            continue
        before, inside = (net.producers.get(name) for name in node.input[:2])
        if before is None or inside is None or {before.op_type, inside.op_type} != {"DequantizeLinear"}:
            continue
        if not net.is_constant(inside.input[0]) or (stored := net.constant(inside.input[0])).dtype != np.int8:
            continue
        layer = layer_of(node, None, stored.ndim)
        if layer is None or layer.groups > 1:
            continue
        step = net.constant(before.input[1]) * net.constant(inside.input[1])
        after = net.sole_reader(layer.result)
        if after is not None and after.op_type == "QuantizeLinear":
            step = step / net.constant(after.input[1])
        zero = int(net.constant(before.input[2])) if len(before.input) > 2 else 0
        yield layer, before.input[0], stored, zero, np.atleast_1d(step)


def _channels_last(array: Array, kernel: tuple[int, ...]) -> Array:
    """Inputs in the order of the kernels: place by place, and within it channel by channel."""
    if not kernel:
        return array
    places = int(np.prod(kernel))
    return array.reshape(len(array), -1, places).swapaxes(1, 2).reshape(len(array), -1)
