"""Table of drop reasons with advice, and the reporter that puts dropped messages, samples and answers into the log.

Everything that is not used is counted in `Metrics.dropped` under a reason. `REASONS` knows all of them, so one place
can say what was lost and what to do about it. A reason has one cause, and the advice that fits it. Code that counts a
new reason adds its row; a test finds those without, and those that no test provokes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.metrics import Metrics

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""Time between two looks at the counters, and the shortest time between two lines about one reason."""

LONGEST_S: Final = 3600.0
"""Longest time between two lines about one reason that goes on; the time doubles with each line."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Meaning of a drop reason for a person."""

    component: str
    """Part of the runtime that drops, as in other log lines."""
    what: str
    """Dropped things, in the plural."""
    advice: str
    """Cause, a colon, and what to do, or that it is harmless."""
    answers: bool = False
    """Answers are lost, which changes the exit code of `run` and `replay`."""
    expected: bool = False
    """Part of sound operation where windows come: no warning then, and no loss."""

    @property
    def cause(self) -> str:
        """Cause alone."""
        return self.advice.partition(": ")[0]

    @property
    def todo(self) -> str:
        """Advice alone."""
        return self.advice.partition(": ")[2]


def _answers(component: str, advice: str) -> Reason:
    return Reason(component, "answers", advice, answers=True)


_SIZES = (
    "they are over a limit of size: raise max_packet_bytes under [broker] or max_bytes and max_samples under "
    "[source.codec], or send less at once"
)
_RATE = "state the sensor's rate as rate_hz under [source.codec]"
_MORE = '(docs/guide.md, "When nothing comes out")'
_DEFECT = "a defect of ours, which the log shows; inference goes on: please report it"
_HOT = "the board is hot or short of power: see [governor]"
_ENGINE = "the engine refuses these windows: run edge-runtime verify BUNDLE"

