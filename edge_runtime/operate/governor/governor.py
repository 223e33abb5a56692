"""Governor: steps down before the board must, by temperature, throttling, power and battery, and up again later.

A board that overheats slows its processor down on its own terms, for everything that runs on it, and answers come
late. Stepping down first, by doing less, keeps the answers that are still given in time. Three actuators, moved one
step at a time in the order that the configuration states:

- ``rate``: every second, then every fourth window is answered; the others are counted as ``rate_reduced``.
- ``variant``: the fallback chain's next lighter variant answers (`edge_runtime.model.serving.failover`).
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

Limits come from the board's profile (`edge_runtime.base.hardware`): the trip points of the kernel's thermal zones
(Jetson, most Arm boards and laptops), and 80 degrees on a Raspberry Pi, from which on its firmware slows the cores
down.
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
from typing import Any, Final

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.base.hardware.readings import Board, SensorReadings
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.operate.governor.actuators import Actuator, CloudActuator, RateActuator, VariantActuator
from edge_runtime.operate.governor.config import ActuatorName, GovernorConfig
from edge_runtime.operate.governor.policy import ThermalPolicy

log = logging.getLogger(__name__)

_ENERGY_LOOKS: Final = 31
"""Sensor readings over which joules per inference are taken: a minute at the usual period."""


class Governor:
    """Governor: reads the board, asks the thermal policy and moves the actuators; belongs to the loop's thread.

    The looking is done by a thread of its own that computes nothing: a sensor on a bus that hangs takes as long as it
    likes.

    Args:
        config: limits, order and pace of the steps.
        board: reader of the board's sensors.
        actuators: actuators in the order in which they give way.
        metrics: receives the gauges ``governor_level``, ``temperature_celsius``, ``throttled``, ``power_watts``,
            ``energy_joules``, ``joules_per_inference`` and ``battery_percent``, as far as the board reports them, and
            the counters ``governor_steps_down_total``, ``governor_steps_up_total`` and ``sensor_failures_total``.
        clock: monotonic time.
        on_status: called with the `status` whenever the level changes.
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
        """Return the steps that are taken; 0 when all is well."""
        return len(self._taken)

    def status(self) -> dict[str, Any]:
        """Build the status: what was done and why, as plain values."""
        status: dict[str, Any] = {"level": self.level, "reason": self._reason}
        status |= {actuator.name: actuator.state() for actuator in self._actuators}
        if self._last is not None and self._last.temperature is not None:
            status["temperature"] = round(self._last.temperature, 1)
        return status

    def open(self, loop: Loop) -> None:
        """Start to read the sensors."""
        if not self._board.has_sensors:
            log.warning(
                "governor: found no sensor, so it changes nothing; see edge-runtime doctor: board=%s",
                self._board.profile.model,
            )
            return
        self._publish_status()

        def watch() -> None:
            while not self._stop.is_set():
                loop.call_soon_threadsafe(functools.partial(self.consider, self._board.read()))
                self._stop.wait(self._config.period_s)

        self._thread = threading.Thread(target=watch, name="governor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading the sensors. Steps stay taken, since the process is about to end. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)  # a sensor that hangs keeps its thread

    def use(self, fallback_chain: FallbackChain | None) -> None:
        """Govern another fallback chain from now on, since another model has taken over."""
        for actuator in self._actuators:
            if isinstance(actuator, VariantActuator):
                actuator.use(fallback_chain)

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
        config: limits, order and pace of the steps.
        pipeline: the pipeline whose rate it may lower.
        fallback_chain: variants that it may change; None where there is one alone. See `Governor.use`.
        budget: the cloud's bounds; None where there is no cloud.
        share: share of windows that may go to the cloud while all is well.
        metrics: see `Governor`.
        clock: monotonic time.
        on_status: called with the status whenever it changes.
    """
    from edge_runtime.base.hardware import this_device  # noqa: PLC0415 - looks at the whole machine

    actuators: dict[ActuatorName, Actuator] = {
        "rate": RateActuator(pipeline, config.max_hop_multiple),
        "variant": VariantActuator(fallback_chain),
    }
    if budget is not None:
        actuators["cloud"] = CloudActuator(budget, share)
    board = Board(this_device(config.root), clock, config.root, config.limit_degc)
    chosen = [actuators[name] for name in config.order if name in actuators]
    return Governor(config, board, chosen, metrics=metrics, clock=clock, on_status=on_status)
