"""``edge-export teacher``: a Hugging Face checkpoint as the ONNX file that ``build --teacher`` takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_runtime.tools.cli.arguments import existing_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "teacher",
        help="make a teacher's file of a Hugging Face checkpoint",
        description=(
            "Export a checkpoint that lies in a folder, with its own preparation of the window in front and a softmax "
            'behind. The recipe that it teaches says [teacher] given = "probabilities".'
        ),
        epilog="example: edge-export teacher wav2vec2/ --python optimum/bin/python --samples 8000 -o teacher.onnx",
    )
    parser.add_argument("folder", type=Path, metavar="CHECKPOINT", help="with config.json and weights as .safetensors")
    parser.add_argument(
        "--python", type=existing_file, required=True, metavar="PYTHON", help="of an environment that has optimum-onnx"
    )
    parser.add_argument("--samples", type=int, required=True, help="of a window")
    parser.add_argument("--channels", type=int, default=1, help="of a window (default 1)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="TEACHER.onnx", help="file to write")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export, and print what the checkpoint states about itself."""
    from edge_export.learn.training.huggingface import import_checkpoint  # noqa: PLC0415 - onnx, only when it is needed

    checkpoint = import_checkpoint(
        options.folder, interpreter=options.python, channels=options.channels, samples=options.samples
    )
    options.out.write_bytes(checkpoint.model.SerializeToString())
    rate = f"{checkpoint.rate_hz:g} Hz" if checkpoint.rate_hz else "a rate that it does not state"
    print(f"{options.out}: {checkpoint.architecture}, made for {rate}; prepared by {checkpoint.preparation}")
    if checkpoint.labels:
        print(f"its labels, which the recipe's classes must follow in order: {', '.join(checkpoint.labels)}")
    return 0
