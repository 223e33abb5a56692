"""``edge-export teacher``: a Hugging Face checkpoint as the ONNX file that ``build --teacher`` takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_runtime.tools.cli.arguments import ExistingFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(CommandOptions):
    folder: Path = operand("with config.json and weights as .safetensors", "CHECKPOINT")
    python: ExistingFile = option("of an environment that has optimum-onnx", metavar="PYTHON")
    samples: int = option("of a window", metavar="N")
    channels: int = option("of a window", 1, "N")
    out: Path = option("file to write", metavar="TEACHER.onnx")


@command(
    "teacher",
    "make a teacher's file of a Hugging Face checkpoint",
    "Export a checkpoint that lies in a folder, with its own preparation of the window in front and a softmax behind. "
    'The recipe that it teaches says [teacher] given = "probabilities".',
    "teacher wav2vec2/ --python optimum/bin/python --samples 8000 -o teacher.onnx",
)
def run(options: TeacherOptions) -> CommandAnswer:
    """Export, and tell what the checkpoint states about itself."""
    from edge_export.learn.training.huggingface import import_checkpoint  # noqa: PLC0415 - onnx, only when it is needed

    checkpoint = import_checkpoint(
        options.folder, interpreter=options.python, channels=options.channels, samples=options.samples
    )
    options.out.write_bytes(checkpoint.model.SerializeToString())
    rate = f"{checkpoint.rate_hz:g} Hz" if checkpoint.rate_hz else "a rate that it does not state"
    lines = [f"{options.out}: {checkpoint.architecture}, made for {rate}; prepared by {checkpoint.preparation}"]
    if checkpoint.labels:
        lines.append(f"its labels, which the recipe's classes must follow in order: {', '.join(checkpoint.labels)}")
    document = {
        "file": options.out,
        "architecture": checkpoint.architecture,
        "rate_hz": checkpoint.rate_hz,
        "preparation": checkpoint.preparation,
        "labels": checkpoint.labels,
    }
    return CommandAnswer(document, lines)
