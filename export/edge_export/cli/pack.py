"""``edge-export pack``: a model that someone else trained, with its card, as a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_export.cli.build import add_data
from edge_export.cli.layout import add_layout, layout
from edge_export.cli.sign import add_key, signing_key
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file, factor, output_file, recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_export.card.any_spec import AnyCard
    from edge_export.card.packing import Expect
    from edge_export.card.spec import Card
    from edge_export.data.dataset import Float32
    from edge_export.evaluation.expected import Expected


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "pack",
        help="make a bundle of a model that someone else trained",
        description=(
            "Hold a model file against its card, let it answer golden steps on the engines installed here, and write a "
            "bundle. Several files of the same model become variants of one bundle, if their answers agree. "
            "edge-export card MODEL drafts the card."
        ),
        epilog="example: edge-export pack model.onnx --card card.toml --recording day1.csv -o model.edge",
    )
    parser.add_argument("models", type=model_path, nargs="*", metavar="MODEL", help="an .onnx or .tflite file")
    parser.add_argument(
        "--card", type=existing_file, required=True, metavar="CARD.toml", help="what goes in and what comes out"
    )
    parser.add_argument(
        "--stage",
        type=stage_file,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="file of a stage of the card; may be repeated, and twice for one stage makes two variants",
    )
    parser.add_argument("-o", "--out", type=output_file, required=True, metavar="OUT.edge", help="the bundle to write")
    parser.add_argument(
        "--recording",
        type=recording,
        action="append",
        default=[],
        metavar="FILE",
        help="recording for golden windows; without any, windows are made within the card's ranges",
    )
    parser.add_argument(
        "--normal",
        type=recording,
        action="append",
        default=[],
        metavar="FILE",
        help="recording of normal data, whose scores set the threshold of an anomaly; may be repeated",
    )
    parser.add_argument(
        "--measured",
        type=recording,
        action="append",
        default=[],
        metavar="FILE",
        help="recording with the true values of a regression's quantities, which set its intervals: of machines or "
        "people that the model was not trained on, each with a key of its own; may be repeated",
    )
    parser.add_argument(
        "--targets",
        type=existing_file,
        metavar="FILE",
        help="table of true values: a column for each quantity, and any of start, end, key and file (default: columns "
        "of the --measured recordings that are called like the quantities)",
    )
    parser.add_argument(
        "--target-at",
        choices=("mean", "end"),
        default="mean",
        help="true value of a window, of a column: its mean, or its last one (default: mean)",
    )
    parser.add_argument(
        "--recipe",
        type=existing_file,
        metavar="RECIPE.toml",
        help="says how labelled recordings are read: what sensors deliver, and how they are mounted, is measured on "
        "them, so that a device notices what changes; for cards with [input]",
    )
    add_data(parser)
    add_layout(parser)
    parser.add_argument(
        "--tflite", action="store_true", help="write an ONNX model as TensorFlow Lite too, if its operators allow it"
    )
    parser.add_argument(
        "--max-difference",
        type=factor,
        metavar="P",
        help="largest difference of two files' probabilities (default: 0.001 between floats, 0.15 where integers are)",
    )
    add_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Pack, and say what was done to each file."""
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        from edge_export.card import load_card, pack_models, recorded_windows, seeded_windows  # noqa: PLC0415
        from edge_export.card.any_spec import AnyCard  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    card = load_card(options.card)
    if isinstance(card, AnyCard):
        return _any(options, card)
    _check(options)
    if options.recording:
        files = [path for path, _ in expand(options.recording)]
        golden = recorded_windows(card, files, layout(options))
    else:
        golden = seeded_windows(card)
    packed = pack_models(
        options.out,
        options.models,
        card,
        golden,
        also_tflite=options.tflite,
        max_difference=options.max_difference,
        expect=_expect(options, card) if options.recipe else None,
        signer=signing_key(options),
    )
    for name, changes in packed.changes.items():
        print(f"{name}: {', '.join(changes) or 'as it came'}")
    print(packed.original)
    for name, reason in packed.left_out.items():
        print(f"not {name}: {reason}")
    for each in packed.compared[1:]:
        print(f"{each.name} on {each.engine}: differs by up to {each.worst:.2g}, {each.flips} of {len(golden)} labels")
    kind = "recorded" if options.recording else "made within the card's ranges"
    print(f"{options.out}: {len(packed.manifest.variants)} variants, {len(golden)} golden windows {kind}")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse what a card with [input] has no use for."""
    if not options.models or options.stage:
        raise ConfigError(f"{options.card}: this card has [input] and no stages; name its model file, without --stage")
    if options.measured or options.targets:
        raise ConfigError(f"{options.card}: this card is of a classification; leave --measured and --targets out")
    if options.data and not options.recipe:
        raise ConfigError("--data needs the recipe that says how it is read; give --recipe RECIPE.toml")


def _expect(options: argparse.Namespace, card: Card) -> Expect:
    """Read labelled recordings, and return what measures the bundle's expectations on them.

    Raises:
        ConfigError: the recipe has other classes or channels than the card, or a file does not fit.
    """
    from edge_export.data.checks import check_windows  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_export.data.labels import label_windows  # noqa: PLC0415
    from edge_export.evaluation.expected import measure_expected  # noqa: PLC0415
    from edge_export.evaluation.sensors import cost_of, triads_of  # noqa: PLC0415
    from edge_export.recipe.recipe import load  # noqa: PLC0415
    from edge_export.splits import read_all  # noqa: PLC0415

    recipe, contract = load(options.recipe), card.input.contract()
    if recipe.classes != card.output.labels:
        raise ConfigError(f"{options.recipe}: classes must be the card's labels: {', '.join(card.output.labels)}")
    wanted = [(channel.name, channel.unit) for channel in contract.channels]
    if [(channel.name, channel.unit) for channel in recipe.window.channels] != wanted:
        told = ", ".join(f"{name} ({unit})" for name, unit in wanted)
        raise ConfigError(f"{options.recipe}: channels under [window] must be the card's: {told}")
    recordings, _ = read_all(recipe, dict(options.data))
    windows = label_windows(recordings, contract, rule=recipe.window.label, purity=recipe.window.purity)
    check_windows(windows, recipe.classes, what="--recipe", fewest=1)
    triads = recipe.references.triads if recipe.references is not None else ()

    def expect(answers: Callable[[Float32], Float32]) -> Expected:
        cost = cost_of(answers, windows, contract, triads_of(contract, triads))
        return measure_expected(windows, recordings, contract, triads, cost, print)

    return expect


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


def _any(options: argparse.Namespace, card: AnyCard) -> int:
    """Pack any model, and say what was chosen."""
    from edge_export.card.any_packing import pack_any  # noqa: PLC0415 - needs onnx
    from edge_export.card.assignment import assigned  # noqa: PLC0415
    from edge_export.card.steps import Data  # noqa: PLC0415
    from edge_export.card.targets import Measured  # noqa: PLC0415
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415

    if options.recipe or options.data:
        raise ConfigError("--recipe and --data are for cards with [input] and [output]; leave them out")
    if options.tflite:
        raise ConfigError("--tflite is for cards with [input]; convert the file itself, and give both")
    if options.targets and not options.measured:
        raise ConfigError("--targets needs the recordings that it is about; give them with --measured FILE")
    measured = expand(options.measured)
    packed = pack_any(
        options.out,
        assigned(card, options.card.parent, options.models, options.stage),
        card,
        folder=options.card.parent,
        data=Data(
            recordings=[path for path, _ in expand(options.recording) or measured],
            normal=[path for path, _ in expand(options.normal)],
            measured=Measured(recordings=measured, table=options.targets, at=options.target_at),
            layout=layout(options),
        ),
        max_difference=options.max_difference,
        signer=signing_key(options),
    )
    for note in packed.notes:
        print(note)
    if packed.unused:
        print(f"outputs that nothing takes: {', '.join(packed.unused)}")
    for each in packed.compared[1:]:
        flips = "" if each.flips is None else f", {each.flips} of {packed.answered} labels"
        print(f"{each.name} on {each.engine}: differs by up to {each.worst:.2g}{flips}")
    contract = packed.manifest.input
    step = f"a step of {contract.window} samples ({contract.window / contract.rate_hz:g} s)"
    hop = "" if contract.hop == contract.window else f" every {contract.hop}"
    print(f"{step}{hop}; state: {packed.state_bytes} bytes a key")
    recorded = options.recording or options.measured
    kind = "recorded" if recorded else "made within the card's ranges; --recording FILE proves more"
    count = len(packed.manifest.variants)
    print(f"{options.out}: {count} variant{'s' if count > 1 else ''}, {packed.steps} golden steps {kind}")
    return 0
