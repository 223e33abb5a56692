"""A Hugging Face checkpoint as a teacher: exported to ONNX by optimum, its own preparation of the window in the graph.

optimum-onnx pins versions that nothing else here can live with, so it runs in an environment of its own, whose Python
is named by the caller. It is kept from the network, and from checkpoints that would run code when they are read.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_export.onnx_graph.passes.canonicalise import canonicalise
from edge_export.training.teachers import OnnxTeacher
from edge_runtime.errors import ConfigError

INSTALL = (
    "python3.11 -m venv optimum && optimum/bin/pip install torch==2.13.0 && "
    'optimum/bin/pip install "optimum-onnx==0.1.*" onnx onnxruntime onnxscript'
)
"""What makes the environment. torch goes first: left to the resolver, a build with several gigabytes of CUDA comes."""

_WORKER = Path(__file__).with_name("huggingface_worker.py")
_VARIANCE_FLOOR = 1e-7
"""Of `transformers.Wav2Vec2FeatureExtractor.zero_mean_unit_var_norm`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint as a model of ours.

    Attributes:
        model: input ``window`` (batch, channels, samples), output ``probabilities`` (batch, labels).
        architecture: as the checkpoint names it.
        labels: names in the order of the probabilities; empty where the checkpoint names none.
        rate_hz: samples per second that it was made for; 0 where it does not say.
        preparation: what the graph does to a window before the network, in words.
    """

    model: onnx.ModelProto = field(repr=False)
    architecture: str
    labels: tuple[str, ...]
    rate_hz: float
    preparation: str

    def teacher(self, cache: Path | None = None) -> OnnxTeacher:
        """Wrap the checkpoint as a teacher; `cache` keeps its answers."""
        return OnnxTeacher(
            model=self.model.SerializeToString(),
            output="probabilities",
            classes=len(self.labels),
            batch=16,
            cache=cache,
        )


def import_checkpoint(
    folder: Path, *, interpreter: Path, channels: int, samples: int, timeout_s: float = 900.0
) -> Checkpoint:
    """Export a checkpoint that lies in a folder.

    Sound classifiers that take the waveform (wav2vec2, HuBERT, WavLM and their kin) and PatchTST or PatchTSMixer
    classifiers are known. Windows of the former have one channel, scaled to -1 to 1.

    Args:
        folder: with ``config.json`` and weights as safetensors.
        interpreter: Python of an environment made by `INSTALL`.
        channels: of a window.
        samples: of a window.
        timeout_s: how long the export may take.

    Raises:
        ConfigError: the folder holds no such checkpoint, or the environment is not as it should be; says what to do.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder.name!r} is no checkpoint: it has no config.json")
    if not list(folder.glob("*.safetensors")):
        raise ConfigError(
            f"{folder.name!r} has no weights as .safetensors; other formats run code when they are read, so convert it"
        )
    _check_interpreter(interpreter)
    with tempfile.TemporaryDirectory() as out:
        arguments = [str(_WORKER), str(folder.resolve()), out, str(channels), str(samples)]
        done = _run(interpreter, arguments, timeout_s)
        if done.returncode or not Path(out, "facts.json").exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
            raise ConfigError(f"{folder.name!r} could not be exported: {lines[-1].strip()}")
        model = onnx.load(str(Path(out, "model.onnx")))
        facts = json.loads(Path(out, "facts.json").read_text("utf-8"))
    return _checkpoint(folder.name, model, facts, channels=channels, samples=samples)


def _check_interpreter(interpreter: Path) -> None:
    try:
        done = _run(interpreter, ["-c", "import optimum.exporters.onnx, onnxscript"], 300.0)
    except OSError as error:
        raise ConfigError(f"{interpreter} does not start ({error.strerror}); make an environment: {INSTALL}") from error
    if done.returncode:
        raise ConfigError(f"{interpreter} has no optimum-onnx; make an environment: {INSTALL}")


def _run(interpreter: Path, arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": ""}
    try:
        return subprocess.run(  # noqa: S603 - the interpreter is named by the user, the rest is ours
            [str(interpreter), *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **quiet},
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"the export of a checkpoint took longer than {timeout_s:g} s; allow it more") from error


def _checkpoint(name: str, model: onnx.ModelProto, facts: dict[str, Any], *, channels: int, samples: int) -> Checkpoint:
    sources = [info.name for info in model.graph.input]
    known = facts["preprocessor"]
    if sources == ["input_values"] and len(model.graph.input[0].type.tensor_type.shape.dim) == 2:
        if channels != 1:
            raise ConfigError(f"{name!r} takes sound of one channel, not {channels}")
        normal = bool(known.get("do_normalize", False))
        nodes, constants = _waveform(normal=normal)
        preparation = "zero mean and unit variance, window by window" if normal else "none"
    elif sources == ["past_values"]:
        nodes, constants = [helper.make_node("Transpose", ["window"], ["past_values"], perm=[0, 2, 1])], []
        preparation = "time first; the network scales by itself"
    else:
        raise ConfigError(
            f"{name!r} ({facts['architecture']}) takes {', '.join(sources)}, which its own feature extractor makes "
            f"outside the graph; export it with its features in front, and give the ONNX file as teacher"
        )
    graph = model.graph
    window = helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", channels, samples])
    logits = graph.output[0].name
    kept = [*nodes, *graph.node, helper.make_node("Softmax", [logits], ["probabilities"], axis=-1)]
    classes = graph.output[0].type.tensor_type.shape.dim[1].dim_value
    answers = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", classes or "classes"])
    whole = helper.make_model(
        helper.make_graph(kept, "model", [window], [answers], [*graph.initializer, *constants]),
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
        functions=list(model.functions),
    )
    return Checkpoint(
        model=canonicalise(whole),
        architecture=facts["architecture"],
        labels=tuple(str(label) for label in facts["labels"]),
        rate_hz=float(known.get("sampling_rate", 0.0)),
        preparation=preparation,
    )


def _waveform(*, normal: bool) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """(batch, 1, samples) to what a waveform network takes, (batch, samples)."""
    constants = [numpy_helper.from_array(np.array([1], np.int64), "prepare_axis")]
    if not normal:
        return [helper.make_node("Squeeze", ["window", "prepare_axis"], ["input_values"])], constants
    constants.append(numpy_helper.from_array(np.float32(_VARIANCE_FLOOR), "prepare_floor"))
    steps: list[tuple[str, list[str], str]] = [
        ("Squeeze", ["window", "prepare_axis"], "prepare_flat"),
        ("ReduceMean", ["prepare_flat", "prepare_axis"], "prepare_mean"),
        ("Sub", ["prepare_flat", "prepare_mean"], "prepare_centred"),
        ("Mul", ["prepare_centred", "prepare_centred"], "prepare_square"),
        ("ReduceMean", ["prepare_square", "prepare_axis"], "prepare_variance"),
        ("Add", ["prepare_variance", "prepare_floor"], "prepare_above"),
        ("Sqrt", ["prepare_above"], "prepare_deviation"),
        ("Div", ["prepare_centred", "prepare_deviation"], "input_values"),
    ]
    return [helper.make_node(operator, inputs, [output]) for operator, inputs, output in steps], constants
