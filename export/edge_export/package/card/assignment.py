"""Files of a command line, assigned to the model stages of a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_export.package.card.spec import Card
from edge_runtime.errors import ConfigError


def assigned(
    card: Card, folder: Path, models: Sequence[Path], named: Sequence[tuple[str, Path]]
) -> list[dict[str, Path]]:
    """Assign files to stages.

    1. ``--stage NAME=FILE`` names it; the n-th of a stage belongs to the n-th variant.
    2. The other stages take `models` in turn, variant by variant.
    3. A stage without either takes the card's `file`, beside the card, in each variant.

    Raises:
        ConfigError: a stage has no file, or files are left over.
    """
    by_name = _named(card, named)  # rule 1
    free = [stage for stage, own in by_name.items() if not own]
    if models and (not free or len(models) % len(free)):
        raise ConfigError(
            f"{len(models)} files for the stages {', '.join(free) or 'none'}; give one for each stage, in this order, "
            "or a multiple for several variants"
        )
    by_name |= {stage: list(models[position :: len(free)]) for position, stage in enumerate(free)}  # rule 2
    by_name |= {one.name: [folder / one.file] for one in card.models if not by_name[one.name] and one.file}  # rule 3
    return _in_turn(by_name)


def _named(card: Card, named: Sequence[tuple[str, Path]]) -> dict[str, list[Path]]:
    by_name: dict[str, list[Path]] = {stage.name: [] for stage in card.models}
    for name, path in named:
        if name not in by_name:
            raise ConfigError(f"--stage {name}: the card has no such model; it has {', '.join(by_name)}")
        by_name[name].append(path)
    return by_name


def _in_turn(by_name: Mapping[str, Sequence[Path]]) -> list[dict[str, Path]]:
    """Return the files of each variant; a stage with one file has it in all of them."""
    count = max(map(len, by_name.values()))
    for stage, own in by_name.items():
        if not own:
            raise ConfigError(f"stage {stage!r} has no file; name it after pack, or write file in the card")
        if len(own) not in (1, count):
            raise ConfigError(f"stage {stage!r} has {len(own)} files, and another one {count}; give as many")
    return [{stage: own[min(k, len(own) - 1)] for stage, own in by_name.items()} for k in range(count)]
