"""``edge-export pack``: a model that someone else trained, with its card, as a bundle."""

from __future__ import annotations

import argparse
from typing import Any

from edge_export.cli.layout import add_layout, layout
from edge_export.cli.sign import add_key, signing_key
from edge_runtime.cli.arguments import existing_file, factor, output_file, recording
from edge_runtime.errors import ConfigError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "pack",
        help="make a bundle of a model that someone else trained",
        description=(
            "Put axes, scaling and softmax into a copy of a model file as its card says, let it answer golden windows "
            "on the engines installed here, and write a bundle. Several files of the same model become variants of one "
            "bundle, if their answers agree."
        ),
        epilog="example: edge-export pack model.onnx --card card.toml --recording day1.csv -o model.edge",
    )
    parser.add_argument("models", type=existing_file, nargs="+", metavar="MODEL", help="an .onnx or .tflite file")
    parser.add_argument(
        "--card", type=existing_file, required=True, metavar="CARD.toml", help="what it eats and answers"
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
    from edge_runtime.recordings.reader import expand  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        from edge_export.card import load, pack_models, recorded_windows, seeded_windows  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    card = load(options.card)
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
        signer=signing_key(options),
    )
    for name, changes in packed.changes.items():
        print(f"{name}: {', '.join(changes) or 'as it came'}")
    for name, reason in packed.left_out.items():
        print(f"not {name}: {reason}")
    for each in packed.compared[1:]:
        print(f"{each.name} on {each.engine}: differs by up to {each.worst:.2g}, {each.flips} of {len(golden)} labels")
    kind = "recorded" if options.recording else "made within the card's ranges"
    print(f"{options.out}: {len(packed.manifest.variants)} variants, {len(golden)} golden windows {kind}")
    return 0
