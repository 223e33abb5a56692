"""Whole networks, exported from torch, through the TensorFlow Lite writer: floats, and int8 after calibration."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="networks are built with torch, which the plain test environment lacks")

from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise  # noqa: E402
from edge_export.graph.quantize import Scheme, quantize  # noqa: E402
from edge_export.graph.tflite.convert import convert  # noqa: E402
from edge_export.learn.networks import Calibrated  # noqa: E402
from torch import nn  # noqa: E402, TID251

from tests.edge_export.graph.tflite.compare import is_open, on_onnx, on_tflite, operators  # noqa: E402
from tests.edge_export.graphs import windows  # noqa: E402
from tests.edge_export.learn.networks.pair import ContextNet, DeviceNet  # noqa: E402

CLASSES = 4


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(5)


class Tcn(nn.Module):  # type: ignore[misc]
    """Dilated causal convolutions with residuals; the last step is classified (Bai et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(channels, 16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=2**i) for i in range(4))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for i, layer in enumerate(self.layers):
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * 2**i, 0))))
        return torch.softmax(self.head(x[:, :, -1]), dim=1)


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int, kind: type, *, both: bool = False) -> None:
        super().__init__()
        self.body = kind(channels, 24, num_layers=2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(48 if both else 24, CLASSES)

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.head(self.body(x.transpose(1, 2))[0][:, -1]), dim=1)


class Transformer(nn.Module):  # type: ignore[misc]
    """Patches, two pre-norm encoder layers, mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.patches = nn.Conv1d(channels, 32, 8, stride=8)
        self.places = nn.Parameter(torch.randn(1, 8, 32) * 0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, CLASSES))

    def forward(self, x: Any) -> Any:
        x = self.body(self.patches(x).transpose(1, 2) + self.places)
        return torch.softmax(self.head(x.mean(dim=1)), dim=1)


class Picture(nn.Module):  # type: ignore[misc]
    """Gives a 2-D network the input (batch, channels, samples), as rows of a picture."""

    def __init__(self, body: nn.Module, rows: int) -> None:
        super().__init__()
        self.body, self.rows = body, rows

    def forward(self, x: Any) -> Any:
        return torch.softmax(self.body(x.unflatten(2, (self.rows, -1))), dim=1)


def block(before: int, after: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class ResNet8(nn.Module):  # type: ignore[misc]
    """The image classifier of MLPerf Tiny (Banbury et al. 2021, arXiv:2106.07597), narrower."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = block(3, 8, 3)
        widths = (8, 8, 16, 32)
        pairs = list(zip(widths, widths[1:], (1, 2, 2), strict=False))
        self.paths = nn.ModuleList(
            nn.Sequential(block(a, b, 3, stride=s), nn.Conv2d(b, b, 3, padding=1)) for a, b, s in pairs
        )
        self.shortcuts = nn.ModuleList(nn.Identity() if s == 1 else nn.Conv2d(a, b, 1, stride=s) for a, b, s in pairs)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for path, shortcut in zip(self.paths, self.shortcuts, strict=True):
            x = torch.relu(path(x) + shortcut(x))
        return self.head(x.mean(dim=(2, 3)))


