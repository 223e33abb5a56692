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
import onnx_ir as ir

from edge_export.graph.onnx_graph.edge import Edge, read_through
from edge_export.graph.onnx_graph.model import from_proto, sizes_of, to_proto
from edge_export.graph.onnx_graph.passes.canonicalise import Canonicalise, without_traces
from edge_export.learn.training.teachers import OnnxTeacher
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
        folder: a folder with ``config.json`` and weights as safetensors.
        interpreter: Python of an environment made by `INSTALL`.
        channels: number of a window's channels.
        samples: number of a window's samples.
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
    whole = from_proto(without_traces(model))
    graph = whole.graph
    sources = [str(value.name) for value in graph.inputs]
    known = facts["preprocessor"]
    kind = ir.TensorType(ir.DataType.FLOAT)
    window = ir.Value(name="window", type=kind, shape=ir.Shape(["batch", channels, samples]))
    front = Edge(graph, "prepare", next(iter(graph), None))
    if sources == ["input_values"] and len(sizes_of(graph.inputs[0])) == 2:
        if channels != 1:
            raise ConfigError(f"{name!r} takes sound of one channel, not {channels}")
        normal = bool(known.get("do_normalize", False))
        flow = _waveform(front, window, normal=normal)
        preparation = "zero mean and unit variance, window by window" if normal else "none"
    elif sources == ["past_values"]:
        flow = front.node("Transpose", window, perm=[0, 2, 1])
        preparation = "time first; the network scales by itself"
    else:
        raise ConfigError(
            f"{name!r} ({facts['architecture']}) takes {', '.join(sources)}, which its own feature extractor makes "
            f"outside the graph; export it with its features in front, and give the ONNX file as teacher"
        )
    read_through(graph, window, flow)
    classes = sizes_of(graph.outputs[0])[1]
    answer = Edge(graph, "answer").node("Softmax", graph.outputs[0], axis=-1)
    answer.name, answer.type, answer.shape = "probabilities", kind, ir.Shape(["batch", classes or "classes"])
    graph.outputs[:] = [answer]
    return Checkpoint(
        model=to_proto(Canonicalise()(whole).model),
        architecture=facts["architecture"],
        labels=tuple(str(label) for label in facts["labels"]),
        rate_hz=float(known.get("sampling_rate", 0.0)),
        preparation=preparation,
    )


def _waveform(front: Edge, window: ir.Value, *, normal: bool) -> ir.Value:
    """(batch, 1, samples) to what a waveform network takes, (batch, samples)."""
    axis = front.constant([1], np.int64)
    flat = front.node("Squeeze", window, axis)
    if not normal:
        return flat
    floor = front.constant(_VARIANCE_FLOOR, np.float32)
    centred = front.node("Sub", flat, front.node("ReduceMean", flat, axis))
    variance = front.node("ReduceMean", front.node("Mul", centred, centred), axis)
    return front.node("Div", centred, front.node("Sqrt", front.node("Add", variance, floor)))
