"""State of updates that survives a power cut: the bundle that runs, the one that is tried, and those held back.

::

    idle ─► shadow ─► trial ─► idle     the candidate has become `running`
      ▲        │        │
      └────────┴────────┘               rolled back: the candidate is held back, `running` is what it was

A state is a value; each function here gives the next one. The one file that holds it is written by `UpdateStore.save`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from edge_runtime import schema
from edge_runtime.errors import StoreCorrupt
from edge_runtime.operate.update.prove import DisputedLabels

Phase = Literal["idle", "shadow", "trial"]
Result = Literal["accepted", "rolled back", "refused"]

BY_OPERATOR = "an operator went back"

_MAGIC = b"edge-update 1 "
_KEPT = 32
"""Refusals and versions held back that are kept."""
_HISTORY = 20
"""Outcomes that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A bundle in the update folder, named by its digest there."""

    name: str
    version: int
    sha256: str
    """Of the file."""
    by_operator: bool = False
    """An operator at the device asked for it: labels need not prove it."""

    @property
    def model(self) -> str:
        """Name and version as predictions carry them."""
        return f"{self.name}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A version that failed here. It is not tried again unless an operator says so."""

    name: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The last announcement of one name that was followed; an older one is refused."""

    sequence: int
    digest: str
    """SHA-256 of the signed bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """End of an update."""

    bundle: str
    """Name and version; of a refused file that was dropped in, the file's name."""
    sha256: str
    """Of the file; empty where the configuration names it."""
    result: Result
    reason: str = ""
    at_s: float = 0.0
    """When, seconds since 1970; 0 until it is written, since only `UpdateStore` knows the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """A change that labels proved to be better; later labels may still reverse it."""

    sha256: str
    """Of the new bundle's file."""
    against: str
    """Name and version of the model that answered before."""
    labels: DisputedLabels
    """Those that proved it."""
    windows: tuple[int, ...]
    """Windows that had these labels, as drawn (`edge_runtime.store.cases.draw`): the cases may go, and others come."""
    attempt: int = -1
    """Number of the try that proved it; -1: of a version that did not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateState:
    """All of it."""

    phase: Phase = "idle"
    running: Installed | None = None
    """None: the bundle that the configuration names."""
    previous: Installed | None = None
    """Bundle before `running`; None: the configured one."""
    candidate: Installed | None = None
    """In phase ``shadow`` or ``trial``: what is tried."""
    starts: int = 0
    """Starts of the candidate in this phase whose ends were neither orderly nor after an hour of answers."""
    highest: dict[str, int] = field(default_factory=dict)
    """By name: the highest version that has passed its trial here. It survives every rollback."""
    held: tuple[HeldBack, ...] = ()
    granted: tuple[str, ...] = ()
    """Versions, as ``name/version``, that an operator wants tried although they were held back."""
    refused: dict[str, str] = field(default_factory=dict)
    """By SHA-256 of the file: why it was refused, so that a retained announcement does not fetch it for ever."""
    on_hold: bool = False
    """An operator wants no updates for now."""
    last: str = ""
    """Last event, one line for people."""
    floors: dict[str, Floor] = field(default_factory=dict)
    """By name of the bundle: the announcement with the highest sequence number. It survives every rollback."""
    seen_s: float = 0.0
    """The latest time that was seen, seconds since 1970: for boards whose clock does not know the date."""
    filters: tuple[str, ...] = ()
    """Topic filters that chunks were asked for with; the session may still have them after a crash."""
    history: tuple[UpdateOutcome, ...] = ()
    """Outcomes of the last updates, the oldest first."""
    since_s: float = 0.0
    """When the candidate's phase began, seconds since 1970; 0 until it is written, as in `UpdateOutcome`."""
    attempt: int = 0
    """Number of candidates that were tried: labels of one try do not count in another."""
    proved: Proved | None = None
    """Of the last candidate that labels proved to be better."""

    def held_back(self, name: str, version: int) -> HeldBack | None:
        """Return whether this version is held back, and why."""
        return next((one for one in self.held if (one.name, one.version) == (name, version)), None)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the outcomes of the last updates, the latest first, as plain values."""
        return [asdict(one) for one in reversed(self.history)]


def tried(state: UpdateState, candidate: Installed, phase: Phase, proved: Proved | None = None) -> UpdateState:
    """Move the candidate into a phase; being loaded for it is its first start.

    Args:
        state: so far.
        candidate: what is tried.
        phase: how.
        proved: proof by labels, where there were any; an earlier candidate's is kept.
    """
    return replace(
        state, phase=phase, candidate=candidate, starts=1, since_s=0.0, last=f"{candidate.model}: {phase}",
        held=tuple(one for one in state.held if (one.name, one.version) != (candidate.name, candidate.version)),
        attempt=state.attempt + (phase == "shadow"),
        proved=None if candidate.by_operator else proved or state.proved,
    )  # fmt: skip


def started_again(state: UpdateState) -> UpdateState:
    """Count one more start of the candidate; to be written before it is loaded."""
    return replace(state, starts=state.starts + 1)


def starts_cleared(state: UpdateState) -> UpdateState:
    """Clear failed starts: the process stopped as it was told to, or the candidate has answered for long."""
    return replace(state, starts=0)


def confirmed(state: UpdateState) -> UpdateState:
    """Keep the candidate, which proved healthy."""
    new = state.candidate
    assert new is not None
    return replace(
        state, phase="idle", running=new, previous=state.running, candidate=None, starts=0,
        highest={**state.highest, new.name: max(new.version, state.highest.get(new.name, 0))},
        granted=tuple(one for one in state.granted if one != new.model),
        last=f"{new.model} runs", history=_after(state, new, "accepted"),
    )  # fmt: skip


def configured(state: UpdateState, model: str) -> UpdateState:
    """Prefer a newer bundle that the configuration names: nothing that was installed runs."""
    outcome = UpdateOutcome(bundle=model, sha256="", result="accepted", reason="the configuration names it")
    return replace(
        state, phase="idle", running=None, previous=None, candidate=None, starts=0, last=f"{model} was configured",
        history=_kept(state, outcome),
    )  # fmt: skip


def rolled_back(state: UpdateState, reason: str) -> UpdateState:
    """Drop the candidate, which failed; what ran before runs on."""
    assert state.candidate is not None
    failed = HeldBack(name=state.candidate.name, version=state.candidate.version, reason=reason)
    return replace(
        state, phase="idle", candidate=None, starts=0, held=(*state.held, failed)[-_KEPT:],
        last=f"{failed.name}/{failed.version} is held back: {reason}",
        history=_after(state, state.candidate, "rolled back", reason),
    )  # fmt: skip


def withdrawn(state: UpdateState, reason: str = BY_OPERATOR) -> UpdateState:
    """Go back: from a candidate, or from what runs to what ran before it. It is held back."""
    if state.candidate is not None:
        return rolled_back(state, reason)
    if state.running is None:
        return replace(state, last="there is nothing to go back to: the configured bundle runs")
    gone = HeldBack(name=state.running.name, version=state.running.version, reason=reason)
    return replace(
        state, running=state.previous, previous=None, held=(*state.held, gone)[-_KEPT:],
        last=f"{gone.name}/{gone.version} is held back: {reason}",
        history=_after(state, state.running, "rolled back", reason),
    )  # fmt: skip


def refusing(state: UpdateState, bundle: str, sha256: str, reason: str, *, for_good: bool = True) -> UpdateState:
    """Refuse this file; `for_good`, it is not fetched again."""
    refused = {**state.refused, sha256: reason} if for_good else state.refused
    return replace(
        state, refused=dict(list(refused.items())[-_KEPT:]), last=f"refused: {reason}",
        history=_kept(state, UpdateOutcome(bundle=bundle, sha256=sha256, result="refused", reason=reason)),
    )  # fmt: skip


def _after(state: UpdateState, bundle: Installed, result: Result, reason: str = "") -> tuple[UpdateOutcome, ...]:
    return _kept(state, UpdateOutcome(bundle=bundle.model, sha256=bundle.sha256, result=result, reason=reason))


def _kept(state: UpdateState, outcome: UpdateOutcome) -> tuple[UpdateOutcome, ...]:
    return (*state.history, outcome)[-_HISTORY:]


def stamped(state: UpdateState, wall_s: float) -> UpdateState:
    """Give what has just begun or ended its time: that of the clock, or the latest that was seen."""
    at_s = round(max(wall_s, state.seen_s), 1)
    if state.candidate is not None and not state.since_s:
        state = replace(state, since_s=at_s)
    if not state.history or state.history[-1].at_s:
        return state
    return replace(state, history=(*state.history[:-1], replace(state.history[-1], at_s=at_s)))


def forgiven(state: UpdateState) -> UpdateState:
    """Try again for an operator what was held back or refused, and take updates.

    The latest time that was seen is forgotten too: a clock that was once wrong by years must not end updates for good.
    """
    granted = tuple(f"{one.name}/{one.version}" for one in state.held)
    return replace(
        state, held=(), refused={}, on_hold=False, seen_s=0.0, granted=(*state.granted, *granted)[-_KEPT:],
        last="an operator lifted what was held back",
    )  # fmt: skip


def opened(state: UpdateState) -> UpdateState:
    """Take updates again, for the one file that an operator has brought; other versions stay held back."""
    return replace(state, on_hold=False, seen_s=0.0, last="an operator brought a bundle")


def paused(state: UpdateState) -> UpdateState:
    """Take no updates for now, as an operator wants."""
    return replace(state, on_hold=True, last="an operator put updates on hold")


def dump(state: UpdateState) -> bytes:
    """Encode the file: a line with the SHA-256 of what follows, then JSON."""
    body = orjson.dumps(state, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def parse(data: bytes) -> UpdateState:
    """Read the file.

    Raises:
        StoreCorrupt: it is damaged, or not of this version.
    """
    head, _, body = data.partition(b"\n")
    if head != _MAGIC + hashlib.sha256(body).hexdigest().encode():
        raise StoreCorrupt("the update state is damaged: its checksum does not hold")
    try:
        state = schema.load(UpdateState, orjson.loads(body))
    except (orjson.JSONDecodeError, schema.SchemaError) as error:
        raise StoreCorrupt(f"the update state is not of this version: {error}") from error
    if (state.candidate is None) != (state.phase == "idle"):
        raise StoreCorrupt("the update state contradicts itself: a candidate goes with shadow and trial only")
    return state
