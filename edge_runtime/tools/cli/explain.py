"""``edge-runtime explain``: which channels and spans of a recorded window moved the answer to it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import exits
from edge_runtime.tools.cli.arguments import add_bundle, add_trusted, count, recording, seconds
from edge_runtime.tools.cli.replay_options import add_layout, layout_of

if TYPE_CHECKING:
    from edge_runtime.model.serving.explain import Explanation
    from edge_runtime.types import Prediction


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "explain",
        help="show which channels and spans of a window moved the answer",
        description=(
            "Run recordings through a bundle as `replay` does, and explain the answers that were least sure, or those "
            "that are named: parts of the window are replaced by their usual value, and the model is asked again. The "
            "effect of a part is by how much the label's probability falls then. " + exits.HELP
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime explain watch.edge day1.csv\n"
            "  edge-runtime explain watch.edge day1.csv --window day1@4711 --spans 20"
        ),
    )
    add_bundle(parser)
    parser.add_argument("files", type=recording, nargs="+", metavar="FILE", help="recordings, as `replay` takes them")
    parser.add_argument(
        "--window", action="append", default=[], metavar="ID", help="id of a prediction; may be repeated"
    )
    parser.add_argument(
        "--worst", type=count, default=3, metavar="N", help="answers with the least confidence (default: 3)"
    )
    parser.add_argument("--spans", type=count, default=10, metavar="N", help="parts of a window's length (default: 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_trusted(parser)
    parser.add_argument("--variant", default="auto", help="variant of the bundle (default: the best for this machine)")
    parser.add_argument("--lateness", type=seconds, default=0.0, help="seconds that samples may be out of order")
    add_layout(parser.add_argument_group("layout of the files"))
    parser.set_defaults(run=run, labels="")


def run(options: argparse.Namespace) -> int:
    """Replay, explain, print."""
    from edge_runtime.app.python_api import explained, single_variant  # noqa: PLC0415 - numpy and the rest, when needed
    from edge_runtime.model.serving.loading import load_model  # noqa: PLC0415

    layout = layout_of(options)
    with load_model(single_variant(options.bundle, options.trusted_keys, options.variant)) as model:
        found = explained(
            model, layout, options.window, options.worst, spans=options.spans, lateness_s=options.lateness
        )
        rate_hz = model.manifest.input.rate_hz
    for prediction, explanation in found:
        if options.json:
            print(orjson.dumps({"id": prediction.id, **explanation.plain()}).decode())
        else:
            print(_shown(prediction, explanation, rate_hz), end="\n\n")
    missing = sorted(set(options.window) - {prediction.id for prediction, _ in found})
    if missing:
        raise ConfigError(
            f"explain: the recordings have no window {missing[0]}; `edge-runtime replay` prints their ids"
        )
    if not found:
        print("no window: nothing to explain; `edge-runtime replay` says what the recordings lack", file=sys.stderr)
        return exits.FAILED
    return 0


def _shown(prediction: Prediction, explanation: Explanation, rate_hz: float) -> str:
    label = f"{explanation.label} {explanation.score:.2f}" if explanation.label else "its numbers"
    hard = ", hard" if prediction.hard else ""
    return f"{prediction.id}: {label}{hard}\n{explanation.text(rate_hz)}"
