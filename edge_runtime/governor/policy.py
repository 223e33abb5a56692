"""Thermal policy: from sensor readings to a level, with hysteresis and hold times."""

from __future__ import annotations

from edge_runtime.governor.config import GovernorConfig
from edge_runtime.hardware.readings import Vitals


class Judge:
    """Says when to step, from what was read and from what it said before. Pure but for its own memory.

    Args:
        config: thresholds and times.
    """

    def __init__(self, config: GovernorConfig) -> None:
        self._config = config
        self._last_down = self._last_step = -float("inf")
        self._cool_since: float | None = None
        self._had_temperature = False

    def hot(self, vitals: Vitals) -> str:
        """Why the board is hot, in words; empty if it is not."""
        config = self._config
        reasons = []
        if (heat := vitals.heat) is not None and heat.headroom <= config.margin_degc:
            reasons.append(f"{heat.name} at {heat.now:.0f} degrees of {heat.limit:.0f}")
        if vitals.throttled:
            reasons.append(", ".join(vitals.throttled).replace("_", " "))
        if config.max_power_w is not None and vitals.watts is not None and vitals.watts > config.max_power_w:
            reasons.append(f"{vitals.watts:.1f} W of {config.max_power_w:g}")
        if vitals.discharging and vitals.battery is not None and vitals.battery < config.min_battery_percent:
            reasons.append(f"battery at {vitals.battery:.0f} %")
        return "; ".join(reasons)

    def cool(self, vitals: Vitals) -> bool:
        """Whether nothing is near its threshold."""
        config = self._config
        heat, watts, battery = vitals.heat, vitals.watts, vitals.battery
        return not (
            vitals.throttled
            or (heat is None and self._had_temperature)
            or (heat is not None and heat.headroom < config.margin_degc + config.hysteresis_degc)
            or (config.max_power_w is not None and watts is not None and watts > 0.9 * config.max_power_w)
            or (vitals.discharging and battery is not None and battery < min(100.0, config.min_battery_percent + 10))
        )

    def step(self, vitals: Vitals, level: int) -> int:
        """What to do now.

        Args:
            vitals: what was read.
            level: steps taken so far.

        Returns:
            1 to step down, -1 to step up, 0 to stay.
        """
        now = vitals.at
        self._had_temperature |= vitals.heat is not None
        if self.hot(vitals):
            self._cool_since = None
            if now - self._last_down < self._config.settle_s:
                return 0
            self._last_down = self._last_step = now
            return 1
        if not self.cool(vitals):
            self._cool_since = None
            return 0
        if self._cool_since is None:
            self._cool_since = now
        if level and now - max(self._cool_since, self._last_step) >= self._config.hold_s:
            self._last_step = now
            return -1
        return 0
