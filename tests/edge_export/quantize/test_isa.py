"""Saturating pair sums: the simulation says what this machine's engine does, and which weights are safe anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.onnx_graph.graph import answers
from edge_export.onnx_graph.passes.canonicalise import clean
from edge_export.quantize import Scheme
from edge_export.quantize.isa import Arithmetic, arithmetic, detect, pair_sums, saturation
from edge_export.quantize.ranges import calibrate
from edge_export.quantize.write import prepare, write
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, windows

ZEN3 = "flags\t\t: fpu sse4_1 avx avx2 fma\n"
CPUS = [
    ("x86_64", "avx avx2 avx512f avx512bw avx512_vnni", Arithmetic.X86_VNNI),
    ("x86_64", "avx avx2 avx_vnni", Arithmetic.X86_VNNI),
    ("x86_64", "avx avx2 avx512f avx512bw", Arithmetic.X86_AVX512),
    ("x86_64", "avx avx2", Arithmetic.X86_AVX2),
    ("x86_64", "sse4_1", Arithmetic.X86_OLD),
    ("aarch64", "fp asimd evtstrm aes", Arithmetic.ARM_V8_0),
    ("aarch64", "fp asimd asimddp", Arithmetic.ARM_DOTPROD),
    ("aarch64", "fp asimd asimddp i8mm", Arithmetic.ARM_I8MM),
    ("armv7l", "half thumb neon vfpv4", Arithmetic.ARM_V8_0),
    ("riscv64", "", Arithmetic.OTHER),
]


@pytest.mark.parametrize(("machine", "flags", "expected"), CPUS)
def test_the_integer_path_follows_from_the_kernel_s_words(machine: str, flags: str, expected: Arithmetic) -> None:
    assert arithmetic(flags.split(), machine) is expected
    assert expected.weight_bits == (7 if expected.saturates else 8)


def test_cores_that_differ_count_by_the_weakest(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nFeatures : fp asimd asimddp\n\nprocessor : 1\nFeatures : fp asimd\n")
    assert detect(file, "aarch64") is Arithmetic.ARM_V8_0
    file.write_text(ZEN3)
    assert detect(file, "x86_64") is Arithmetic.X86_AVX2
    with pytest.raises(ConfigError, match="cannot read the processor's features"):
        detect(tmp_path / "missing")


@given(
    rows=arrays(np.int32, (3, 7), elements=st.integers(0, 255)),
    columns=arrays(np.int32, (2, 7), elements=st.integers(-64, 64)),
)
@settings(derandomize=True, deadline=None)
def test_seven_bits_never_saturate(rows: np.ndarray, columns: np.ndarray) -> None:
    np.testing.assert_array_equal(pair_sums(rows, columns), rows @ columns.T)


def test_pairs_of_eight_bits_saturate_by_the_book() -> None:
    rows, columns = (
        np.array([[255, 255, 255, 255]], np.int32),
        np.array([[127, 127, -128, -128], [127, -127, 1, 1]], np.int32),
    )
    assert pair_sums(rows, columns).tolist() == [[32767 - 32768, 510]]


def loud_net(kernel: int, *, dense: bool = False) -> onnx.ModelProto:
    """Large values and large weights of one sign, so that pairs overflow."""
    b = GraphBuilder(6, 24)
    random = np.random.default_rng(3)
    weights = np.abs(random.standard_normal((8, 6, kernel))).astype(np.float32)
    t = b.node("Relu", b.node("Conv", "window", b.constant(weights), b.weights(8)))
    if dense:
        t = b.node("Flatten", b.node("GlobalAveragePool", t))
        heavy = np.abs(random.standard_normal((5, 8))).astype(np.float32) + 1
        t = b.node("Gemm", t, b.constant(heavy), b.weights(5), transB=1)
    return prepare(b.model(t))


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_the_count_is_what_this_machine_s_engine_gets_wrong(activations: str, kernel: int) -> None:
    """Where a processor saturates, onnxruntime's answers are off by what the simulation says; elsewhere by nothing."""
    model, x = loud_net(kernel), np.abs(windows(32, 6, 24)) + 3
    scheme = Scheme(activations=activations, weight_bits=8)  # type: ignore[arg-type]
    written = write(model, calibrate(model, x), scheme)
    (found,) = saturation(written, x)
    exact, real = answers(written, x), onnx_answers(written, x)
    step = np.diff(np.unique(exact)).min()
    assert found.sums == exact.size
    assert found.saturated > 0.01 * found.sums
    wrong = int((np.abs(exact - real) > 1.5 * step).sum())
    if detect().saturates:
        # A pair that is off by less than a step is counted, and not seen.
        assert 0.5 * found.saturated <= wrong <= found.saturated
        assert np.abs(exact - real).max() / step <= found.largest_error + 1.5
    else:
        assert wrong == 0


def test_dense_layers_are_looked_at_and_depthwise_ones_are_not() -> None:
    x = np.abs(windows(16, 6, 24)) + 3
    model = loud_net(3, dense=True)
    written = write(model, calibrate(model, x), Scheme(activations="uint8", weight_bits=8))
    assert [found.layer[:4] for found in saturation(written, x)] == ["Conv", "Gemm"]
    depthwise = prepare(clean(device_net()))
    x = windows(16, 3, 40)
    written = write(depthwise, calibrate(depthwise, x), Scheme(activations="uint8", weight_bits=8))
    assert [found.layer for found in saturation(written, x)] == ["Conv_1", "Conv_5", "Gemm_9"]


def test_seven_bit_weights_are_safe_in_every_layer() -> None:
    model, x = loud_net(3, dense=True), np.abs(windows(16, 6, 24)) + 3
    written = write(model, calibrate(model, x), Scheme(activations="uint8", weight_bits=7))
    assert all(found.saturated == 0 and found.largest_error == 0 for found in saturation(written, x))