REASONS: Final[Mapping[str, Reason]] = {
    # -- messages, rows and frames that do not become readings
    "malformed": Reason(
        "source",
        "messages or rows",
        "their bytes are not in the format that is configured: set type under [source.codec]; for JSON with fields of "
        "its own also channels, time and time_unit (see docs/guide.md); edge-runtime listen writes the table",
    ),
    "compressed": Reason(
        "source",
        "messages",
        "their payload is compressed: no codec unpacks it, let the sender publish it as it is",
    ),
    "picture": Reason(
        "source",
        "messages",
        'their payload is a picture, and the codec reads numbers: write type = "frame" under [source.codec]',
    ),
    "not_a_number": Reason(
        "source",
        "messages or rows",
        "a channel's field holds something else than a number: name the right field by channels under [source.codec], "
        "or say by words, missing or units what the text means",
    ),
    "decimal_comma": Reason(
        "source",
        "messages or rows",
        'a number is written with a decimal comma: write decimal = "," under [source.codec], or let the sender write a '
        "point",
    ),
    "wrong_channels": Reason(
        "source",
        "messages or rows",
        "a sample lacks a channel of the model, or has more: map fields with other names by channels under "
        "[source.codec] (edge-runtime inspect BUNDLE lists the channels); edge-runtime listen writes the table",
    ),
    "wrong_size": Reason(
        "source",
        "messages",
        "the bytes are no whole number of samples: compare dtype and header_bytes under [source.codec] with what the "
        "sender writes, and its channels with the model's",
    ),
    "wrong_unit": Reason(
        "source",
        "messages",
        "they state a unit that cannot be converted to the model's: map the right field by channels under "
        "[source.codec], or correct the unit at the sender",
    ),
    "not_finite": Reason(
        "source",
        "messages, rows or windows",
        "values are NaN, infinite or beyond float32: look at the sensor, and at scale under [source.codec]",
    ),
    "bad_time": Reason(
        "source",
        "messages or rows",
        "stamps are no times of the years 1900 to 9999: set time_unit under [source.codec] (s, ms, us, ns, iso8601)",
    ),
    "no_time": Reason(
        "source",
        "messages or rows",
        'they have no stamp where the configuration says: name its field, time = "..." under [source.codec], or write '
        'time = "" to stamp them when they arrive',
    ),
    "no_key": Reason(
        "source",
        "messages",
        "they name no key, or one that cannot be printed: set key under [[source]], or key under [source.codec]",
    ),
    "no_birth": Reason(
        "source",
        "messages",
        "Sparkplug metrics came without their names or types, which only births bring: subscribe to NBIRTH and DBIRTH "
        'too, and write true to the metric "Node Control/Rebirth" of the edge node (docs/payloads-industry.md: the '
        "line for it)",
    ),
    "empty": Reason("source", "messages", "they hold no sample: harmless unless they should"),
    "too_large": Reason("source", "messages", _SIZES),
    "too_expensive": Reason(
        "source",
        "messages",
        "large ones came faster than they can be decoded, and held nothing else up: send smaller ones, or fewer",
    ),
    "checksum": Reason(
        "source", "frames", "their checksum is wrong: compare baud and framing under [[source]], and look at the cable"
    ),
    "overrun": Reason(
        "source",
        "samples or frames",
        "they came faster than they were handled: edge-runtime tune BUNDLE finds a faster variant; or lower the rate",
    ),
    "sensor_error": Reason("source", "samples", "the sensor could not be read: look at its wiring and permissions"),
    "internal_error": Reason(
        "source", "messages", "a defect of ours, which the log shows: please report it with an example of the message"
    ),
    "unexpected_topic": Reason(
        "source",
        "messages",
        "no source asks for their topics, or key cannot be taken from them: compare topics and key under [[source]]; "
        "the broker's session may also hold topics of an earlier configuration",
    ),
    "retained": Reason(
        "source",
        "messages",
        "the broker kept them from before, so they are no samples of now: harmless; to begin with them as last known "
        'values, retained = "hold" under [[source]]',
    ),
    "subscription_refused": Reason(
        "source", "subscriptions", "the broker grants no access to these topics: look at its access list"
    ),
    "connection_lost": Reason(
        "source", "messages", "the connection ended while they waited at QoS 0: qos = 1 keeps them"
    ),
    "paused": Reason("source", "messages", "they came at QoS 0 while the application stopped: qos = 1 keeps them"),
    "new_topic": Reason(
        "source",
        "messages",
        "QoS 0 ones of topics that were not seen before came faster than they can be answered, and known ones go "
        "first: look who publishes there, narrow topics under [[source]], or, where a large fleet begins, raise "
        "max_held_bytes under [broker.NAME]",
    ),
    # -- samples that do not get into a window
    "late": Reason(
        "window",
        "samples",
        f"they are older than what their key had shown: {_RATE}, if a message has one stamp for several; if they come "
        f"in another order, set lateness_s under [window] {_MORE}",
    ),
    "duplicate": Reason(
        "window",
        "samples",
        "their key had this sample already: harmless where windows come, as a broker delivers again and some senders "
        "repeat their history; if stamps are whole seconds, set time_step_s = 1.0 and rate_hz under [source.codec] "
        f"{_MORE}",
        expected=True,
    ),
    "same_stamp": Reason(
        "window",
        "samples",
        "their key had another sample with this stamp: if stamps are whole seconds, set time_step_s = 1.0 and rate_hz "
        f"under [source.codec] {_MORE}",
    ),
    "stamp_jump": Reason(
        "window",
        "samples",
        "their stamps are further from those before and after them than max_jump_s under [window]: correct the "
        "sender's clock; if two devices share a key, set key under [[source]]",
    ),
    "other_clock": Reason(
        "window",
        "samples",
        "their stamps go on further from those of their key's other channels than max_jump_s under [window]: set that "
        'sensor\'s clock, or leave its stamps out (time = "" under [source.codec])',
    ),
    "evicted": Reason(
        "window",
        "samples",
        "they waited when their key left for newer ones: raise max_keys under [window], or look at what key under "
        "[[source]] makes of the topics",
    ),
    "frame_rate": Reason(
        "window",
        "pictures",
        "they come faster than the bundle's rate: harmless, or let the camera send fewer of them",
    ),
    # -- windows without an answer
    "incomplete": Reason(
        "window",
        "windows",
        "a channel has no value in them: look at its topic and its sensor; a slow sensor needs a longer max_age_s in "
        "the bundle, or resample = 'previous' there",
    ),
    "rate_reduced": Reason("governor", "windows", _HOT),
    "engine_error": Reason(
        "engine", "windows", "nothing on the device answers, and there is no cloud: the log has the engine's error"
    ),
    "shape": Reason("engine", "windows", _ENGINE),
    "dtype": Reason("engine", "windows", _ENGINE),
    "input_count": Reason("engine", "windows", _ENGINE),
    # -- hard cases that stay local
    "suspect": Reason(
        "intake",
        "hard cases",
        "their readings are suspect, and the cloud would see the same ones: the log has a line for each key",
    ),
    "budget_share": Reason("gate", "hard cases", "more are hard than are sent: raise max_share under [gate]"),
    "budget_calls": Reason(
        "gate", "hard cases", "no more are allowed within 24 hours: raise max_calls_per_day under [gate]"
    ),
    "budget_bytes": Reason(
        "gate", "hard cases", "no more are allowed within 24 hours: raise max_bytes_per_day under [gate]"
    ),
    "budget_governor": Reason("governor", "hard cases", _HOT),
    "context_short": Reason(
        "cloud",
        "hard cases",
        "the stream had begun less than the bundle's context ago, and the cloud's model takes whole contexts only: "
        "harmless unless streams restart all the time",
    ),
    "outbox_error": Reason("outbox", "hard cases", "the disk takes none: look at its free space and its health"),
    "outbox_busy": Reason(
        "outbox", "hard cases", "the disk is slower than they come: lower max_share under [gate], or use a faster disk"
    ),
    "outbox_full": Reason("outbox", "hard cases", "the cloud has been away for long: raise max_bytes under [outbox]"),
    "outbox_evicted": Reason("outbox", "hard cases", "older ones made room: raise max_bytes under [outbox]"),
    "outbox_too_large": Reason("outbox", "hard cases", "one fills over a quarter of max_bytes: raise it"),
    "outbox_invalid": Reason("outbox", "hard cases", "their ids cannot be stored: shorten the keys"),
    "outbox_taken": Reason(
        "outbox",
        "hard cases",
        "other windows had their ids, as the outbox could not be read at the start: later ones have ids of their own",
    ),
    # -- messages of side channels
    "quarantined": Reason("broker", "messages", "they made a side channel fail before: the log says which, and where"),
    "status_internal_error": Reason("status", "messages", _DEFECT),
    "observe_internal_error": Reason("observe", "requests", _DEFECT),
    "control_internal_error": Reason("control", "requests", _DEFECT),
    # -- Home Assistant
    "home_assistant_internal_error": Reason("home_assistant", "answers or messages", _DEFECT),
    "home_assistant_away": Reason(
        "home_assistant",
        "events",
        "the broker was away or slow when they came, and Home Assistant has not seen them: the sinks have them",
    ),
    "home_assistant_max_keys": Reason(
        "home_assistant",
        "answers",
        "they are of more keys than max_keys under [home_assistant] lets Home Assistant see: the sinks have them",
    ),
    "command_retained": Reason(
        "home_assistant",
        "commands",
        "they were published retained: publish them without, else they come again at every start",
    ),
    "command_not_allowed": Reason(
        "home_assistant",
        "commands",
        "commands under [home_assistant] does not name them: if you never sent any, look at who may publish there",
    ),
    "command_malformed": Reason(
        "home_assistant", "commands", "their payload is none: Home Assistant sends the right one"
    ),
    "command_too_often": Reason("home_assistant", "commands", "another one like them came shortly before: harmless"),
    "command_not_possible": Reason(
        "home_assistant",
        "commands",
        "there was nothing to do: no verified bundle waits, or the key is not shown or has no state",
    ),
    "sparkplug_internal_error": Reason("sparkplug", "messages", _DEFECT),
    "sparkplug_command_malformed": Reason(
        "sparkplug", "commands", "they are no Sparkplug B payload: look at who sends"
    ),
    "sparkplug_state_malformed": Reason(
        "sparkplug", "messages", "the host's state is no JSON with online and timestamp: Sparkplug 3.0 writes it so"
    ),
    # -- answers
    "publish_too_large": _answers(
        "broker", "they are over the broker's maximum packet size: raise it there (mosquitto: max_packet_size)"
    ),
    "publish_closes_connection": _answers(
        "broker",
        "the broker closed the connection each time one of them was sent: raise its limit for messages (mosquitto: "
        "max_packet_size), or look into its log",
    ),
    "publish_refused": _answers("broker", "the broker refuses them: look at its access list and its quotas"),
    "publish_queue_full": _answers(
        "broker", "it was away or slow for too long: raise queue_messages and queue_bytes under [broker]"
    ),
    "publish_connection_lost": _answers(
        "broker", "the connection ended while they were on their way at QoS 0: qos = 1 keeps them"
    ),
    "publish_not_sent": _answers(
        "broker", "it had not taken them when the application ended: raise drain_timeout_s, or look after the broker"
    ),
    "jsonl_full": _answers("jsonl", "the file cannot be written: free space, or raise max_pending_bytes"),
    "jsonl_closed": _answers("jsonl", "the file could not be written before the end: look at its disk"),
    "jsonl_sync_failed": _answers("jsonl", "the disk reported that it lost them: replace it"),
    "stdout_full": _answers("stdout", "the reader of standard output is too slow: raise max_pending_bytes"),
    "stdout_closed": Reason("stdout", "answers", "the reader of standard output has left: harmless, if it should"),
    "webhook_full": _answers("webhook", "the endpoint was away or slow for too long: raise max_queued under [[sink]]"),
    "webhook_closed": _answers(
        "webhook", "the endpoint had not taken them when the application ended: raise drain_timeout_s"
    ),
    "webhook_undeliverable": _answers(
        "webhook", "the endpoint fails at them each time and takes others: look into its log"
    ),
    "webhook_rejected": _answers("webhook", "the endpoint refuses them for good: the log has its answer"),
}

