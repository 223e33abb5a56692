"""Front ends against numpy references written from the definitions, in torch, ONNX and TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.graph.tflite.convert import convert  # noqa: E402
from edge_export.learn.features.filters import mel_corners  # noqa: E402
from edge_export.learn.features.modules import build_front_end  # noqa: E402 - only where torch is
from edge_export.learn.training.loop import answer  # noqa: E402
from edge_export.recipe.feature_spec import (  # noqa: E402
    Centre,
    Chain,
    Filter,
    FilterBankSpec,
    FirstDifference,
    FrontEnd,
    LogMelSpec,
    MfccSpec,
    Raw,
    SpectrogramSpec,
    Standardise,
    StatisticsSpec,
    fit_standardise,
)

from tests.edge_export.graphs import onnx_answers, tflite_answers, windows  # noqa: E402

RATE = 1000.0
MEL = LogMelSpec(rate_hz=RATE, frame_s=0.064, hop_s=0.02, bands=10, low_hz=20.0, high_hz=450.0)


def frames(x: np.ndarray, length: int, hop: int) -> np.ndarray:
    """(n, channels, frames, length)."""
    starts = range(0, x.shape[2] - length + 1, hop)
    return np.stack([x[:, :, s : s + length] for s in starts], axis=2).astype(np.float64)


def rows(x: np.ndarray) -> np.ndarray:
    """(n, channels, frames, bins) to (n, channels * bins, frames)."""
    n, channels, count, bins = x.shape
    return x.transpose(0, 1, 3, 2).reshape(n, channels * bins, count)


def reference_power(x: np.ndarray, spec: SpectrogramSpec) -> np.ndarray:
    """By numpy's own transform of each frame, (n, channels, frames, every bin)."""
    if spec.pre_emphasis:
        x = x[:, :, 1:] - spec.pre_emphasis * x[:, :, :-1]
    length = round(spec.frame_s * spec.rate_hz)
    shapes = {
        "hann": np.hanning(length + 1)[:-1],
        "hamming": np.hamming(length + 1)[:-1],
        "rectangular": np.ones(length),
    }
    cut = frames(x, length, round(spec.hop_s * spec.rate_hz)) * shapes[spec.window]
    power: np.ndarray = np.abs(np.fft.rfft(cut, n=spec.fft or length, axis=-1)) ** 2
    return power


def reference_spectrogram(x: np.ndarray, spec: SpectrogramSpec) -> np.ndarray:
    power = reference_power(x, spec)
    hertz = np.fft.rfftfreq(spec.fft or round(spec.frame_s * spec.rate_hz), 1 / spec.rate_hz)
    high = spec.high_hz or spec.rate_hz / 2
    power = power[..., (hertz >= spec.low_hz) & (hertz <= high)]
    return rows(np.log(np.maximum(power, spec.floor)) if spec.log else power)


def reference_log_mel(x: np.ndarray, spec: LogMelSpec) -> np.ndarray:
    """Triangles drawn by interpolation between the corners, corners by inverting the scale numerically."""
    power = reference_power(x, spec.spectrogram)
    hertz = np.fft.rfftfreq(spec.fft or round(spec.frame_s * spec.rate_hz), 1 / spec.rate_hz)
    high = spec.high_hz or spec.rate_hz / 2
    fine = np.linspace(0, spec.rate_hz / 2, 400_001)
    if spec.scale == "htk":
        mel = 1127.0104803 * np.log(1 + fine / 700)
    else:
        mel = np.where(fine < 1000, fine / (200 / 3), 15 + 27 * np.log(np.maximum(fine, 1000) / 1000) / np.log(6.4))
    first, last = (float(np.interp(edge, fine, mel)) for edge in (spec.low_hz, high))
    corners: np.ndarray = np.interp(np.linspace(first, last, spec.bands + 2), mel, fine)
    out = []
    for left, centre, right in zip(corners, corners[1:], corners[2:], strict=False):
        triangle = np.interp(hertz, [left, centre, right], [0, 1, 0], left=0, right=0)
        if spec.area:
            triangle = triangle * 2 / (right - left)
        out.append(np.log(np.maximum(power @ triangle, spec.floor)))
    return rows(np.stack(out, axis=-1))


