"""The table ``[gate]``: the operator's bounds on what is sent to the cloud."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The operator's bounds on what is sent to the cloud."""

    threshold: float | None = None
    """Replaces the bundle's threshold; its promise is then void."""
    max_share: float = 1.0
    """Largest share of all windows that may be sent, give or take a burst of as many as 50 windows' share."""
    max_calls_per_day: int = 0
    """Windows sent within any 24 hours; 0 means no bound."""
    max_bytes_per_day: int = 0
    """Tensor bytes sent within any 24 hours; 0 means no bound."""
    audit_share: float = 0.0
    """Share of trusted answers that is sent all the same, to see whether the trust is deserved."""

    def __post_init__(self) -> None:
        for name in ("max_share", "audit_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be 0 to 1")
        for name in ("max_calls_per_day", "max_bytes_per_day"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