FAMILIES: Final[Mapping[str, Reason]] = {
    "update_": Reason(
        "update", "updates", "they were refused: edge-runtime update status APP.toml says what became of them"
    ),
}
"""Reasons that begin with these words: each refusal of an update has a log line of its own, with its cause."""

COUNTS: Final[Mapping[str, Reason]] = {
    "values_refused_total": Reason(
        "source",
        "values",
        "a channel's field holds no number, while others of its message do: look at the sensor; words or missing under "
        "[source.codec] say what a text means",
    ),
    "keys_evicted_total": Reason(
        "window",
        "keys",
        "more came than max_keys under [window]: raise it; or key under [[source]] takes a part of the topic that "
        "changes with every message",
    ),
}
"""Losses that are no drop but a counter in `Metrics.counts`."""

UNKNOWN: Final = Reason("runtime", "items", "see docs/guide.md")

_MISTIMED: Final = ("late", "same_stamp")

RARE: Final = 0.01
"""Share of the samples below which those that were late, or had a stamp twice, are rare."""

RARE_S: Final = 600.0
"""Shortest time between two lines about such samples that are rare."""


def reason_of(name: str) -> Reason:
    """Return the row of a reason, or of its family."""
    known = REASONS.get(name) or COUNTS.get(name)
    if known is not None:
        return known
    return next((one for prefix, one in FAMILIES.items() if name.startswith(prefix)), UNKNOWN)


