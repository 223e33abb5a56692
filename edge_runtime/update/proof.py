"""Proof under way: keeps windows on which a candidate and the old model differ, and reads what people say of them.

1. What is compared is what the two networks say of one window, as the shadow run asks them.
2. A person does one thing for a while, so windows that follow one another tell the same. Those kept are a random sample
   of all windows on which the two have differed since the run began, and people are asked in random order
   (`edge_runtime.cases.store`). Labels of the first minutes say nothing of a day: let the shadow run last one.
3. Labels are counted in the file of the cases, where a person put them at the terminal or on the page; what a broker
   delivers never comes that far. So a proof goes on after a restart, and an erased case counts no more.
4. A label counts for the model that gave it; a window that a person skipped counts not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from edge_runtime.cases.case import SKIP, Rival
from edge_runtime.cases.keeper import CaseKeeper
from edge_runtime.cases.store import MOST_DRAWN, CaseStore, drawn
from edge_runtime.clock import Clock
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import OutputContract
from edge_runtime.model.loading import Model
from edge_runtime.tasks import Decision
from edge_runtime.types import Float32
from edge_runtime.update import check
from edge_runtime.update.config import UpdateConfig
from edge_runtime.update.job import Jobs
from edge_runtime.update.prove import Labels, Said, reversed_by, verdict
from edge_runtime.update.state import Proved, State
from edge_runtime.windowing.window import Window

log = logging.getLogger(__name__)

_MEANINGS: Final[Mapping[tuple[bool, bool], Said]] = {(True, False): "for", (False, True): "against"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Labels of people so far."""

    said: Mapping[int, Said] = field(default_factory=dict)
    """By window, as drawn."""
    waiting: int = 0
    """Windows that are kept and have no label."""
    last_draw: int = MOST_DRAWN
    """Windows that are drawn later than this one would not be kept."""

    @property
    def labels(self) -> Labels:
        """All of them."""
        return Labels.of(self.said.values())

    def later(self, windows: Collection[int]) -> Labels:
        """Return the labels of windows other than these."""
        return Labels.of(said for draw, said in self.said.items() if draw not in windows)

    def line(self, most: int) -> str:
        """Say it to people, one line."""
        return f"{self.labels.given} of {most} labels: {self.labels}; {self.waiting} windows wait for one"


def standing_of(store: CaseStore, bundle: str, against: str = "") -> Standing:
    """Count labels (rule 4).

    Args:
        store: where they are.
        bundle: SHA-256 of the file of the candidate.
        against: name and version of the old model; empty: the one of the latest window.

    Raises:
        StoreError: the disk fails.
    """
    found = store.rivals(bundle)
    against = against or (found[-1][1].against if found else "")
    said: dict[int, Said] = {}
    waiting = 0
    for draw, rival, label in found:
        if rival.against != against or label == SKIP:
            continue
        if not label:
            waiting += 1
        else:
            said[draw] = _MEANINGS.get((label == rival.new, label == rival.old), "neither")
    return Standing(said=said, waiting=waiting, last_draw=store.last_draw())


class Proof:
    """One candidate's at a time. All methods belong to the loop's thread.

    Args:
        config: how many labels, how long.
        keeper: keeps the windows.
        jobs: reads the file on a thread.
        clock: when to read it again, and since when a candidate is tried.
    """

    def __init__(self, config: UpdateConfig, keeper: CaseKeeper, jobs: Jobs, clock: Clock) -> None:
        self._config = config
        self._keeper = keeper
        self._jobs = jobs
        self._clock = clock
        self._of = ("", "")
        self._decide: Callable[[Float32], Decision] | None = None
        self._labels: tuple[str, ...] = ()
        self._read_at = float("-inf")
        self._reading = False
        self.standing: Standing | None = None
        """None until the file was read."""

    def impossible(self, old: Manifest, new: Manifest) -> str | None:
        """Explain why nothing can be proved of a candidate, one line; None if it can."""
        if why := check.difference(old, new):
            return f'prove = "better" needs two bundles with the same {why}'
        if type(new.output) is not OutputContract:
            return 'prove = "better" needs a model that gives each window one label; set prove = "same" for this one'
        return None

    def follow(self, bundle: str, against: str, model: Model | None = None) -> None:
        """Turn to a candidate.

        Args:
            bundle: SHA-256 of its file.
            against: name and version of the old model.
            model: either of both: it names labels; None where nothing is compared.
        """
        if (bundle, against) != self._of:
            self.standing, self._read_at = None, float("-inf")
        self._of = (bundle, against)
        if model is not None:
            self._decide, self._labels = model.task().decide, model.manifest.output.labels

    def differ(self, window: Window, old: Float32, new: Float32) -> None:
        """Keep a window on which they differ, where it is drawn (rule 2)."""
        if self.standing is not None and drawn(window.id) > self.standing.last_draw:
            return
        bundle, against = self._of
        assert self._decide is not None, "follow() comes first"
        ours, theirs = self._decide(np.stack((old, new))).best
        rival = Rival(bundle=bundle, against=against, old=self._labels[ours], new=self._labels[theirs])
        self._keeper.differ(window, round(float(old[ours]), 7), rival)

    def _read(self) -> None:
        """Read the labels, on a thread, where it is time to."""
        store, now, of = self._keeper.store, self._clock.monotonic(), self._of
        if store is None or self._reading or now < self._read_at + self._config.poll_s:
            return
        self._reading, self._read_at = True, now

        def found(standing: Standing) -> None:
            self._reading = False
            if of == self._of:
                self.standing = standing

        def failed(error: Exception) -> None:
            self._reading = False
            log.warning("update: could not read the labels: error=%s", error)

        self._jobs.run(lambda: standing_of(store, *of), found, failed)

    def resume(self, state: State, model: Model | None = None) -> bool:
        """Turn to what was accepted; return whether it is what is tried, or what runs."""
        proved, answering = state.proved, state.candidate or state.running
        if proved is None or answering is None or answering.sha256 != proved.sha256:
            return False
        self.follow(proved.sha256, proved.against, model)
        return True

    def reversal(self, state: State) -> str | None:
        """Explain why what was accepted, and runs, must go, one line; None if it stays."""
        return self.fault(state) if self.resume(state) else None

    def fault(self, state: State) -> str | None:
        """Explain by the labels why a candidate, or what was accepted, must not answer, one line; None if it may."""
        self._read()
        if self.standing is None:
            return None
        if state.phase == "shadow":
            over = self._clock.wall() - state.since_s > self._config.prove_s
            found = verdict(self.standing.labels, self._config.prove_labels, is_over=over)
            return found.reason if found.outcome == "reject" else None
        proved = state.proved
        return None if proved is None else reversed_by(self.standing.later(proved.windows))

    @property
    def accepted(self) -> bool:
        """The labels prove that the candidate is better."""
        most = self._config.prove_labels
        return self.standing is not None and verdict(self.standing.labels, most).outcome == "accept"

    @property
    def proved(self) -> Proved | None:
        """Labels that proved an accepted candidate, to be kept; None where none did."""
        if self.standing is None or not self.accepted:
            return None
        bundle, against = self._of
        windows = tuple(self.standing.said)
        return Proved(sha256=bundle, against=against, labels=self.standing.labels, windows=windows)

    def status(self) -> dict[str, Any]:
        """Build its part of the status, as plain values."""
        found = self.standing or Standing()
        labels = found.labels
        return {
            "labels": labels.given, "of": self._config.prove_labels, "for": labels.wins, "against": labels.losses,
            "neither": labels.neither, "waiting": found.waiting,
        }  # fmt: skip
