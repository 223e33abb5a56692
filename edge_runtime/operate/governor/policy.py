"""Thermal policy: from sensor readings to a level, with hysteresis and hold times."""

from __future__ import annotations

from edge_runtime.base.hardware.readings import SensorReadings
from edge_runtime.operate.governor.config import GovernorConfig


class ThermalPolicy:
    """Thermal policy: decides when to step, from the readings and its own earlier decisions; no I/O.

    Args:
        config: thresholds and times.
    """

    def __init__(self, config: GovernorConfig) -> None:
        self._config = config
        self._last_down = self._last_step = -float("inf")
        self._cool_since: float | None = None
        self._had_temperature = False

    def hot(self, sensors: SensorReadings) -> str:
        """Explain why the board is hot, in words; empty if it is not."""
        config = self._config
        reasons = []
        if (nearest_limit := sensors.nearest_limit) is not None and nearest_limit.headroom <= config.margin_degc:
            reasons.append(f"{nearest_limit.name} at {nearest_limit.now:.0f} degrees of {nearest_limit.limit:.0f}")
        if sensors.throttled:
            reasons.append(", ".join(sensors.throttled).replace("_", " "))
        if config.max_power_w is not None and sensors.watts is not None and sensors.watts > config.max_power_w:
            reasons.append(f"{sensors.watts:.1f} W of {config.max_power_w:g}")
        if sensors.discharging and sensors.battery is not None and sensors.battery < config.min_battery_percent:
            reasons.append(f"battery at {sensors.battery:.0f} %")
        return "; ".join(reasons)

    def cool(self, sensors: SensorReadings) -> bool:
        """Return whether nothing is near its threshold."""
        config = self._config
        nearest_limit, watts, battery = sensors.nearest_limit, sensors.watts, sensors.battery
        return not (
            sensors.throttled
            or (nearest_limit is None and self._had_temperature)
            or (nearest_limit is not None and nearest_limit.headroom < config.margin_degc + config.hysteresis_degc)
            or (config.max_power_w is not None and watts is not None and watts > 0.9 * config.max_power_w)
            or (sensors.discharging and battery is not None and battery < min(100.0, config.min_battery_percent + 10))
        )

    def step(self, sensors: SensorReadings, level: int) -> int:
        """Decide what to do now.

        Args:
            sensors: what was read.
            level: steps taken so far.

        Returns:
            1 to step down, -1 to step up, 0 to stay.
        """
        now = sensors.at
        self._had_temperature |= sensors.nearest_limit is not None
        if self.hot(sensors):
            self._cool_since = None
            if now - self._last_down < self._config.settle_s:
                return 0
            self._last_down = self._last_step = now
            return 1
        if not self.cool(sensors):
            self._cool_since = None
            return 0
        if self._cool_since is None:
            self._cool_since = now
        if level and now - max(self._cool_since, self._last_step) >= self._config.hold_s:
            self._last_step = now
            return -1
        return 0
