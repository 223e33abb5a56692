"""The table ``[gate]``: the operator's bounds on what is sent to the cloud."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The operator's bounds on what is sent to the cloud."""

    threshold: float | None = None
    """Replaces the bundle's threshold; its promise is then void, and it stays where it is for every key."""
    adapt: bool = True
    """The threshold of each key moves, so that the share of its windows is hard that the bundle or `share` asks for
    (`edge_runtime.answer.gate.adaptive`); false: it stays where the bundle has it."""
    share: float | None = None
    """Share of the windows of each key that is to be hard; None: as the bundle asks."""
    max_local_error: float | None = None
    """Share of the trusted answers that may be wrong by the audits: where more are, more windows of every key are hard,
    up to half of them (`edge_runtime.answer.gate.promise`). None: audits change nothing."""
    max_share: float = 1.0
    """Largest share of all windows that may be sent, give or take a burst of as many as 50 windows' share."""
    max_calls_per_day: int = 0
    """Windows sent within any 24 hours, all of them at once where they come so; time while the machine is off does not
    count. 0 means no bound."""
    max_bytes_per_day: int = 0
    """Tensor bytes sent within any 24 hours, in the same way; 0 means no bound."""
    audit_share: float = 0.0
    """Share of trusted answers that is sent all the same, to see whether the trust is deserved."""

    def __post_init__(self) -> None:
        self._check_moving()
        for name in ("max_share", "audit_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be 0 to 1")
        for name in ("max_calls_per_day", "max_bytes_per_day"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")

    def _check_moving(self) -> None:
        """Check what moves thresholds."""
        if self.share is not None and not 0 < self.share <= 0.5:
            raise ValueError("share must be above 0 and at most 0.5; adapt = false keeps the threshold where it is")
        if self.max_local_error is not None:
            if not 0 < self.max_local_error < 1:
                raise ValueError("max_local_error must be above 0 and below 1")
            if not self.audit_share:
                raise ValueError("max_local_error is held by audits; set audit_share, for example 0.02")
        if self.adapt and self.threshold is None:
            return
        for name in ("share", "max_local_error"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} moves the threshold; leave it out, or threshold and adapt = false")
