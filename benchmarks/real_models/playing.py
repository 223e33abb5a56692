"""A bundle packed from a card, and its answers to recordings, by the parts of the runtime that answer on a device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from edge_export.package.card import Card, load_card, pack_models
from edge_export.package.card.assignment import assigned
from edge_export.package.card.packing import Packed
from edge_export.package.card.steps import Data, windows_of

from edge_runtime.app.python_api import open_model
from edge_runtime.model.serving.loading import Model
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

CARDS = Path(__file__).resolve().parents[2] / "tests" / "data" / "cards"
_ROUND_S = 0.3
_KEYS = 32


def card_of(name: str) -> Card:
    """Read a card by its name."""
    return load_card(CARDS / f"{name}.toml")


def pack(path: Path, card: str, files: Sequence[Path], data: Data | None = None) -> Packed:
    """Pack files by a card."""
    loaded = card_of(card)
    return pack_models(path, assigned(loaded, CARDS, files, []), loaded, folder=CARDS, data=data)


class Bundle:
    """An open bundle and its variants.

    Args:
        path: the ``.edge`` file.
        packed: what packing said of it.
    """

    def __init__(self, path: Path, packed: Packed) -> None:
        self.path = path
        self.packed = packed
        self.variants = tuple(variant.name for variant in packed.manifest.variants)
        self._models: dict[str, Model] = {}

    def close(self) -> None:
        """Free the models."""
        for model in self._models.values():
            model.close()
        self._models.clear()

    def model(self, variant: str = "") -> Model:
        """Return a variant, loaded as a device loads it; the first one where none is named."""
        name = variant or self.variants[0]
        if name not in self._models:
            self._models[name] = open_model(self.path, variant=name)
        return self._models[name]

    def windows(self, recording: Path) -> list[Window]:
        """Cut a recording."""
        return list(windows_of(self.packed.manifest.input, recording, None))

    def rows(self, recording: Path, variant: str = "") -> Float32:
        """Answer a recording from a reset: (answers, ...) numbers of the steps that have one."""
        return self.answers(self.windows(recording), variant)

    def answers(self, windows: Sequence[Window], variant: str = "") -> Float32:
        """Answer windows, those of a key in their order."""
        model = self.model(variant)
        return np.concatenate([rows for rows in _predicted(model, windows) if len(rows)])


def _predicted(model: Model, windows: Sequence[Window]) -> Iterator[Float32]:
    for at in range(0, len(windows), model.max_batch):
        yield np.array(model.predict(windows[at : at + model.max_batch]).rows, np.float32)


def arrays(folder: Path, name: str, recordings: Mapping[str, Float32], channels: Sequence[str], rate_hz: float) -> Path:
    """Write arrays (samples, channels) as one NPZ recording, each with a key of its own; returns its path."""
    path = folder / f"{name}.npz"
    parts = [np.asarray(one, np.float32).reshape(len(one), -1) for one in recordings.values()]
    np.savez(
        path,
        x=np.concatenate(parts),
        t=np.concatenate([np.arange(len(part)) / rate_hz for part in parts]),
        offset=np.cumsum([0, *map(len, parts)]),
        key=np.array(list(recordings)),
        channels=np.array(list(channels)),
    )
    return path


class Cost(NamedTuple):
    """Time of a step, and memory of a key.

    Attributes:
        alone_us: of one key, microseconds of processor time a step.
        together_us: of 32 keys in a call, for each.
        state_bytes: that a key leaves for its next step.
    """

    alone_us: float
    together_us: float
    state_bytes: int


def cost(bundle: Bundle, recording: Path) -> Cost:
    """Time the first variant on the steps of a recording."""
    windows = bundle.windows(recording)
    windows = [window for window in windows if window.key == windows[0].key][:256]
    model = bundle.model()
    alone = _timed(model, [[window] for window in windows])
    crowd = [[window._replace(key=f"{key}") for key in range(_KEYS)] for window in windows[:64]]
    return Cost(alone, _timed(model, crowd) / _KEYS, bundle.packed.state_bytes)


def _timed(model: Model, calls: Sequence[Sequence[Window]]) -> float:
    """Return the least processor time of a call in several rounds, microseconds."""
    for call in calls:
        model.predict(call)
    best = float("inf")
    until = time.monotonic() + _ROUND_S
    while time.monotonic() < until or best == float("inf"):
        began = time.process_time_ns()
        for call in calls:
            model.predict(call)
        best = min(best, (time.process_time_ns() - began) / len(calls) / 1e3)
    return best
