"""Governor: steps down before the board must, by temperature, throttling, power and battery, and up again later.

A board that overheats slows its processor down on its own terms, for everything that runs on it, and answers come
late. Stepping down first, by doing less, keeps the answers that are still given in time. Three actuators, moved one
step at a time in the order that the configuration states:

- ``rate``: every second, then every fourth window is answered; the others are counted as ``rate_reduced``.
- ``variant``: the fallback chain's next lighter variant answers (`edge_runtime.model.failover`).
- ``cloud``: half, then none of the share of windows that may go to the cloud: a radio draws watts.

When to step (`ThermalPolicy`):

- The board is *hot* when a temperature comes within `margin_degc` of the limit at which hardware or kernel step in,
  when a flag says that it is held back, when it draws more than it may, or lives on a battery that is nearly empty. It
  steps down at once, and again every `settle_s` as long as that lasts, since what has been done takes time to show.
- It is *cool* when all of that is far away: `hysteresis_degc` more for the temperature, a tenth for power and battery.
  It steps back up when it has been cool for `hold_s` without interruption, and `hold_s` after the last step.
- In between nothing changes. What cannot be read has no say; with no temperature at all where there was one, nothing is
  stepped up.

So a step down and the next step up are never less than `hold_s` apart, whatever the sensors say.

Limits come from the board's profile (`edge_runtime.hardware`): the trip points of the kernel's thermal zones (Jetson,
most Arm boards and laptops), and 80 degrees on a Raspberry Pi, from which on its firmware slows the cores down.
Sources: Documentation/driver-api/thermal/sysfs-api.rst of the kernel; raspberrypi.com/documentation/computers/
raspberry-pi.html ("Frequency management and thermal control"); NVIDIA Jetson Linux Developer Guide, "Platform Power
and Performance".
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edge_runtime.clock import Clock
from edge_runtime.gate.gate import Budget
from edge_runtime.governor.actuators import Actuator, ActuatorName, CloudActuator, RateActuator, VariantActuator
from edge_runtime.hardware.readings import Board, SensorReadings
from edge_runtime.metrics import Metrics
from edge_runtime.model.failover import FallbackChain
from edge_runtime.pipeline import Pipeline
from edge_runtime.system.loop import Loop

log = logging.getLogger(__name__)

_ENERGY_LOOKS: Final = 31
"""Looks over which joules per inference are taken: a minute at the usual period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorConfig:
    """When to do less, and what.

    Raises:
        ValueError: values that make no sense.
    """

    period_s: float = 2.0
    """How often the board is looked at."""
    order: tuple[ActuatorName, ...] = ("rate", "variant", "cloud")
    """What gives way, first to last; what is left out never does."""
    max_hop_multiple: int = 4
    """Largest decimation factor: at the lowest rate, answer one window in `max_hop_multiple`. Power of two."""
    limit_degc: float | None = None
    """Replaces the limits of the board's temperature sensors, and serves those that have none."""
    margin_degc: float = 5.0
    """Degrees below a limit from which on the board counts as hot."""
    hysteresis_degc: float = 10.0
    """Further degrees below, at which it counts as cool again."""
    max_power_w: float | None = None
    """What the board may draw, where it measures that."""
    min_battery_percent: float = 20.0
    """Below it, and discharging, less is done."""
    settle_s: float = 10.0
    """Between two steps down."""
    hold_s: float = 60.0
    """How long the board has to be cool before a step up, and between any step and the next one up."""
    root: Path = Path("/")
    """Where the machine's files lie; another place where a container is given those of its host."""

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
        """Why the board is hot, in words; empty if it is not."""
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
        """Whether nothing is near its threshold."""
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


