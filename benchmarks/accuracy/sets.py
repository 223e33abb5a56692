"""Sets that accuracy is measured on: recipe, recordings, folds, and what others have reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.accuracy import prepare
from edge_runtime.errors import ConfigError

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RECIPES = Path(__file__).parent / "recipes"
PACKAGES = {"seglearn": "seglearn==1.2.5", "aeon": "aeon==1.6.0"}
"""Python packages that carry recordings, as pip knows them."""

CLIPS = "each recording is one clip, and no window follows another"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An accuracy that others have published.

    Attributes:
        accuracy: theirs.
        source: who and where; how their split differs from ours, if it does.
    """

    accuracy: float
    source: str


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
        package: Python package that holds the recordings, and alone suffices; empty: the shared data.
        prepare: brings the recordings into a form that the recipe reads; None: they are.
        apart: groups of an official test set; they alone are judged.
        no_stream: why a window says nothing about the next one; empty: the recordings are streams.
        published: best accuracy known; None: nothing was published by such a split.
    """

    name: str
    recipe: Path
    data: dict[str, str]
    folds: int
    groups: str
    kind: Literal["motion", "sound", "signal"]
    package: Literal["", "seglearn", "aeon"] = ""
    prepare: Callable[[Path, Path], None] | None = None
    apart: tuple[str, ...] = ()
    no_stream: str = ""
    published: Published | None = None

    def folders(self, shared: Path | None, wheels: dict[str, Path], cache: Path) -> dict[str, Path]:
        """Return where its data lies, prepared once.

        Args:
            shared: the shared data and models, if there.
            wheels: of Python packages by name, those that are there.
            cache: folder for what is prepared.

        Raises:
            ConfigError: the data is not there; says what to do.
        """
        if self.package in wheels:
            found = dict.fromkeys(self.data, wheels[self.package])
        elif shared is None or self.package == "aeon":
            need = (
                f"--{self.package} WHEEL: pip download --no-deps {PACKAGES[self.package]}" if self.package else "--data"
            )
            raise ConfigError(f"{self.name}: left out, since its data is not there ({need})")
        else:
            found = {key: shared / "data" / folder for key, folder in self.data.items()}
        if self.prepare is None:
            return found
        made = cache / "recordings"
        if not made.exists():
            half = cache / "recordings.partial"
            for folder in found.values():
                self.prepare(folder, half)
            half.rename(made)
        return dict.fromkeys(found, made)


UEA = "best of three in the table of 29 UEA sets at GitHub AnonymousUserss/ICML2025-4119-Response, same split"

SETS = {
    each.name: each
    for each in (
        Set(
            name="exercise-watch", recipe=EXAMPLES / "exercise-watch" / "recipe.toml", data={"seglearn": ""}, folds=7,
            groups="people", kind="motion", package="seglearn",
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
            kind="sound", no_stream=CLIPS,
        ),
        Set(
            name="speech-commands", recipe=RECIPES / "speech-commands.toml", data={"commands": "speech-commands-mini"},
            folds=4, groups="speakers", kind="sound", no_stream=CLIPS,
        ),
        Set(
            name="cwru-bearings", recipe=RECIPES / "cwru-bearings.toml", data={"bearings": "bearing-cwru"}, folds=4,
            groups="sizes of the fault", kind="signal", prepare=prepare.bearings,
            no_stream="a bearing is what it is in every window of its recording",
        ),
        Set(
            name="skab-pump", recipe=RECIPES / "skab-pump.toml", data={"pump": "anomaly-skab"}, folds=6,
            groups="experiments", kind="signal", prepare=prepare.pump,
        ),
        Set(
            name="esc10", recipe=RECIPES / "esc10.toml", data={"esc10": "env-sounds-esc10"}, folds=4, groups="folds",
            kind="sound", prepare=prepare.sounds, no_stream=CLIPS,
            published=Published(accuracy=0.957, source="people who listen, Piczak 2015 (five folds, 44.1 kHz)"),
        ),
        Set(
            name="basic-motions", recipe=RECIPES / "basic-motions.toml", data={"series": ""}, folds=5,
            groups="official test set", kind="motion", package="aeon", prepare=prepare.basic_motions,
            apart=(prepare.TEST,), no_stream=CLIPS, published=Published(accuracy=1.0, source=UEA),
        ),
        Set(
            name="japanese-vowels", recipe=RECIPES / "japanese-vowels.toml", data={"series": ""}, folds=5,
            groups="official test set", kind="signal", package="aeon", prepare=prepare.japanese_vowels,
            apart=(prepare.TEST,), no_stream=CLIPS, published=Published(accuracy=0.991, source=UEA),
        ),
    )
}  # fmt: skip
