"""``edge-export pack``: a model that someone else trained, with its card, as a bundle."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from edge_export.cli.build import NamedFolder, recipe_data
from edge_export.cli.sign import Signing
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli.arguments import ExistingFile, Factor, OutputFile, Recording
from edge_runtime.tools.cli.layout import RecordingColumns
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_export.choose.evaluation.expected import Expected
    from edge_export.data.dataset import Float32
    from edge_export.package.card.packing import Expect, Packed
    from edge_export.package.card.spec import Card
    from edge_runtime.io.recordings.layout import RecordingLayout
    from edge_runtime.manifest import InputContract


def model_path(text: str) -> Path:
    """Parse the path of a model: a file, or a folder of a kind that is refused with the command that converts it."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"no such file: {text}")
    return path


def stage_file(text: str) -> tuple[str, Path]:
    """Parse ``NAME=FILE``."""
    name, equals, file = text.partition("=")
    if not equals or not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=FILE, for example mask=model_1.onnx")
    return name, model_path(file)


ModelPath = Annotated[Path, model_path]
StageFile = Annotated[tuple[str, Path], stage_file]


@dataclass(frozen=True, kw_only=True)
class PackOptions(CommandOptions):
    models: tuple[ModelPath, ...] = operand("an .onnx or .tflite file", "MODEL", ())
    card: ExistingFile = option("what goes in and what comes out", metavar="CARD.toml")
    stage: tuple[StageFile, ...] = option(
        "file of a stage of the card; may be repeated, twice for one stage makes two variants", (), "NAME=FILE"
    )
    out: OutputFile = option("the bundle to write", metavar="OUT.edge")
    recording: tuple[Recording, ...] = option(
        "recording for golden windows; without any, windows are made within the card's ranges", (), "RECORDING"
    )
    normal: tuple[Recording, ...] = option(
        "recording of normal data, whose scores set the threshold of an anomaly; may be repeated", (), "RECORDING"
    )
    measured: tuple[Recording, ...] = option(
        "recording with the true values of a regression, which set its intervals: of machines or people that the model "
        "was not trained on, each with a key of its own; may be repeated",
        (),
        "RECORDING",
    )
    targets: ExistingFile | None = option(
        "table of true values: a column for each quantity, and any of start, end, key and file (default: columns of "
        "the --measured recordings that are called like the quantities)",
        None,
        "FILE",
    )
    target_at: Literal["mean", "end"] = option("true value of a window, of a column: its mean, or its last one", "mean")
    recipe: ExistingFile | None = option(
        "how labelled recordings are read, which measure what a device expects; for classifications",
        None,
        "RECIPE",
    )
    data: tuple[NamedFolder, ...] = recipe_data()
    columns: RecordingColumns
    tflite: bool = option("write an ONNX model as TensorFlow Lite too, if its operators allow it", default=False)
    max_difference: Factor | None = option(
        "largest difference of two files' probabilities (default: 0.001 of floats, 0.15 with integers)",
        None,
        "P",
    )
    signing: Signing


@command(
    "pack",
    "make a bundle of a model that someone else trained",
    "Hold a model file against its card, let it answer golden steps on the engines installed here, and write a bundle. "
    "Several files of the same model become variants of one bundle, if their answers agree. edge-export card MODEL "
    "drafts the card.",
    "pack model.onnx --card card.toml --recording day1.csv -o model.edge",
)
def run(options: PackOptions) -> CommandAnswer:
    """Pack, and tell what was chosen."""
    card = read_card(options.card)
    from edge_export.package.card.assignment import assigned  # noqa: PLC0415 - numpy and the rest, only when needed

    if options.targets and not options.measured:
        raise ConfigError("--targets needs the recordings that it is about; give them with --measured FILE")
    if options.data and not options.recipe:
        raise ConfigError("--data needs the recipe that says how it is read; give --recipe RECIPE.toml")
    variants = assigned(card, options.card.parent, options.models, options.stage)
    with aside(options):
        packed = _with_tflite(options, card, variants) if options.tflite else _packed(options, card, variants)
    lines = [*packed.notes]
    if packed.unused:
        lines.append(f"outputs that nothing takes: {', '.join(packed.unused)}")
    for each in packed.compared[1:]:
        flips = "" if each.flips is None else f", {each.flips} of {packed.answered} labels"
        lines.append(f"{each.name} on {each.engine}: differs by up to {each.worst:.2g}{flips}")
    contract = packed.manifest.input
    step = f"a step of {contract.window} samples ({contract.window / contract.rate_hz:g} s)"
    hop = "" if contract.hop == contract.window else f" every {contract.hop}"
    lines.append(f"{step}{hop}; state: {packed.state_bytes} bytes a key")
    recorded = options.recording or options.measured
    kind = "recorded" if recorded else "made within the card's ranges; --recording FILE proves more"
    count = len(packed.manifest.variants)
    lines.append(f"{options.out}: {count} variant{'s' if count > 1 else ''}, {packed.steps} golden steps {kind}")
    document = {
        "file": options.out,
        "variants": [variant.name for variant in packed.manifest.variants],
        "notes": packed.notes,
        "unused": packed.unused,
        "differences": {f"{each.name} on {each.engine}": each.worst for each in packed.compared[1:]},
        "state_bytes": packed.state_bytes,
        "golden_steps": packed.steps,
    }
    return CommandAnswer(document, lines)