def reference_filter_bank(x: np.ndarray, spec: FilterBankSpec, parts: list[int]) -> np.ndarray:
    """One band after the other as a product with complex exponentials; `parts`: how often each is heard in a frame."""
    low, high = (1127.0104803 * float(np.log(1 + hertz / 700)) for hertz in (spec.low_hz, spec.high_hz))
    corners = 700 * (np.exp(np.linspace(low, high, spec.bands + 2) / 1127.0104803) - 1)
    length, hop = round(spec.frame_s * spec.rate_hz), round(spec.hop_s * spec.rate_hz)
    count = (x.shape[2] - length) // hop + 1
    out = []
    for left, centre, right, many in zip(corners, corners[1:], corners[2:], parts, strict=False):
        taps = length // many
        shape = np.hanning(taps + 1)[:-1] * np.exp(2j * np.pi * centre / spec.rate_hz * np.arange(taps))
        power = np.abs(frames(x, taps, hop // many) @ shape)[:, :, : many * count] ** 2
        # As much of white noise as the triangle passes: its area in bins, times the power of a Hann-windowed frame.
        noise = 3 / 8 * length * (right - left) / 2 / (spec.rate_hz / length)
        power *= noise / (np.abs(shape) ** 2).sum()
        mean = power.reshape(*power.shape[:2], count, many).mean(axis=3)
        out.append(np.log(np.maximum(mean, spec.floor)))
    return rows(np.stack(out, axis=-1))


def reference_mfcc(x: np.ndarray, spec: MfccSpec) -> np.ndarray:
    from scipy.fft import dct  # noqa: PLC0415 - another's implementation, only here

    mel = reference_log_mel(x, spec.mel)
    shape = (len(x), x.shape[1], spec.mel.bands, -1)
    cepstrum: np.ndarray = dct(mel.reshape(shape), type=2, axis=2, norm="ortho")[:, :, : spec.coefficients]
    return cepstrum.reshape(len(x), x.shape[1] * spec.coefficients, -1)


def reference_statistics(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    parts = [
        wide.mean(axis=2),
        wide.std(axis=2),
        wide.min(axis=2),
        wide.max(axis=2),
        np.sqrt((wide**2).mean(axis=2)),
        np.abs(np.diff(wide, axis=2)).mean(axis=2),
    ]
    return np.concatenate(parts, axis=1)[:, :, None]


def reference_filter(x: np.ndarray, response: np.ndarray) -> np.ndarray:
    out = [[np.convolve(channel, response, mode="valid") for channel in window] for window in x.astype(np.float64)]
    return np.array(out)


def butterworth(x: np.ndarray, *, taps: int, order: int, edges: float | list[float], kind: str) -> np.ndarray:
    """scipy's recursive filter, whose infinite memory is what the finite one leaves out."""
    from scipy.signal import butter, sosfilt  # noqa: PLC0415

    sections = butter(order, edges, btype=kind, fs=RATE, output="sos")
    response = sosfilt(sections, np.eye(1, taps)[0])
    return reference_filter(x, response)


def sinc_low(x: np.ndarray, *, taps: int, edge: float) -> np.ndarray:
    from scipy.signal import firwin  # noqa: PLC0415

    return reference_filter(x, firwin(taps, edge, fs=RATE, window="hamming"))


SPECTROGRAM = SpectrogramSpec(rate_hz=RATE, frame_s=0.05, hop_s=0.02)
LOUD = SpectrogramSpec(
    rate_hz=RATE,
    frame_s=0.05,
    hop_s=0.025,
    fft=64,
    low_hz=30,
    high_hz=400,
    window="hamming",
    pre_emphasis=0.9,
    log=True,
)
SLANEY = LogMelSpec(rate_hz=8000.0, frame_s=0.025, hop_s=0.01, bands=16, scale="slaney", area=True, pre_emphasis=0.97)
BANK = FilterBankSpec(rate_hz=RATE, frame_s=0.064, hop_s=0.04, bands=12, low_hz=20.0, high_hz=450.0, parts=4)
PARTS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
"""Of `BANK`: bands up to 63.6 Hz wide need a filter of a whole frame."""
WHOLE = FilterBankSpec(rate_hz=RATE, frame_s=0.05, hop_s=0.05, bands=6, low_hz=20.0, high_hz=450.0)
MFCC = MfccSpec(mel=MEL, coefficients=7)

CASES: dict[str, tuple[FrontEnd, int, Callable[[np.ndarray], np.ndarray]]] = {
    "raw": (Raw(), 3, lambda x: x),
    "standardise": (
        Standardise(offset=(9.81, 0.0, -3.0), scale=(0.5, 2.0, 1.0)),
        3,
        lambda x: (x - np.array([9.81, 0, -3])[:, None]) * np.array([0.5, 2, 1])[:, None],
    ),
    "sinc": (Filter(kind="low", rate_hz=RATE, high_hz=60.0, taps=31), 2, lambda x: sinc_low(x, taps=31, edge=60.0)),
    "butterworth high": (
        Filter(kind="high", rate_hz=RATE, low_hz=20.0, taps=81, design="butterworth", order=2),
        3,
        lambda x: butterworth(x, taps=81, order=2, edges=20.0, kind="highpass"),
    ),
    "butterworth band": (
        Filter(kind="band", rate_hz=RATE, low_hz=50.0, high_hz=150.0, taps=101, design="butterworth", order=3),
        1,
        lambda x: butterworth(x, taps=101, order=3, edges=[50.0, 150.0], kind="bandpass"),
    ),
    "butterworth stop": (
        Filter(kind="stop", rate_hz=RATE, low_hz=50.0, high_hz=150.0, taps=101, design="butterworth", order=2),
        1,
        lambda x: butterworth(x, taps=101, order=2, edges=[50.0, 150.0], kind="bandstop"),
    ),
    "difference": (FirstDifference(), 3, lambda x: np.diff(x, axis=2)),
    "value and difference": (
        FirstDifference(keep=True),
        2,
        lambda x: np.stack([x[:, :, 1:], np.diff(x, axis=2)], axis=2).reshape(len(x), 4, -1),
    ),
    "centre": (Centre(), 3, lambda x: x - x.mean(axis=2, keepdims=True)),
    "centre by window": (Centre(by="window"), 3, lambda x: x - x.mean(axis=(1, 2), keepdims=True)),
    "centre by peak": (
        Centre(by="peak", span=2.0),
        3,
        lambda x: np.maximum(x - x.max(axis=(1, 2), keepdims=True), -2.0),
    ),
    "spectrogram": (SPECTROGRAM, 1, lambda x: reference_spectrogram(x, SPECTROGRAM)),
    "log spectrogram": (LOUD, 3, lambda x: reference_spectrogram(x, LOUD)),
    "log-mel": (MEL, 1, lambda x: reference_log_mel(x, MEL)),
    "log-mel, slaney": (SLANEY, 2, lambda x: reference_log_mel(x, SLANEY)),
    "filter-bank": (BANK, 1, lambda x: reference_filter_bank(x, BANK, PARTS)),
    "filter-bank, several channels": (BANK, 2, lambda x: reference_filter_bank(x, BANK, PARTS)),
    "filter-bank of whole frames": (WHOLE, 1, lambda x: reference_filter_bank(x, WHOLE, [1] * 6)),
    "mfcc": (MFCC, 2, lambda x: reference_mfcc(x, MFCC)),
    "statistics": (StatisticsSpec(), 3, reference_statistics),
    "chain": (
        Chain(stages=(FirstDifference(), Standardise(scale=(2.0, 3.0)), StatisticsSpec(which=("rms", "max")))),
        2,
        lambda x: reference_statistics(np.diff(x, axis=2) * np.array([2, 3])[:, None])[:, [8, 9, 6, 7]],
    ),
}


class SideBySide(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Several front ends of the same input, flattened: exporting one by one would take minutes."""

    def __init__(self, modules: list[Any]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)

    def forward(self, x: Any) -> Any:
        return torch.cat([part(x).flatten(1) for part in self.parts], dim=1)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_front_ends_are_what_their_definitions_say_in_torch_onnx_and_tflite(channels: int) -> None:
    x = windows(4, channels, 300)
    modules, expected = [], {}
    for name, (spec, needed, reference) in CASES.items():
        if needed != channels:
            continue
        module, shape = build_front_end(spec, channels=channels, samples=300)
        expected[name] = reference(x)
        assert expected[name].shape == (4, shape.rows, shape.frames), name
        modules.append(module)

    def check(answers: np.ndarray) -> None:
        parts = np.split(answers, np.cumsum([values[0].size for values in expected.values()])[:-1], axis=1)
        for (name, values), part in zip(expected.items(), parts, strict=True):
            # Relative to the largest value: float32 sums of 50 to 200 products.
            tolerance = 2e-5 * max(1.0, float(np.abs(values).max()))
            np.testing.assert_allclose(part.reshape(values.shape), values, atol=tolerance, err_msg=name)

    together = SideBySide(modules)
    check(answer(together, x))
    model = to_onnx(together, channels=channels, samples=300)
    check(onnx_answers(model, x))
    check(tflite_answers(convert(model), x))


@pytest.mark.parametrize(("coefficients", "tolerance"), [("float16", 0.01), ("int8", 0.15)])
def test_coarse_coefficients_change_a_speech_like_log_mel_little_and_are_whole_or_half_precision(
    coefficients: str, tolerance: float
) -> None:
    spec = LogMelSpec(rate_hz=8000.0, frame_s=0.025, hop_s=0.01, bands=16, high_hz=3800.0)
    coarse = LogMelSpec(
        rate_hz=8000.0,
        frame_s=0.025,
        hop_s=0.01,
        bands=16,
        high_hz=3800.0,
        coefficients=coefficients,  # type: ignore[arg-type]
    )
    random = np.random.default_rng(5)
    t = np.arange(4000) / 8000
    voice = np.sum([0.3 / k * np.sin(2 * np.pi * 140 * k * t) for k in range(1, 20)], axis=0)
    x = (voice + 0.003 * random.standard_normal(4000))[None, None].astype(np.float32)
    (fine, _), (module, _) = (build_front_end(s, channels=1, samples=4000) for s in (spec, coarse))
    difference = np.abs(answer(module, x) - answer(fine, x))
    assert 0 < np.sqrt((difference**2).mean()) < tolerance
    for name, buffer in module.named_buffers():
        stored = buffer.numpy()
        exact = np.int8 if coefficients == "int8" else np.float16
        np.testing.assert_array_equal(stored, stored.astype(exact).astype(np.float32), err_msg=name)


@pytest.mark.parametrize("spec", [MEL, BANK])
def test_frames_of_a_stream_are_the_frames_of_a_window(spec: LogMelSpec | FilterBankSpec) -> None:
    """What makes a front end streamable: later samples change no earlier frame, and a shift by a hop shifts by one."""
    hop = round(spec.hop_s * RATE)
    module, shape = build_front_end(spec, channels=1, samples=400)
    x = windows(1, 1, 400 + hop)
    now, later = answer(module, x[:, :, :400].copy()), answer(module, x[:, :, hop:].copy())
    assert shape.hop == hop
    np.testing.assert_allclose(later[:, :, :-1], now[:, :, 1:], atol=1e-5)


def test_a_filter_bank_hears_tones_in_their_band_and_noise_as_loud_as_a_log_mel_with_a_quarter_of_its_numbers() -> None:
    mel = LogMelSpec(rate_hz=8000.0, frame_s=0.02, hop_s=0.02, bands=24, low_hz=60.0, floor=1e-9)
    bank = FilterBankSpec(rate_hz=8000.0, frame_s=0.02, hop_s=0.02, bands=24, low_hz=60.0, parts=4, floor=1e-9)
    (fine, _), (module, shape) = (build_front_end(spec, channels=1, samples=8000) for spec in (mel, bank))
    t = np.arange(8000) / 8000
    centres = mel_corners("htk", 24, 60.0, 4000.0)[1:-1]
    tones = answer(module, np.sin(2 * np.pi * np.outer(centres, t))[:, None].astype(np.float32))
    np.testing.assert_array_equal(tones.mean(axis=2).argmax(axis=1), np.arange(24))
    noise = np.random.default_rng(3).standard_normal((20, 1, 8000)).astype(np.float32)
    loud = [10 * np.log10(np.exp(answer(each, noise)).mean(axis=(0, 2))) for each in (fine, module)]
    # Triangles between few bins have more or less than their area; the three narrowest by up to a half.
    np.testing.assert_allclose(loud[1][3:], loud[0][3:], atol=1.0)
    assert shape.frames == 50
    numbers = [sum(buffer.numel() for buffer in each.buffers()) for each in (fine, module)]
    assert 4 * numbers[1] < numbers[0]


def test_standardise_is_fitted_to_mean_zero_and_deviation_one_and_refuses_a_dead_row() -> None:
    x = windows(50, 3, 40) * np.array([[1], [30], [0.01]], np.float32) + np.array([[9.81], [0], [-4]], np.float32)
    module, _ = build_front_end(fit_standardise(x), channels=3, samples=40)
    y = answer(module, x)
    np.testing.assert_allclose(y.mean(axis=(0, 2)), 0, atol=2e-3)
    np.testing.assert_allclose(y.std(axis=(0, 2)), 1, atol=2e-3)
    together = fit_standardise(x, together=True)
    assert len(set(together.scale)) == 1
    x[:, 1] = 4.5
    with pytest.raises(Exception, match="row 1 of the training features never changes"):
        fit_standardise(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_front_end(MEL, channels=1, samples=63), "needs 64 samples, the window has 63"),
        (lambda: build_front_end(Standardise(scale=(1.0,)), channels=2, samples=9), "1 scales for 2 rows"),
        (lambda: Filter(kind="band", rate_hz=100.0, low_hz=20.0, high_hz=60.0), "between 0 and 50.0 Hz"),
        (lambda: Filter(kind="low", rate_hz=100.0, high_hz=10.0, taps=64), "an odd number for a sinc"),
        (
            lambda: build_front_end(
                Filter(kind="high", rate_hz=100.0, low_hz=0.3, taps=33, design="butterworth"), channels=1, samples=200
            ),
            "33 taps cut the response off; at least",
        ),
        (lambda: SpectrogramSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.1, fft=32), "at least as many points"),
        (lambda: SpectrogramSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.1, low_hz=40, high_hz=30), "no bin between"),
        (
            lambda: build_front_end(
                LogMelSpec(rate_hz=8000.0, frame_s=0.008, hop_s=0.004, bands=60), channels=1, samples=800
            ),
            "lies between two bins",
        ),
        (lambda: FilterBankSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.2), "one to two hops a frame"),
        (lambda: FilterBankSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.5, parts=4), "power of two that divides the hop"),
        (lambda: FilterBankSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.5, low_hz=40, high_hz=30), "edges that rise"),
        (lambda: FilterBankSpec(rate_hz=100.0, frame_s=0.5, hop_s=0.5, floor=0.0), "floor must be above 0"),
        (lambda: MfccSpec(mel=MEL, coefficients=11), "11 coefficients of 10 bands"),
        (lambda: StatisticsSpec(which=()), "name each one once"),
    ],
)
def test_a_front_end_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    from edge_runtime.errors import ConfigError  # noqa: PLC0415

    with pytest.raises(ConfigError, match=message):
        make()