def ds_cnn() -> nn.Module:
    """The keyword spotter of MLPerf Tiny (Zhang et al. 2017, arXiv:1711.07128), narrower."""
    body: list[nn.Module] = [nn.Conv2d(1, 16, (10, 4), 2, (4, 1)), nn.ReLU()]
    for _ in range(3):
        body += [block(16, 16, 3, groups=16), block(16, 16, 1)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


class LogMel(nn.Module):  # type: ignore[misc]
    """A spectrogram by convolution with sines, mel bands by a product, logarithm, and a small classifier."""

    def __init__(self) -> None:
        super().__init__()
        size, bands = 64, 10
        time = np.arange(size)
        window = np.hanning(size)
        waves = [f(2 * np.pi * k * time / size) * window for f in (np.cos, np.sin) for k in range(size // 2 + 1)]
        self.register_buffer("waves", torch.tensor(np.array(waves)[:, None], dtype=torch.float32))
        centres = np.linspace(0, size // 2, bands + 2)
        bins = np.arange(size // 2 + 1)[None]
        rise, fall = (bins - centres[:-2, None]), (centres[2:, None] - bins)
        mel = np.maximum(0, np.minimum(rise, fall) / (centres[1] - centres[0]))
        self.register_buffer("mel", torch.tensor(mel, dtype=torch.float32))
        self.body = nn.Sequential(nn.Conv1d(bands, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Any) -> Any:
        real, imaginary = nn.functional.conv1d(x, self.waves, stride=32).chunk(2, dim=1)
        bands = torch.log(torch.matmul(self.mel, real**2 + imaginary**2) + 1e-3)
        return torch.softmax(self.head(self.body(bands)), dim=1)


def older(network: nn.Module, *, channels: int, samples: int) -> onnx.ModelProto:
    """The exporter before torch.export: other node patterns, and a tenth of the time."""
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is the older one, and that shapes are traced
        torch.onnx.export(
            network.eval(), (torch.zeros(2, channels, samples),), written, dynamo=False, opset_version=17,
            input_names=["window"], output_names=["probabilities"], dynamic_axes={"window": {0: "batch"}},
        )  # fmt: skip
    return onnx.load_from_string(written.getvalue())


BY_NEWER = ("ContextNet",)

SCALE = (0.5, 1.0, 2.0)
NETS: dict[str, tuple[Any, int, int]] = {
    "DeviceNet": (lambda: Calibrated([DeviceNet(scale=SCALE, classes=CLASSES)], 1.3), 3, 100),
    "ContextNet": (lambda: ContextNet(scale=SCALE, classes=CLASSES, widths=(8, 12, 16)), 3, 150),
    "two ContextNets": (
        lambda: Calibrated([ContextNet(scale=SCALE, classes=CLASSES, widths=(8, 12)) for _ in range(2)], 1.2), 3, 100,
    ),
    "TCN": (lambda: Tcn(3), 3, 40),
    "GRU": (lambda: Recurrent(3, nn.GRU), 3, 10),
    "LSTM": (lambda: Recurrent(3, nn.LSTM), 3, 20),
    "bidirectional GRU": (lambda: Recurrent(3, nn.GRU, both=True), 3, 12),
    "transformer": (lambda: Transformer(3), 3, 64),
    "transformer of the older exporter": (lambda: Transformer(3), 3, 64),
    "ResNet8": (lambda: Picture(ResNet8(), 16), 3, 256),
    "DS-CNN": (lambda: Picture(ds_cnn(), 49), 1, 490),
    "log-mel": (LogMel, 1, 1024),
}  # fmt: skip


@pytest.fixture(scope="module")
def exported() -> dict[str, onnx.ModelProto]:
    return {}


def network(name: str, exported: dict[str, onnx.ModelProto]) -> tuple[onnx.ModelProto, np.ndarray]:
    make, channels, samples = NETS[name]
    if name not in exported:
        torch.manual_seed(5)
        export = to_onnx if name in BY_NEWER else older
        exported[name] = export(make(), channels=channels, samples=samples)
    return exported[name], windows(64, channels, samples, seed=3)


@pytest.mark.parametrize("name", NETS)
def test_a_network_answers_as_onnxruntime_does(name: str, exported: dict[str, onnx.ModelProto]) -> None:
    model, x = network(name, exported)
    written = convert(model)
    expected = on_onnx(model, {"window": x})[0]
    assert is_open(written)
    batched = on_tflite(written, {"window": x}, len(x))[0]
    singly = np.concatenate([on_tflite(written, {"window": x[i : i + 1]})[0] for i in range(4)])
    np.testing.assert_allclose(batched, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(singly, expected[:4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["DeviceNet", "TCN", "ResNet8", "DS-CNN", "transformer", "log-mel"])
def test_a_quantised_network_answers_as_the_exact_int8_graph_does(
    name: str, exported: dict[str, onnx.ModelProto]
) -> None:
    model, x = network(name, exported)
    small = canonicalise(quantize(model, x, Scheme(activations="int8", weight_bits=8)))
    written = convert(small)
    exact, answered = on_onnx(small, {"window": x})[0], on_tflite(written, {"window": x}, len(x))[0]
    assert np.abs(answered - exact).max() < 0.03
    assert np.abs(answered - exact).mean() < 0.003
    names = operators(written)
    assert "QUANTIZE" in names
    if name in ("ResNet8", "DS-CNN"):
        assert names.count("DEQUANTIZE") == 1
    assert len(written) < len(convert(model))


def test_the_bodies_of_networks_are_not_transposed(exported: dict[str, onnx.ModelProto]) -> None:
    """Once at the input; nothing else, however many layouts the exporter has written."""
    for name in ("DeviceNet", "ResNet8", "DS-CNN"):
        assert operators(convert(network(name, exported)[0])).count("TRANSPOSE") <= 1, name
