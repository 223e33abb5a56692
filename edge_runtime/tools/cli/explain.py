"""``edge-runtime explain``: which channels and spans of a recorded window moved the answer to it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments, exits
from edge_runtime.tools.cli.arguments import BundlePath, Count, ExistingFile, Recording, Seconds
from edge_runtime.tools.cli.layout import Layout
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.model.serving.explain import Explanation
    from edge_runtime.types import Prediction


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    recordings: tuple[Recording, ...] = arguments.recordings()
    window: tuple[str, ...] = option("id of a prediction; may be repeated", (), "ID")
    worst: Count = option("answers with the least confidence", 3, "N")
    spans: Count = option("parts of a window's length", 10, "N")
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()
    variant: str = arguments.variant()
    lateness: Seconds = arguments.lateness()
    layout: Layout


@command(
    "explain",
    "show which channels and spans of a window moved the answer",
    "Run recordings through a bundle as `replay` does, and explain the answers that were least sure, "
    "or those that are named: parts of the window are replaced by their usual value, and the model is asked again. "
    "The effect of a part is by how much the label's probability falls then. " + exits.HELP,
    "explain watch.edge day1.csv",
    "explain watch.edge day1.csv --window day1@4711 --spans 20",
)
def run(options: ExplainOptions) -> CommandAnswer | int:
    """Replay and explain."""
    from edge_runtime.app.python_api import explained, single_variant  # noqa: PLC0415 - numpy and the rest, when needed
    from edge_runtime.model.serving.loading import load_model  # noqa: PLC0415

    layout = options.layout.of(options.recordings)
    with load_model(single_variant(options.bundle, options.trusted_key, options.variant)) as model:
        found = explained(
            model, layout, options.window, options.worst, spans=options.spans, lateness_s=options.lateness
        )
        rate_hz = model.manifest.input.rate_hz
    documents = ({"id": prediction.id, **explanation.plain()} for prediction, explanation in found)
    answer = CommandAnswer(documents, (f"{_shown(*one, rate_hz)}\n" for one in found))
    missing = sorted(set(options.window) - {prediction.id for prediction, _ in found})
    if missing:
        answer.print(as_json=options.json)
        raise ConfigError(
            f"explain: the recordings have no window {missing[0]}; `edge-runtime replay` prints their ids"
        )
    if not found:
        print("no window: nothing to explain; `edge-runtime replay` says what the recordings lack", file=sys.stderr)
        return exits.FAILED
    return answer


def _shown(prediction: Prediction, explanation: Explanation, rate_hz: float) -> str:
    label = f"{explanation.label} {explanation.score:.2f}" if explanation.label else "its numbers"
    hard = ", hard" if prediction.hard else ""
    return f"{prediction.id}: {label}{hard}\n{explanation.text(rate_hz)}"
