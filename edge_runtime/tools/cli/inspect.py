"""``edge-runtime inspect``: what a bundle says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.base.system.printing import shortened
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle

_LONGEST: Final = 200
"""Characters shown of a text that a bundle holds; ``--json`` shows all."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()


@command(
    "inspect",
    "show what a bundle takes, answers and promises",
    "Show what a bundle says of itself, after its sizes and digests have been checked. Loads no model.",
    "inspect examples/exercise-watch/watch.edge",
)
def run(options: InspectOptions) -> CommandAnswer:
    """Describe the bundle."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.bundle.describe import describe  # noqa: PLC0415
    from edge_runtime.signal.drift.words import notices  # noqa: PLC0415
    from edge_runtime.signal.intake import words  # noqa: PLC0415

    bundle = open_bundle(options.bundle)
    expects = words.references(bundle.manifest.references, bundle.manifest.input)
    examples, noticed = examples_of(bundle), notices(bundle.manifest.sensors)
    parts = {"examples": examples, "expects": expects, "notices": noticed}
    description = describe(bundle) | {name: part for name, part in parts.items() if part}
    if noticed and not options.json:
        description["manifest"].pop("sensors")  # a thousand numbers, which `notices` puts into words
    return CommandAnswer(description, [*_lines(description), *([] if expects else [words.UNREFERENCED])])


def examples_of(bundle: Bundle) -> dict[str, int]:
    """Count a bundle's examples by label; none where it is no embedding."""
    from edge_runtime.manifest.outputs import EmbeddingOutput  # noqa: PLC0415
    from edge_runtime.model.tasks.embedding import bundled  # noqa: PLC0415 - only of a bundle that may have some

    output = bundle.manifest.output
    if not isinstance(output, EmbeddingOutput):
        return {}
    examples = bundled(output, bundle.array)
    return {label: examples.places.count(place) for place, label in enumerate(examples.labels)}


def _lines(value: Any, indent: str = "") -> list[str]:
    """Nested data as indented text: short lists on one line, tables below their name."""
    lines: list[str] = []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict) and item:
            lines += [f"{indent}{key}:", *_lines(item, indent + "  ")]
        elif isinstance(item, list | tuple) and item and isinstance(item[0], dict):
            lines.append(f"{indent}{key}:")
            for entry in item:
                first, *rest = _lines(entry, indent + "    ")
                lines += [f"{indent}  - {first.strip()}", *rest]
        elif isinstance(item, list | tuple):
            lines.append(f"{indent}{key}: {shortened(', '.join(shortened(str(one), _LONGEST) for one in item))}")
        else:
            lines.append(f"{indent}{key}: {shortened(str(item), _LONGEST)}")
    return lines
