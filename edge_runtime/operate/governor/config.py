"""The table ``[governor]``: when to do less, and what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ActuatorName = Literal["rate", "variant", "cloud"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorConfig:
    """Settings of the governor: limits, order and pace of its steps.

    Raises:
        ValueError: values that make no sense.
    """

    period_s: float = 2.0
    """Time between two sensor readings."""
    order: tuple[ActuatorName, ...] = ("rate", "variant", "cloud")
    """Actuators in the order in which they give way; one that is left out never does."""
    max_hop_multiple: int = 4
    """Largest decimation factor: at the lowest rate, answer one window in `max_hop_multiple`. Power of two."""
    limit_degc: float | None = None
    """Replaces the limits of the board's temperature sensors, and serves those that have none."""
    margin_degc: float = 5.0
    """Degrees below a limit from which on the board counts as hot."""
    hysteresis_degc: float = 10.0
    """Further degrees below, at which it counts as cool again."""
    max_power_w: float | None = None
    """Most that the board may draw, where it measures that."""
    min_battery_percent: float = 20.0
    """Charge below which, discharging, less is done."""
    settle_s: float = 10.0
    """Time between two steps down."""
    hold_s: float = 60.0
    """Time that the board has to be cool before a step up, and between any step and the next one up."""
    root: Path = Path("/")
    """Root of the machine's files; another place where a container is given those of its host."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("period_s", 0.05, 60.0), ("margin_degc", 0.0, 50.0), ("hysteresis_degc", 1.0, 80.0),
            ("min_battery_percent", 0.0, 90.0), ("settle_s", 0.0, 3600.0), ("hold_s", 1.0, 86_400.0),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must be {low:g} to {high:,g}")
        if len(set(self.order)) != len(self.order):
            raise ValueError("order names something twice")
        if not 2 <= self.max_hop_multiple <= 64 or self.max_hop_multiple & (self.max_hop_multiple - 1):
            raise ValueError("max_hop_multiple must be a power of two from 2 to 64")
        if self.limit_degc is not None and not 20 <= self.limit_degc <= 125:
            raise ValueError("limit_degc must be 20 to 125")
        if self.max_power_w is not None and not 0.1 <= self.max_power_w <= 1000:
            raise ValueError("max_power_w must be 0.1 to 1,000")
