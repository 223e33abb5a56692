"""A streaming bundle gives the windowed bundle's answers under the same ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.cli import main
from edge_export.graph.onnx_graph.out_of_distribution import OodDetector
from edge_export.graph.onnx_graph.passes.out_of_distribution import with_ood_detector
from edge_export.graph.onnx_graph.passes.temperature import with_temperature
from edge_export.graph.quantize import Scheme
from edge_export.graph.streaming import quantize_streaming
from edge_export.graph.tflite.convert import convert
from edge_export.package.pack import VariantSource, pack
from edge_export.package.streaming_bundle import CLOSE, stream_bundle

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract, OutputContract
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.variants import engine_for
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float32, Reading
from tests.edge_export.graph.streaming import architectures as nets
from tests.edge_export.graph.streaming.signals import noise

HOP = 12


def windowed() -> onnx.ModelProto:
    """A student with the shipped model's temperature and its factor for unfamiliar windows."""
    model = nets.valid_student()
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    random = np.random.default_rng(3)
    detector = OodDetector(
        floor=np.full(channels, 1e-3, "f4"),
        centre=np.zeros(3 * channels, "f4"),
        scale=np.ones(3 * channels, "f4"),
        means=random.standard_normal((classes, 3 * channels)).astype("f4"),
        limit=1.5,
    )
    return with_temperature(with_ood_detector(model, detector), 1.7)


def size(model: onnx.ModelProto, axis: int) -> int:
    return int(model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value)


def packed(path: Path, variants: list[VariantSource], model: onnx.ModelProto) -> Path:
    channels, samples = size(model, 1), size(model, 2)
    labels = tuple(f"c{k}" for k in range(model.graph.output[0].type.tensor_type.shape.dim[1].dim_value))
    pack(
        path,
        name="net",
        version=4,
        input=InputContract(
            channels=tuple(Channel(name=f"a{k}", unit="g") for k in range(channels)),
            rate_hz=50,
            window=samples,
            hop=2 * HOP,
            context=2 * samples,
        ),
        output=OutputContract(labels=labels),
        variants=variants,
        golden_inputs=noise(3, channels, samples),
        card="# A card",
        files={"notes.txt": b"kept"},
    )
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = windowed()
    int8 = quantize_streaming(
        nets.valid_student(), [noise(1, size(model, 1), 2000)[0]], hop=HOP, scheme=Scheme(activations="int8")
    ).windowed
    return packed(
        tmp_path_factory.mktemp("windowed") / "net.edge",
        [
            VariantSource(name="tflite-fp32", model=convert(model), format="tflite", precision="fp32", layout="NCW"),
            VariantSource(name="tflite-int8", model=convert(int8), format="tflite", precision="int8", layout="NCW"),
            VariantSource(name="onnx-int8", model=int8.SerializeToString(), format="onnx", precision="int8"),
            VariantSource(name="onnx-fp32", model=model.SerializeToString(), format="onnx", precision="fp32"),
        ],
        model,
    )


@pytest.fixture(scope="module")
def streaming(source: Path) -> Path:
    out = source.with_name("streaming.edge")
    made = stream_bundle(source, out, hop=HOP)
    assert max(made.differences.values()) <= CLOSE
    assert [variant.name for variant in made.manifest.variants] == [
        "tflite-fp32",
        "tflite-int8",
        "onnx-int8",
        "onnx-fp32",
    ]
    assert not made.left_out
    return out


def windows(bundle: Path, streams: dict[str, Float32], message: int) -> list[Window]:
    """Windows of each stream (samples, channels), cut by the runtime; message by message, the keys in turns."""
    with open_bundle(bundle) as opened:
        windower = Windower(opened.manifest.input)
    found = []
    for at in range(0, max(map(len, streams.values())), message):
        for key, samples in streams.items():
            part = samples[at : at + message]
            if len(part):
                found += windower.push([Reading(key, 100 + at / 50, part, 1 / 50, None)])
    return found


def answers(bundle: Path, variant: str, streams: dict[str, Float32], message: int) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    model = loaded(bundle, variant)
    made = windows(bundle, streams, message)
    for at in range(0, len(made), 5):
        rows, answered = model.predict(made[at : at + 5])
        found |= {window.id: np.array(row) for window, row in zip(answered, rows, strict=True)}
    model.close()
    return found


def loaded(bundle: Path, variant: str) -> LoadedVariant:
    """The variant in this process, for batches of five."""
    with open_bundle(bundle) as opened:
        chosen = opened.variant(variant)
        engine = engines.load(engine_for(chosen), opened.read_variant(variant), EngineOptions())
        return LoadedVariant(opened.manifest, chosen, engine, 5)


@pytest.mark.parametrize("variant", ["onnx-fp32", "onnx-int8", "tflite-fp32", "tflite-int8"])
def test_the_same_windows_get_the_same_answers_under_the_same_ids(source: Path, streaming: Path, variant: str) -> None:
    with open_bundle(source) as bundle:
        channels = len(bundle.manifest.input.channels)
    streams = {f"k{n}": noise(n + 1, channels, 700 + 13 * n)[n].T.copy() for n in range(3)}
    expected = answers(source, variant, streams, 7)
    found = answers(streaming, variant, streams, 31)
    assert len(found) > 1.8 * len(expected)
    assert expected.keys() <= found.keys()
    worst = max(float(np.abs(found[name] - row).max()) for name, row in expected.items())
    assert worst <= CLOSE


def test_what_the_windowed_bundle_says_of_itself_is_kept(source: Path, streaming: Path) -> None:
    with open_bundle(source) as before, open_bundle(streaming) as after:
        assert after.manifest.gate == before.manifest.gate
        assert (after.manifest.name, after.manifest.version) == ("net", 4)
        assert after.manifest.input.context == before.manifest.input.context
        assert after.file("card.md") == b"# A card"
        assert after.file("notes.txt") == b"kept"


def test_a_key_answers_its_first_window_after_a_gap(streaming: Path) -> None:
    with open_bundle(streaming) as bundle:
        contract = bundle.manifest.input
    samples = noise(1, len(contract.channels), 3 * contract.window)[0].T.copy()
    whole = windows(streaming, {"k": samples}, 10)
    model = loaded(streaming, "onnx-fp32")
    for window in whole:
        rows = np.array(model.predict([window]).rows)
    for window in (whole[0], whole[-1]):
        again = np.array(model.predict([window]).rows)
    model.close()
    assert np.abs(again - rows).max() <= CLOSE


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_variant(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.edge"
    assert main(["stream", str(source), "--hop", str(HOP), "--bundle-version", "9", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "onnx-int8:" in said
    assert "every 12" in said
    with open_bundle(out) as bundle:
        assert bundle.manifest.version == 9


def test_a_hop_that_the_strides_do_not_divide_is_refused_with_one_that_they_do(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="take hop"):
        stream_bundle(source, tmp_path / "out.edge", hop=7)


def test_a_chain_is_not_converted_again(streaming: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="windowed model"):
        stream_bundle(streaming, tmp_path / "out.edge", hop=HOP)