def read_card(path: Path) -> Card:
    """Read a card; prints what to write in place of one of a form that is no longer read.

    Raises:
        ConfigError: it cannot be used, or a library is missing.
    """
    try:
        from edge_export.package.card import OldCardError, load_card  # noqa: PLC0415 - numpy and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    try:
        return load_card(path)
    except OldCardError as error:
        print(error.card, end="")
        raise


def _packed(options: PackOptions, card: Card, variants: Sequence[Mapping[str, Path]]) -> Packed:
    from edge_export.package.card.packing import pack_models  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_export.package.card.steps import Data  # noqa: PLC0415
    from edge_export.package.card.targets import MeasuredRecordings  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415

    measured = expand(options.measured)
    return pack_models(
        options.out,
        variants,
        card,
        folder=options.card.parent,
        data=Data(
            recordings=[path for path, _ in expand(options.recording) or measured],
            normal=[path for path, _ in expand(options.normal)],
            measured=MeasuredRecordings(recordings=measured, table=options.targets, at=options.target_at),
            layout=layout(options.columns),
        ),
        max_difference=options.max_difference,
        expect=_expect(options.recipe, options, card) if options.recipe else None,
        signer=options.signing.load(),
    )


def _with_tflite(options: PackOptions, card: Card, variants: Sequence[Mapping[str, Path]]) -> Packed:
    """Pack an ONNX file and what is written of it as TensorFlow Lite; where that fails, the file alone."""
    from edge_export.graph.onnx_graph.model import read_model  # noqa: PLC0415 - onnx and LiteRT's schema, only when needed
    from edge_export.graph.onnx_graph.normalise import normalise  # noqa: PLC0415
    from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise  # noqa: PLC0415
    from edge_export.graph.tflite.convert import convert  # noqa: PLC0415

    files = [(stage, file) for own in variants for stage, file in own.items()]
    if [file.suffix.lower() for _, file in files] != [".onnx"]:
        raise ConfigError("--tflite writes a TensorFlow Lite file from an ONNX one; give an ONNX file, and no other")
    ((stage, file),) = files
    with TemporaryDirectory() as folder:
        written = Path(folder) / f"{file.stem}.tflite"
        try:
            written.write_bytes(convert(canonicalise(normalise(read_model(file.read_bytes(), str(file))))))
            return _packed(options, card, [*variants, {stage: written}])
        except EdgeError as error:
            packed = _packed(options, card, variants)
            print(f"not written as TensorFlow Lite: {error}")
            return packed


def layout(columns: RecordingColumns) -> RecordingLayout:
    """Make the layout of recordings that are read by a card."""
    from edge_runtime.io.recordings.layout import RecordingLayout  # noqa: PLC0415 - numpy and the rest, only when needed

    return RecordingLayout(**columns.settings())


def _expect(path: Path, options: PackOptions, card: Card) -> Expect:
    """Read labelled recordings, and return what measures the bundle's expectations on them.

    Raises:
        ConfigError: the recipe has other classes or channels than the card, or a file does not fit.
    """
    from edge_export.choose.evaluation.expected import measure_expected  # noqa: PLC0415
    from edge_export.choose.evaluation.sensors import cost_of, triads_of  # noqa: PLC0415
    from edge_export.data.checks import check_windows  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_export.data.labels import label_windows  # noqa: PLC0415
    from edge_export.recipe.recipe import load  # noqa: PLC0415
    from edge_export.recipe.splits import read_all  # noqa: PLC0415

    recipe, labels = load(path), tuple(card.task.output.labels)
    if recipe.classes != labels:
        raise ConfigError(f"{path}: classes must be the card's labels: {', '.join(labels)}")
    wanted = [(channel.name, channel.unit) for channel in card.signal.channels]
    if [(channel.name, channel.unit) for channel in recipe.window.channels] != wanted:
        told = ", ".join(f"{name} ({unit})" for name, unit in wanted)
        raise ConfigError(f"{path}: channels under [window] must be the card's: {told}")
    recordings, _ = read_all(recipe, dict(options.data))
    triads = recipe.references.triads if recipe.references is not None else ()

    def expect(contract: InputContract, answers: Callable[[Float32], Float32]) -> Expected:
        windows = label_windows(recordings, contract, rule=recipe.window.label, purity=recipe.window.purity)
        check_windows(windows, recipe.classes, what="--recipe", fewest=1)
        cost = cost_of(answers, windows, contract, triads_of(contract, triads))
        return measure_expected(windows, recordings, contract, triads, cost, print)

    return expect
