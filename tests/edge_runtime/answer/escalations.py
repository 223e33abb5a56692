"""An escalation that holds what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge_runtime.types import Hard


@dataclass
class HeldEscalation:
    cases: list[Hard] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)
    reason: str = ""
    hold: bool = False
    """Keep `done` callbacks until the test calls them; otherwise everything is committed at once."""
    short: bool = True

    def refuses(self) -> str:
        return self.reason

    def takes_short(self) -> bool:
        return self.short

    def submit(self, cases: Sequence[Hard], done: Callable[[], None] | None) -> None:
        self.cases += cases
        if done is not None:
            self.held.append(done)
        if not self.hold:
            self.commit(len(self.held))

    def commit(self, n: int = 1, *, refused: Sequence[str] = ()) -> None:
        """Let go of the first n offers; cases with these ids were refused."""
        for case in self.cases:
            if case.prediction.id in refused:
                case.prediction.route = "local"
        for _ in range(n):
            self.held.pop(0)()
