"""Durability: base of the parts that keep begun windows or readings (`edge_runtime.store.durable`)."""

# ruff: noqa: ARG002 - the base does nothing with what it is given

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_runtime.manifest import InputContract
from edge_runtime.model.serving.model_states import ModelStates
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import AnyWindower
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Done, Reading

Play = Callable[[list[Window]], None]
"""Answers windows for their effect on the states of keys alone."""
Late = Callable[[list[Window], Done], None]
"""Takes windows that were read back after the start."""


class Durability:
    """Durability that keeps nothing; base of the others. All methods belong to the loop's thread."""

    keeps_windows: bool = False
    """Begun windows outlive an orderly stop."""
    writes_readings: bool = False
    """Readings are written before they are acknowledged."""

    @property
    def marks(self) -> tuple[int, int]:
        """Number of the last iteration, and of the last one whose answers are safe."""
        return 0, 0

    def recover(
        self, contract: InputContract, config: WindowConfig, windower: AnyWindower, late: Late, play: Play | None = None
    ) -> tuple[list[Window], Done]:
        """Bring a fresh windower to where the run before was; returns windows to answer, and whom to tell after."""
        return [], lambda: None

    def keep(self, model: ModelStates | None, windower: AnyWindower | None = None) -> None:
        """Keep these states of a model from now on."""

    def save(self, windower: AnyWindower) -> None:
        """Note that a state has changed otherwise than by a reading."""

    def change(self, contract: InputContract, windower: AnyWindower) -> None:
        """Keep windows of another contract from now on."""

    def drained(self) -> bool:
        """Nothing waits for the disk."""
        return True

    def write(self, readings: Sequence[Reading], done: Done) -> None:
        """Write readings of this iteration; `done` is called when they are safe."""
        done()

    def flush_iteration(self, windows: Sequence[Window], windower: AnyWindower) -> Done | None:
        """End the iteration; returns what to call when the answers to `windows` are safe."""
        return None

    def stop(self, windower: AnyWindower, timeout_s: float) -> None:
        """Write the state at an orderly stop, and end."""
