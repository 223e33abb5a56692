"""Do less before the board is made to: by temperature, throttling, power and battery, and back again when it is well.

A board that overheats slows its processor down on its own terms, for everything that runs on it, and answers come
late. Stepping down first, by doing less, keeps the answers that are still given in time. Three levers, pulled one step
at a time in the order that the configuration states:

- ``rate``: every second, then every fourth window is answered; the others are counted as ``rate_reduced``.
- ``variant``: the line-up's next lighter variant answers (`edge_runtime.model.failover`).
- ``cloud``: half, then none of the share of windows that may go to the cloud: a radio draws watts.

When to step (`Judge`):

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
from typing import Any, Final

from edge_runtime.clock import Clock
from edge_runtime.gate.budget import Budget
from edge_runtime.governor.actuators import CloudLever, Lever, RateLever, VariantLever
from edge_runtime.governor.config import GovernorConfig, LeverName
from edge_runtime.governor.policy import Judge
from edge_runtime.hardware.readings import Board, Vitals
from edge_runtime.metrics import Metrics
from edge_runtime.model.failover import Lineup
from edge_runtime.pipeline import Pipeline
from edge_runtime.system.loop import Loop

log = logging.getLogger(__name__)

_ENERGY_LOOKS: Final = 31
"""Looks over which joules per inference are taken: a minute at the usual period."""


class Governor:
    """Looks at the board, judges and pulls levers; belongs to the loop's thread.

    The looking is done by a thread of its own that computes nothing: a sensor on a bus that hangs takes as long as it
    likes.

    Args:
        config: when, and what.
        board: to look at.
        levers: what there is to pull, in order.
        metrics: receives the gauges ``governor_level``, ``temperature_celsius``, ``throttled``, ``power_watts``,
            ``energy_joules``, ``joules_per_inference`` and ``battery_percent``, as far as the board reports them, and
            the counters ``governor_steps_down_total``, ``governor_steps_up_total`` and ``sensor_failures_total``.
        clock: monotonic time.
        say: told the status whenever the level changes; see `status`.
    """

    def __init__(
        self,
        config: GovernorConfig,
        board: Board,
        levers: Sequence[Lever],
        *,
        metrics: Metrics,
        clock: Clock,
        say: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._config = config
        self._board = board
        self._levers = list(levers)
        self._metrics = metrics
        self._clock = clock
        self._say = say
        self._judge = Judge(config)
        self._taken: list[Lever] = []
        self._reason = ""
        self._last: Vitals | None = None
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
        """What was done and why, as plain values."""
        told: dict[str, Any] = {"level": self.level, "reason": self._reason}
        told |= {lever.name: lever.state() for lever in self._levers}
        if self._last is not None and self._last.temperature is not None:
            told["temperature"] = round(self._last.temperature, 1)
        return told

    def open(self, loop: Loop) -> None:
        """Begin to look."""
        if not self._board.has_sensors:
            log.warning(
                "governor: %s names no sensor, so there is nothing to govern by; see edge-runtime doctor",
                self._board.profile.model,
            )
            return
        self._tell()

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

    def follow(self, lineup: Lineup | None) -> None:
        """Govern another line-up from now on, since another model has taken over."""
        for lever in self._levers:
            if isinstance(lever, VariantLever):
                lever.follow(lineup)

    def consider(self, vitals: Vitals) -> None:
        """Act on one look at the board."""
        if self._stop.is_set():
            return
        self._last = vitals
        self._measure(vitals)
        step = self._judge.step(vitals, self.level)
        if step > 0:
            self._down(self._judge.hot(vitals))
        elif step < 0:
            self._up()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _down(self, reason: str) -> None:
        self._reason = reason
        for lever in self._levers:
            if lever.down(reason):
                self._taken.append(lever)
                self._nothing_left = False
                self._metrics.counts["governor_steps_down_total"] += 1
                log.warning("governor: less of %s, now %s: %s", lever.name, lever.state(), reason)
                self._tell()
                return
        if not self._nothing_left:
            log.warning("governor: nothing is left to step down, and still: %s", reason)
            self._nothing_left = True

    def _up(self) -> None:
        lever = self._taken.pop()
        lever.up()
        self._nothing_left = False
        if not self._taken:
            self._reason = ""
        self._metrics.counts["governor_steps_up_total"] += 1
        log.info("governor: more of %s again, now %s", lever.name, lever.state())
        self._tell()

    def _tell(self) -> None:
        self._metrics.gauges["governor_level"] = float(self.level)
        if self._say is not None:
            self._say(self.status())

    # -- figures -----------------------------------------------------------------------------------------------------

    def _measure(self, vitals: Vitals) -> None:
        gauges = self._metrics.gauges
        gauges["governor_level"] = float(self.level)
        gauges["throttled"] = float(bool(vitals.throttled))
        for name, value in (
            ("temperature_celsius", vitals.temperature),
            ("power_watts", vitals.watts),
            ("battery_percent", vitals.battery),
            ("energy_joules", vitals.joules),
        ):
            if value is not None:
                gauges[name] = value
            else:
                gauges.pop(name, None)
        if vitals.unreadable:
            self._metrics.counts["sensor_failures_total"] += vitals.unreadable
            if not self._blind:
                log.warning("governor: %d sensors cannot be read or say nonsense; they have no say", vitals.unreadable)
        self._blind = bool(vitals.unreadable)
        if vitals.joules is not None:
            self._energy.append((vitals.joules, self._metrics.counts["predictions_total"]))
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
    lineup: Lineup | None,
    budget: Budget | None,
    share: float,
    metrics: Metrics,
    clock: Clock,
    say: Callable[[Mapping[str, Any]], None] | None = None,
) -> Governor:
    """The governor of an application on this machine.

    Args:
        config: when, and what.
        pipeline: whose rate it may lower.
        lineup: whose variants it may change; None where there is one alone. See `Governor.follow`.
        budget: of the cloud; None where there is no cloud.
        share: of windows that may go to the cloud while all is well.
        metrics: see `Governor`.
        clock: monotonic time.
        say: told the status whenever it changes.
    """
    from edge_runtime.hardware import this_device  # noqa: PLC0415 - looks at the whole machine

    levers: dict[LeverName, Lever] = {
        "rate": RateLever(pipeline, config.max_hop_multiple),
        "variant": VariantLever(lineup),
    }
    if budget is not None:
        levers["cloud"] = CloudLever(budget, share)
    board = Board(this_device(config.root), clock, config.root, config.limit_degc)
    chosen = [levers[name] for name in config.order if name in levers]
    return Governor(config, board, chosen, metrics=metrics, clock=clock, say=say)