class Governor:
    """Governor: reads the board, asks the thermal policy and moves the actuators; belongs to the loop's thread.

    The looking is done by a thread of its own that computes nothing: a sensor on a bus that hangs takes as long as it
    likes.

    Args:
        config: when, and what.
        board: to look at.
        actuators: in the order in which they give way.
        metrics: receives the gauges ``governor_level``, ``temperature_celsius``, ``throttled``, ``power_watts``,
            ``energy_joules``, ``joules_per_inference`` and ``battery_percent``, as far as the board reports them, and
            the counters ``governor_steps_down_total``, ``governor_steps_up_total`` and ``sensor_failures_total``.
        clock: monotonic time.
        on_status: told the status whenever the level changes; see `status`.
    """

    def __init__(
        self,
        config: GovernorConfig,
        board: Board,
        actuators: Sequence[Actuator],
        *,
        metrics: Metrics,
        clock: Clock,
        on_status: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._config = config
        self._board = board
        self._actuators = list(actuators)
        self._metrics = metrics
        self._clock = clock
        self._on_status = on_status
        self._policy = ThermalPolicy(config)
        self._taken: list[Actuator] = []
        self._reason = ""
        self._last: SensorReadings | None = None
        self._energy: deque[tuple[float, int]] = deque(maxlen=_ENERGY_LOOKS)
        self._nothing_left = False
        self._blind = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def level(self) -> int:
        """Steps taken; 0 is all is well."""
        return len(self._taken)

    def status(self) -> dict[str, Any]:
        """Build the status: what was done and why, as plain values."""
        status: dict[str, Any] = {"level": self.level, "reason": self._reason}
        status |= {actuator.name: actuator.state() for actuator in self._actuators}
        if self._last is not None and self._last.temperature is not None:
            status["temperature"] = round(self._last.temperature, 1)
        return status

    def open(self, loop: Loop) -> None:
        """Begin to look."""
        if not self._board.has_sensors:
            log.warning(
                "governor: %s names no sensor, so there is nothing to govern by; see edge-runtime doctor",
                self._board.profile.model,
            )
            return
        self._publish_status()

        def watch() -> None:
            while not self._stop.is_set():
                loop.call_soon_threadsafe(functools.partial(self.consider, self._board.look()))
                self._stop.wait(self._config.period_s)

        self._thread = threading.Thread(target=watch, name="governor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more. What was stepped down stays so: the process is about to end. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)  # a sensor that hangs keeps a thread that nobody waits for

    def follow(self, fallback_chain: FallbackChain | None) -> None:
        """Govern another fallback chain from now on, since another model has taken over."""
        for actuator in self._actuators:
            if isinstance(actuator, VariantActuator):
                actuator.follow(fallback_chain)

    def consider(self, sensors: SensorReadings) -> None:
        """Act on one look at the board."""
        if self._stop.is_set():
            return
        self._last = sensors
        self._measure(sensors)
        step = self._policy.step(sensors, self.level)
        if step > 0:
            self._down(self._policy.hot(sensors))
        elif step < 0:
            self._up()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _down(self, reason: str) -> None:
        self._reason = reason
        for actuator in self._actuators:
            if actuator.down(reason):
                self._taken.append(actuator)
                self._nothing_left = False
                self._metrics.counts["governor_steps_down_total"] += 1
                log.warning(
                    "governor: stepped down: actuator=%s state=%s reason=%s", actuator.name, actuator.state(), reason
                )
                self._publish_status()
                return
        if not self._nothing_left:
            log.warning("governor: found nothing left to step down: reason=%s", reason)
            self._nothing_left = True

    def _up(self) -> None:
        actuator = self._taken.pop()
        actuator.up()
        self._nothing_left = False
        if not self._taken:
            self._reason = ""
        self._metrics.counts["governor_steps_up_total"] += 1
        log.info("governor: stepped up: actuator=%s state=%s", actuator.name, actuator.state())
        self._publish_status()

    def _publish_status(self) -> None:
        self._metrics.gauges["governor_level"] = float(self.level)
        if self._on_status is not None:
            self._on_status(self.status())

    # -- figures -----------------------------------------------------------------------------------------------------

    def _measure(self, sensors: SensorReadings) -> None:
        gauges = self._metrics.gauges
        gauges["governor_level"] = float(self.level)
        gauges["throttled"] = float(bool(sensors.throttled))
        for name, value in (
            ("temperature_celsius", sensors.temperature),
            ("power_watts", sensors.watts),
            ("battery_percent", sensors.battery),
            ("energy_joules", sensors.joules),
        ):
            if value is not None:
                gauges[name] = value
            else:
                gauges.pop(name, None)
        if sensors.unreadable:
            self._metrics.counts["sensor_failures_total"] += sensors.unreadable
            if not self._blind:
                log.warning("governor: ignored sensors that gave no or impossible values: count=%d", sensors.unreadable)
        self._blind = bool(sensors.unreadable)
        if sensors.joules is not None:
            self._energy.append((sensors.joules, self._metrics.counts["predictions_total"]))
            used = self._energy[-1][0] - self._energy[0][0]
            answered = self._energy[-1][1] - self._energy[0][1]
            if answered:
                # Of the whole board, its idling included: what the answers of the last minute have cost.
                gauges["joules_per_inference"] = used / answered
            else:
                gauges.pop("joules_per_inference", None)


def governor_of(
    config: GovernorConfig,
    *,
    pipeline: Pipeline,
    fallback_chain: FallbackChain | None,
    budget: Budget | None,
    share: float,
    metrics: Metrics,
    clock: Clock,
    on_status: Callable[[Mapping[str, Any]], None] | None = None,
) -> Governor:
    """Build the governor of an application on this machine.

    Args:
        config: when, and what.
        pipeline: whose rate it may lower.
        fallback_chain: whose variants it may change; None where there is one alone. See `Governor.follow`.
        budget: of the cloud; None where there is no cloud.
        share: of windows that may go to the cloud while all is well.
        metrics: see `Governor`.
        clock: monotonic time.
        on_status: told the status whenever it changes.
    """
    from edge_runtime.hardware import this_device  # noqa: PLC0415 - looks at the whole machine

    actuators: dict[ActuatorName, Actuator] = {
        "rate": RateActuator(pipeline, config.max_hop_multiple),
        "variant": VariantActuator(fallback_chain),
    }
    if budget is not None:
        actuators["cloud"] = CloudActuator(budget, share)
    board = Board(this_device(config.root), clock, config.root, config.limit_degc)
    chosen = [actuators[name] for name in config.order if name in actuators]
    return Governor(config, board, chosen, metrics=metrics, clock=clock, on_status=on_status)
