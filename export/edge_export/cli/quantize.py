"""``edge-export quantize``: measured int8, mixed, fp16 and 4-bit variants of a float model."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from edge_export.cli.pack import layout, read_card
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import ExistingFile, Factor, factor
from edge_runtime.tools.cli.layout import RecordingColumns
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command

if TYPE_CHECKING:
    from edge_export.choose.variants.data import CallSequence
    from edge_export.choose.variants.source import FloatModel


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


_Limit = Annotated[float, _limit]


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(CommandOptions):
    model: Path = operand("a float .onnx or .tflite file", "MODEL")
    recording: Path = option(
        "a folder or file of recordings: .npz or .npy arrays named after the model's inputs, in class folders "
        "where there are classes; with --card, recordings as edge-runtime replay plays them",
        metavar="RECORDING",
    )
    card: ExistingFile | None = option("says what a window of a recording is", None, "CARD.toml")
    columns: RecordingColumns
    constant: tuple[Annotated[tuple[str, float], _constant], ...] = option(
        "an input that is one number in every call, for example sr=16000; may be repeated", (), "INPUT=VALUE"
    )
    out: Path = option("where the files are written", metavar="FOLDER")
    format: tuple[Literal["onnx", "tflite"], ...] = option(
        "format of the variants; may be repeated (default: that of MODEL)", ()
    )
    max_loss: _Limit = option("accuracy that may be lost where recordings have labels", 0.5, "POINTS")
    min_snr: _Limit = option("least signal over noise of the answers where they have none", 25.0, "DB")
    weight_bits: Literal[7, 8] | None = option(
        "of int8 in ONNX files; 7 is right everywhere (default: 8 where this processor allows it)",
        None,
        "BITS",
    )
    seconds: Factor = option("after which nothing new is tried; what is made by then is measured", 600.0)


@command(
    "quantize",
    "make measured int8, fp16 and 4-bit variants of a float model",
    "Make every variant that a float ONNX or TensorFlow Lite file allows, measure each beside the float file on "
    "recordings that set nothing, and write those that are within the loss and not slower. The report says why the "
    "others were refused.",
    "quantize model.onnx --recording recordings/ -o small/",
    renamed={"--data": "--recording"},
)
def run(options: QuantizeOptions) -> CommandAnswer:
    """Quantise, and tell where the files are."""
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
    with aside(options):
        outcome = quantize_model(source, _recordings(options, source), options.out, settings)
    lines = [outcome.table, *(f"not made: {name}: {reason}" for name, reason in outcome.missing.items())]
    lines += map(str, [*outcome.written.values(), outcome.report])
    document = {"report": outcome.report, "written": outcome.written, "not_made": outcome.missing}
    return CommandAnswer(document, lines)


def _recordings(options: QuantizeOptions, source: FloatModel) -> list[CallSequence]:
    from edge_export.choose.variants.data import of_windows, read_arrays  # noqa: PLC0415 - numpy and the rest, only when needed

    constants = dict(options.constant)
    if options.card is None:
        return read_arrays(options.recording, source, constants)
    from edge_export.package.card.arrays import arrays_of  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand, recorded  # noqa: PLC0415

    card = read_card(options.card)
    folder = options.recording.is_dir()
    files = [(path, "") for path in recorded(options.recording)] if folder else expand([options.recording])
    found = arrays_of(card, options.model, [file for file, _ in files], layout(options.columns))
    return of_windows(found, source, constants, card.task.output.labels)
