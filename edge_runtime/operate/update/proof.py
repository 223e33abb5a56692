"""Proof under way: keeps windows on which a candidate and the old model differ, and reads what people say of them.

1. What is compared is what the two networks say of one window, as the shadow run asks them.
2. A person does one thing for a while, so windows that follow one another tell the same. Those kept are drawn of all
   on which the two have differed since the run began, by a secret of this device (`edge_runtime.store.cases.draw`), and
   people are asked in that order. Labels of the first minutes say nothing of a day: let the shadow run last one.
3. The sample is closed when the shadow run has passed and it has as many labels as the first look asks for, or when
   `prove_s` is over. Until then nothing is decided; from then on no window joins it, or takes a place in it: who sends
   readings of ever new keys can keep neither others out nor the proof from its end.
4. Labels are counted in the file of the cases, where a person put them: on the page, or by ``edge-runtime review``.
   What a broker or the cloud says never counts. So a proof goes on after a restart, and an erased case counts no more.
5. A label counts for the model that gave it; a window that a person skipped counts not at all. One try of a candidate
   knows nothing of the labels of another.
6. `prove_s` is powered time, kept beside the cases over restarts: the wall clock has no say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import OutputContract
from edge_runtime.model.serving.loading import Model
from edge_runtime.operate.update import check
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.job import Jobs
from edge_runtime.operate.update.prove import DisputedLabels, Said, Verdict, looks, reversed_by, verdict
from edge_runtime.operate.update.state import Proved, UpdateState
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.cases.case import SKIP, Rival
from edge_runtime.store.cases.draw import PLACES, Sample
from edge_runtime.store.cases.keeper import CaseKeeper
from edge_runtime.store.cases.store import CaseStore
from edge_runtime.types import Decision, Float32

log = logging.getLogger(__name__)

_MEANINGS: Final[Mapping[tuple[bool, bool], Said]] = {(True, False): "for", (False, True): "against"}
COUNTED: Final = frozenset({"page", "command"})
"""Origins of labels that may decide (rule 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Labels of people so far."""

    said: Mapping[int, Said | None] = field(default_factory=dict)
    """By window of the sample, as drawn, in the order in which they count; None: it has no label that counts."""
    kept: Sequence[tuple[str, int]] = ()
    """Key and draw of the windows that are kept."""
    places: int = PLACES
    closed: bool = False
    ran_s: float = 0.0
    """Powered time since the sample was begun."""
    others: int = 0
    """Labels of other tries of the candidate."""

    @property
    def labels(self) -> DisputedLabels:
        """All labels of the sample, in whatever order they came."""
        return DisputedLabels.of(said for said in self.said.values() if said)

    @property
    def waiting(self) -> int:
        """Windows that are kept and have no label."""
        return sum(said is None for said in self.said.values())

    def counted(self, windows: Collection[int] = ()) -> list[Said]:
        """Return the labels up to the first window that has none, without these windows."""
        labels = (said for draw, said in self.said.items() if draw not in windows)
        return list(takewhile(bool, labels))  # type: ignore[arg-type] # none of them is None

    def line(self, most: int) -> str:
        """Say it to people, one line."""
        n = len(self.counted())
        look = next((look for look in looks(most) if look > n), n)
        return (
            f"{self.labels.given} of {most} labels: {self.labels}; {self.waiting} windows wait for one; "
            f"{n} of {look} in the order drawn, until they are looked at"
        )


def standing_of(store: CaseStore, bundle: str, against: str = "", attempt: int | None = None) -> Standing:
    """Count labels (rules 4 and 5).

    Args:
        store: the file of the labels.
        bundle: SHA-256 of the file of the candidate.
        against: name and version of the old model; empty: any.
        attempt: number of the try; None: the latest.

    Raises:
        StoreError: the disk fails.
    """
    found = store.sample(bundle)
    attempt = max((one.rival.attempt for one in found), default=0) if attempt is None else attempt
    own = [one for one in found if one.rival.attempt == attempt and against in ("", one.rival.against)]
    said: dict[int, Said | None] = {}
    for one in own:
        if one.label != SKIP:
            # A version that kept no origin has accepted its labels already.
            counts = one.label and (one.origin in COUNTED or attempt < 0)
            meaning = _MEANINGS.get((one.label == one.rival.new, one.label == one.rival.old), "neither")
            said[one.draw] = meaning if counts else None
    others = sum(bool(one.label) for one in found) - sum(bool(one.label) for one in own)
    return Standing(said=said, kept=[(one.key, one.draw) for one in own], others=others)


class Proof:
    """One candidate's at a time. All methods belong to the loop's thread.

    Args:
        config: how many labels, how long.
        keeper: keeps the windows.
        jobs: reads the file on a thread.
        clock: monotonic time: when to read it again, and since when a candidate is tried.
    """

    def __init__(self, config: UpdateConfig, keeper: CaseKeeper, jobs: Jobs, clock: Clock) -> None:
        self._config = config
        self._keeper = keeper
        self._jobs = jobs
        self._clock = clock
        self._of = ("", "", 0)
        self._decide: Callable[[Float32], Decision] | None = None
        self._labels: tuple[str, ...] = ()
        self._read_at = float("-inf")
        self._reading = self._may_close = False
        self._sample = Sample()
        self.standing: Standing | None = None
        """None until the file was read."""

    def impossible(self, old: Manifest, new: Manifest) -> str | None:
        """Explain why nothing can be proved of a candidate, one line; None if it can."""
        if why := check.difference(old, new):
            return f'prove = "better" needs two bundles with the same {why}'
        if type(new.output) is not OutputContract:
            return 'prove = "better" needs a model that gives each window one label; set prove = "same" for this one'
        return None

    def use(self, bundle: str, against: str, attempt: int, model: Model | None = None) -> None:
        """Turn to a candidate.

        Args:
            bundle: SHA-256 of its file.
            against: name and version of the old model.
            attempt: number of the try.
            model: either of both: it names labels; None where nothing is compared.
        """
        if (bundle, against, attempt) != self._of:
            self.standing, self._read_at, self._sample, self._may_close = None, float("-inf"), Sample(), False
        self._of = (bundle, against, attempt)
        if model is not None:
            self._decide, self._labels = model.task().decide, model.manifest.output.labels

    def differ(self, window: Window, old: Float32, new: Float32) -> None:
        """Keep a window on which they differ, where it is drawn (rule 2)."""
        store, (bundle, against, attempt) = self._keeper.store, self._of
        closed = self.standing is not None and self.standing.closed
        if store is None or closed or not self._sample.offer(window.key, store.draw(window.id)):
            return
        assert self._decide is not None, "use() comes first"
        ours, theirs = self._decide(np.stack((old, new))).best
        rival = Rival(bundle=bundle, against=against, attempt=attempt, old=self._labels[ours], new=self._labels[theirs])
        self._keeper.differ(window, round(float(old[ours]), 7), rival)

    def _read(self, *, begun: bool) -> None:
        """Read the labels, on a thread, where it is time to; begin the sample, or close it, where it is to be."""
        store, now, of, may_close = self._keeper.store, self._clock.monotonic(), self._of, self._may_close
        if store is None or self._reading or now < self._read_at + self._config.poll_s:
            return
        self._reading, self._read_at = True, now

        def read() -> Standing:
            if not begun:
                return replace(standing_of(store, *of), closed=True)
            pair = Rival(bundle=of[0], against=of[1], attempt=of[2], old="", new="")
            ran_s, closed, places = store.begin_sample(pair, now)
            standing = standing_of(store, *of)
            enough = standing.labels.given >= looks(self._config.prove_labels)[0]
            if not closed and ((may_close and enough) or ran_s > self._config.prove_s):  # rule 3
                store.close_sample(pair)
                standing, closed = standing_of(store, *of), True  # a window may have joined it meanwhile
            return replace(standing, ran_s=ran_s, closed=closed, places=places)

        def found(standing: Standing) -> None:
            self._reading = False
            if of != self._of:
                return
            if begun and self.standing is None and standing.others and of[2] == 0:
                log.warning(
                    "update: began the proof again: labels=%d reason=they were drawn without a secret", standing.others
                )
            self.standing = standing
            self._sample = Sample(standing.kept, standing.places)

        def failed(error: Exception) -> None:
            self._reading = False
            self._keeper.distrust(error)
            log.warning("update: could not read the labels: error=%s", error)

        self._jobs.run(read, found, failed)

    def resume(self, state: UpdateState, model: Model | None = None) -> bool:
        """Turn to what was accepted; return whether it is what is tried, or what runs."""
        proved, answering = state.proved, state.candidate or state.running
        if proved is None or answering is None or answering.sha256 != proved.sha256:
            return False
        self.use(proved.sha256, proved.against, proved.attempt, model)
        return True

    def reversal(self, state: UpdateState) -> str | None:
        """Explain why what was accepted, and runs, must go, one line; None if it stays."""
        return self.fault(state) if self.resume(state) else None

    def fault(self, state: UpdateState) -> str | None:
        """Explain by the labels why a candidate, or what was accepted, must not answer, one line; None if it may."""
        self._read(begun=state.phase == "shadow")
        if self.standing is None:
            return None
        if state.phase == "shadow":
            found = self._verdict(self.standing)
            return found.reason if found.outcome == "reject" else None
        proved = state.proved
        if proved is None:
            return None
        return reversed_by(self.standing.counted(proved.windows), self._config.prove_labels)

    def _verdict(self, standing: Standing) -> Verdict:
        if not standing.closed:
            return Verdict(outcome="go on")
        said = standing.counted()
        is_last = standing.ran_s > self._config.prove_s or len(said) == len(standing.said)
        return verdict(said, self._config.prove_labels, is_last=is_last)

    def accepts(self) -> bool:
        """Return whether the labels prove that the candidate is better; to be called once its shadow run has passed."""
        self._may_close = True
        return self.standing is not None and self._verdict(self.standing).outcome == "accept"

    @property
    def proved(self) -> Proved | None:
        """Labels that proved an accepted candidate, to be kept; None where none did."""
        if self.standing is None or self._verdict(self.standing).outcome != "accept":
            return None
        bundle, against, attempt = self._of
        windows = tuple(draw for draw, said in self.standing.said.items() if said)
        return Proved(sha256=bundle, against=against, labels=self.standing.labels, windows=windows, attempt=attempt)

    def status(self) -> dict[str, Any]:
        """Build its part of the status, as plain values."""
        found = self.standing or Standing()
        labels = found.labels
        return {
            "labels": labels.given, "of": self._config.prove_labels, "for": labels.wins, "against": labels.losses,
            "neither": labels.neither, "waiting": found.waiting, "counted": len(found.counted()),
            "closed": found.closed,
        }  # fmt: skip