class DropReporter:
    """Reporter of the drop counters: logs what was dropped, why, and what to do.

    1. A reason is logged at the first look after it counted, then at most every `EVERY_S`, doubling up to `LONGEST_S`
       as long as it goes on.
    2. A reason that was quiet for as long as that begins with `EVERY_S` again.
    3. The last look logs all that is left.
    4. Samples that are late or have a stamp twice, and rare among those since their last line, wait for `RARE_S`.

    Args:
        metrics: the application's counters; what they hold at `start` is an earlier run's.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: Counter[str] = Counter()
        self._samples_before = self._windows_before = 0
        self._warned: Counter[str] = Counter()
        self._quiet: dict[str, tuple[float, float]] = {}
        self._said: dict[str, tuple[float, int]] = {}
        """By reason: when its last line came, and the samples there were then."""
        self._timer: Timer | None = None

    def start(self, loop: Loop) -> None:
        """Look every `EVERY_S` from now on."""
        self._before = self._losses()
        self._samples_before = self._metrics.counts["samples_total"]
        self._windows_before = self._metrics.counts["windows_total"]
        self._warned = Counter(self._before)
        self._timer = loop.call_every(EVERY_S, lambda: self.report(loop.clock.monotonic()))

    def stop(self) -> None:
        """Look for the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.report(0.0, last=True)

    def report(self, now: float, *, last: bool = False) -> None:
        """Log what is due.

        Args:
            now: monotonic seconds.
            last: there will be no other look (rule 3).
        """
        for name, count in self._losses().items():
            fresh = count - self._warned[name]
            until, wait_s = self._quiet.get(name, (0.0, 0.0))
            if fresh <= 0:
                if now >= until + wait_s:
                    self._quiet.pop(name, None)  # rule 2
                continue
            if not last and (now < until or self._is_rare(name, fresh, now)):
                continue
            wait_s = min(2 * wait_s, LONGEST_S) or EVERY_S  # rule 1
            self._quiet[name] = (now + wait_s, wait_s)
            self._warned[name] = count
            self._said[name] = now, self._metrics.counts["samples_total"]
            self._log(name, fresh)

    def lost(self) -> str:
        """Describe what this run lost that it should not have; empty if nothing.

        1. Answers that reached no sink.
        2. All that came, or all of one recording, because it was refused; what the broker kept is no sample of now.
        3. Most samples, because they were late or had a stamp twice: hardly a window is right then. Repeats of samples
           count where no window came, or a tenth and more were late besides.
        """
        new = self._losses() - self._before
        answers = sum(count for name, count in new.items() if reason_of(name).answers)
        samples = self._metrics.counts["samples_total"] - self._samples_before
        mistimed = sum(new[name] for name in _MISTIMED)
        if 10 * mistimed > samples or not self._has_windows():
            mistimed += new["duplicate"]
        at_source = (n for name, n in new.items() if reason_of(name).component == "source" and name != "retained")
        refused = 0 if samples else sum(at_source)
        unused = self._metrics.counts["recordings_unused_total"]
        return ", ".join(
            text
            for count, text in (
                (answers, f"{answers} answers were dropped"),  # rule 1
                (refused, f"all {refused} messages or rows were refused"),  # rule 2
                (unused, f"{unused} recordings gave no reading"),
                (2 * mistimed > samples, f"{mistimed} of {samples} samples were late or had a stamp twice"),  # rule 3
            )
            if count
        )

    def _has_windows(self) -> bool:
        """Return whether windows came in this run."""
        return self._metrics.counts["windows_total"] > self._windows_before

    def _is_rare(self, name: str, fresh: int, now: float) -> bool:
        if name not in _MISTIMED or name not in self._said:
            return False
        at, samples = self._said[name]
        return now < at + RARE_S and fresh < RARE * (self._metrics.counts["samples_total"] - samples)  # rule 4

    def _losses(self) -> Counter[str]:
        return Counter(self._metrics.dropped) + Counter({name: self._metrics.counts[name] for name in COUNTS})

    def _log(self, name: str, fresh: int) -> None:
        reason = reason_of(name)
        of = f" of {self._metrics.counts['samples_total']}" if name in (*_MISTIMED, "duplicate") else ""
        example = self._metrics.examples.get(name, "")
        log.log(
            logging.INFO if reason.expected and self._has_windows() else logging.WARNING,
            "%s: dropped %d%s %s: reason=%s: %s%s",
            *(reason.component, fresh, of, reason.what, name, reason.advice),
            f"; the last one: {example}" if example else "",
        )
