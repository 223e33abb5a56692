"""Golden digests: SHA-256 of every file that the export tools write for a fixed set of models.

No graph here depends on the processor: weights come from a seeded generator, ranges of activations are given, and
nothing is calibrated. ``python -m tests.edge_export.golden`` prints the digests, ``--write`` records them, which is
right only where a change of the bytes is meant; say why in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from edge_export.choose.selection.candidates import shipped
from edge_export.graph.onnx_graph.model import from_proto, name_of, only_input, shapes_of, sizes_of
from edge_export.graph.onnx_graph.normalise import normalise
from edge_export.graph.onnx_graph.out_of_distribution import OodDetector
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.onnx_graph.passes.out_of_distribution import with_ood_detector
from edge_export.graph.onnx_graph.passes.temperature import LogitMap, with_softmax, with_temperature
from edge_export.graph.quantize.equalize import equalize
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.mixed import round_to_halves
from edge_export.graph.quantize.scheme import Scheme
from edge_export.graph.quantize.write import WeightSteps, prepare, write
from edge_export.graph.streaming.convert import to_streaming
from edge_export.graph.tflite.convert import convert

from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_export.graph.streaming.architectures import gru_net, tcn, valid_student
from tests.edge_export.graphs import device_net, minimise, shield
from tests.edge_export.package.card.models import plain, samples_first

RECORDED = Path(__file__).parents[1] / "data" / "export_digests.json"
_BUNDLES = Path(__file__).resolve().parents[2] / "examples" / "exercise-watch"
_HOP = 16
PACKAGES = ("onnx", "onnxruntime", "protobuf", "flatbuffers")
"""What else decides the bytes: shape inference, the quantiser's writer and the two serialisers."""


def _from_bundle(bundle: str, variant: str) -> onnx.ModelProto:
    with open_bundle(_BUNDLES / bundle) as opened:
        return onnx.load_model_from_string(opened.read_variant(variant))


def _in_integers(model: onnx.ModelProto, scheme: Scheme, steps: WeightSteps | None = None) -> onnx.ModelProto:
    """Quantise by ranges that are given."""
    prepared = prepare(model)
    return write(prepared, dict.fromkeys(shapes_of(from_proto(prepared)), (-3.0, 5.0)), scheme, steps=steps)


def _device_net_in_integers(*exclude: str) -> onnx.ModelProto:
    return _in_integers(canonicalise(device_net()), Scheme(activations="int8", exclude=exclude))


def _layer_names(model: onnx.ModelProto) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers(from_proto(prepare(model)).graph))


def _by_given_steps(model: onnx.ModelProto) -> onnx.ModelProto:
    """Quantise as after AdaRound or training with the rounding, one step for all outputs of a layer."""
    steps = {name_of(layer.weight): np.array(0.01, np.float32) for layer in layers(from_proto(prepare(model)).graph)}
    return _in_integers(model, Scheme(activations="uint8"), steps)


def _first_layer_in_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    first = _layer_names(model)[:1]
    return canonicalise(_in_integers(round_to_halves(prepare(model), first), Scheme(activations="int8", exclude=first)))


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "device net": device_net,
    "device net in integers": _device_net_in_integers,
    "device net with a float layer": lambda: _device_net_in_integers("Conv_3"),
    "logits": plain,
    "samples first": samples_first,
    "valid student": valid_student,
    "tcn": tcn,
    "gru": gru_net,
    "demo teacher": lambda: _from_bundle("teacher.edge", "onnx-fp32"),
    "demo student": lambda: _from_bundle("watch.edge", "onnx-fp32"),
    "demo student in integers": lambda: _from_bundle("watch.edge", "onnx-int8-s8s8"),
}


def _unfamiliar(model: onnx.ModelProto) -> onnx.ModelProto:
    channels = sizes_of(only_input(from_proto(model)))[1] or 0
    random = np.random.default_rng(3)
    return with_ood_detector(
        model,
        OodDetector(
            floor=np.full(channels, 0.25, np.float32),
            centre=random.standard_normal(3 * channels).astype(np.float32),
            scale=random.uniform(0.5, 2, 3 * channels).astype(np.float32),
            means=random.standard_normal((4, 3 * channels)).astype(np.float32),
            limit=1.5,
        ),
    )


def _stateful(model: onnx.ModelProto) -> onnx.ModelProto:
    return to_streaming(model, hop=_HOP, mode="stream", max_work=1e9).model


QUANTISERS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "prepare": prepare,
    "equalise": lambda model: canonicalise(equalize(prepare(model)).model),
    "int8": lambda model: _in_integers(model, Scheme(activations="int8")),
    "int8, symmetric, one step a layer": lambda model: _in_integers(
        model, Scheme(activations="int8", symmetric=True, per_channel=False)
    ),
    "int8, one layer in halves": _first_layer_in_halves,
    "uint8, integer operators": lambda model: _in_integers(model, Scheme(activations="uint8", form="qoperator")),
    "uint8, given steps": _by_given_steps,
}
QUANTISED = ("device net", "valid student", "gru", "demo student")
"""Models that quantisers are tried on: float ones of students."""

TOOLS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto | bytes]] = {
    **QUANTISERS,
    "canonicalise": canonicalise,
    "normalise": normalise,
    "conv2d": as_conv2d,
    "softmax": lambda model: with_softmax(canonicalise(model)),
    "temperature": lambda model: with_temperature(canonicalise(model), 1.75),
    "out of distribution": lambda model: _unfamiliar(canonicalise(model)),
    "minimise": minimise,
    "shield": lambda model: shield(canonicalise(model)),
    "shipped": lambda model: shipped(_unfamiliar(with_temperature(canonicalise(model), 1.75)), LogitMap()),
    "streaming": _stateful,
    "tflite": convert,
    "tflite, compact": lambda model: convert(canonicalise(model), compact=True),
}


@cache
def model(name: str) -> onnx.ModelProto:
    """One of `MODELS`, made once; not to be changed."""
    return MODELS[name]()


def models_for(tool: str) -> tuple[str, ...]:
    """Names of the models that a tool is tried on."""
    return QUANTISED if tool in QUANTISERS else tuple(MODELS)


def digest(tool: str, name: str) -> str:
    """SHA-256 of what a tool writes for a model; the message where it refuses the model."""
    try:
        made = TOOLS[tool](model(name))
    except ConfigError as error:
        return f"refused: {error}"
    data = made if isinstance(made, bytes) else made.SerializeToString(deterministic=True)
    return hashlib.sha256(data).hexdigest()


def versions() -> dict[str, str]:
    """Installed versions of `PACKAGES`."""
    return {name: version(name) for name in PACKAGES}


def _digests() -> Iterator[tuple[str, dict[str, str]]]:
    for tool in TOOLS:
        yield tool, {name: digest(tool, name) for name in models_for(tool)}


def main() -> None:
    """Print or record the digests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"record them in {RECORDED.name}")
    text = json.dumps({"versions": versions(), "digests": dict(_digests())}, indent=1) + "\n"
    if parser.parse_args().write:
        RECORDED.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
