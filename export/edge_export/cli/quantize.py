"""``edge-export quantize``: measured int8, mixed, fp16 and 4-bit variants of a float model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_export.cli.layout import add_layout, layout
from edge_export.cli.pack import read_card
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file, factor

if TYPE_CHECKING:
    from edge_export.choose.variants.data import Recording
    from edge_export.choose.variants.source import Source


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "quantize",
        help="make measured int8, fp16 and 4-bit variants of a float model",
        description=(
            "Make every variant that a float ONNX or TensorFlow Lite file allows, measure each beside the float file "
            "on recordings that set nothing, and write those that are within the loss and not slower. The report says "
            "why the others were refused."
        ),
        epilog="example: edge-export quantize model.onnx --data recordings/ -o small/",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a float .onnx or .tflite file")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="RECORDINGS",
        help="a folder or file of recordings: .npz or .npy arrays named after the model's inputs, in class folders "
        "where there are classes; with --card, recordings as edge-runtime replay plays them",
    )
    parser.add_argument("--card", type=existing_file, metavar="CARD.toml", help="says what a window of a recording is")
    add_layout(parser)
    parser.add_argument(
        "--constant",
        type=_constant,
        action="append",
        default=[],
        metavar="INPUT=VALUE",
        help="an input that is one number in every call, for example sr=16000; may be repeated",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="where the files are written")
    parser.add_argument(
        "--format",
        choices=("onnx", "tflite"),
        action="append",
        default=[],
        help="format of the variants; may be repeated (default: that of MODEL)",
    )
    parser.add_argument(
        "--max-loss",
        type=_limit,
        default=0.5,
        metavar="POINTS",
        help="accuracy that may be lost where recordings have labels (default: 0.5)",
    )
    parser.add_argument(
        "--min-snr",
        type=_limit,
        default=25.0,
        metavar="DB",
        help="least signal over noise of the answers where they have none (default: 25)",
    )
    parser.add_argument(
        "--weight-bits",
        type=int,
        choices=(7, 8),
        help="of int8 in ONNX files; 7 is right on every processor (default: 8 where this one allows it)",
    )
    parser.add_argument(
        "--seconds",
        type=factor,
        default=600.0,
        help="after which nothing new is tried; what is made by then is measured, and the report names the rest "
        "(default: 600)",
    )
    parser.set_defaults(run=run)


def _constant(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return (name, float(value)) if name else _no_constant(text)
    except ValueError:
        return _no_constant(text)


def _no_constant(text: str) -> tuple[str, float]:
    raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=VALUE, for example sr=16000")


def _limit(text: str) -> float:
    return 0.0 if text in ("0", "0.0") else factor(text)


def run(options: argparse.Namespace) -> int:
    """Quantise, print the table, and say where the files are."""
    try:
        from edge_export.choose.variants import Settings, quantize_model  # noqa: PLC0415 - onnx and the rest, only when needed
        from edge_export.choose.variants.decide import Rule  # noqa: PLC0415
        from edge_export.choose.variants.source import open_source  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    source = open_source(options.model)
    settings = Settings(
        rule=Rule(max_loss=options.max_loss, min_snr=options.min_snr),
        formats=tuple(dict.fromkeys(options.format)),
        constants=dict(options.constant),
        weight_bits=options.weight_bits,
        seconds=options.seconds,
    )
    recordings = _recordings(options, source)
    outcome = quantize_model(source, recordings, options.out, settings)
    print(outcome.table)
    for name, reason in outcome.missing.items():
        print(f"not made: {name}: {reason}")
    for path in outcome.written.values():
        print(path)
    print(outcome.report)
    return 0


def _recordings(options: argparse.Namespace, source: Source) -> list[Recording]:
    from edge_export.choose.variants.data import of_windows, read_arrays  # noqa: PLC0415 - numpy and the rest, only when needed

    constants = dict(options.constant)
    if options.card is None:
        return read_arrays(options.data, source, constants)
    from edge_export.package.card.arrays import arrays_of  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand, recorded  # noqa: PLC0415

    card = read_card(options.card)
    files = expand([options.data]) if not options.data.is_dir() else [(path, "") for path in recorded(options.data)]
    found = arrays_of(card, options.model, [file for file, _ in files], layout(options))
    return of_windows(found, source, constants, card.task.output.labels)
