"""Sets that accuracy is measured on: recipe, folders, folds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """One set.

    Attributes:
        name: of the set.
        recipe: that trains on it.
        data: folders or files under the shared data, by the recipe's keys.
        folds: into which its groups are dealt.
        groups: what a group is.
        kind: which peers fit it.
        public: made of a Python package alone; without the shared data it is the one that runs.
    """

    name: str
    recipe: Path
    data: dict[str, str]
    folds: int
    groups: str
    kind: Literal["motion", "sound", "signal"]
    public: bool = False

    def folders(self, shared: Path, wheel: Path | None) -> dict[str, Path]:
        """Return where its data lies."""
        if self.public and wheel is not None:
            return dict.fromkeys(self.data, wheel)
        return {key: shared / "data" / folder for key, folder in self.data.items()}


SETS = {
    each.name: each
    for each in (
        Set(
            name="exercise-watch", recipe=EXAMPLES / "exercise-watch" / "recipe.toml", data={"seglearn": ""}, folds=7,
            groups="people", kind="motion", public=True,
        ),
        Set(
            name="activity-watch", recipe=EXAMPLES / "activity-watch" / "recipe.toml",
            data={"har": "har-phone-watch"}, folds=5, groups="people", kind="motion",
        ),
        Set(
            name="heartbeat-ecg", recipe=EXAMPLES / "heartbeat-ecg" / "recipe.toml", data={"ecg": "ecg-mitbih"},
            folds=4, groups="records", kind="signal",
        ),
        Set(
            name="spoken-digits", recipe=EXAMPLES / "spoken-digits" / "recipe.toml",
            data={"fsdd": "spoken-digits-fsdd", "commands": "speech-commands-mini"}, folds=4, groups="speakers",
            kind="sound",
        ),
        Set(
            name="speech-commands", recipe=RECIPES / "speech-commands.toml", data={"commands": "speech-commands-mini"},
            folds=4, groups="speakers", kind="sound",
        ),
    )
}  # fmt: skip
