"""Report for people: topics, fields, rates, ranges, stamps, and what is no sensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edge_runtime.manifest import InputContract
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.csv_columns import with_named_columns
from edge_runtime.tools.listen.fields import Field, TopicFields
from edge_runtime.tools.listen.match import is_sensor, sensor_level
from edge_runtime.tools.listen.media import describe_bytes
from edge_runtime.tools.listen.propose import Proposal
from edge_runtime.tools.listen.senders import sender_of
from edge_runtime.tools.listen.stamps import Stamps, duration, find_stamps, is_stamp
from edge_runtime.tools.listen.table import plain, toml_key, toml_value
from edge_runtime.tools.listen.topics import pattern_of
from edge_runtime.tools.listen.trial import DraftTrial

_TOPICS = 20
"""Lines of topics that are shown."""
_FIELDS = 24
_WIDTH = 100


def describe(capture: Capture, seen: Mapping[str, TopicFields]) -> list[str]:
    """Describe what was heard, in lines."""
    topics = len(capture.topics) + capture.more_topics
    over = "" if math.isnan(capture.seconds) else f" in {capture.seconds:.1f} s"
    lines = [f"heard {counted(capture.count, 'message')} on {counted(topics, 'topic')}{over}"]
    groups = _groups(seen)
    for group in groups[:_TOPICS]:
        lines += ["", *_group(group, capture)]
    left = sum(len(group) for group in groups[_TOPICS:]) + capture.more_topics
    if left:
        about = "about " if capture.more_topics else ""
        lines += ["", f"and {about}{left:,} more topic{'' if left == 1 else 's'}; name fewer topics to see them"]
    return lines


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 key``, ``2 keys``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _groups(seen: Mapping[str, TopicFields]) -> list[list[TopicFields]]:
    """Topics whose messages look alike, those with sensors first."""
    found: dict[tuple[object, ...], list[TopicFields]] = {}
    for topic, one in seen.items():
        shape = (
            one.format,
            one.samples,
            frozenset(field.path for field in one.numeric()),
            topic.count("/"),
            sensor_level(topic),
        )
        found.setdefault(shape, []).append(one)
    return sorted(found.values(), key=lambda group: not _sensors(group[0]))


def _sensors(one: TopicFields) -> list[Field]:
    if one.format == "binary":  # its one field is the number of bytes
        return []
    return [field for field in one.fields.values() if is_sensor(field)]


def _group(group: Sequence[TopicFields], capture: Capture) -> list[str]:
    first = group[0]
    names = [one.topic for one in group]
    pattern = names[0] if len(group) == 1 else f"{pattern_of(names) or ', '.join(names[:3])} ({len(group)} topics)"
    heard = [capture.topics[name] for name in names]
    count, retained = sum(one.count for one in heard), sum(one.retained for one in heard)
    rates = [one.rate_hz for one in heard if not math.isnan(one.rate_hz)]
    rate = f", {_span(min(rates), max(rates))} messages/s each" if rates else ""
    kept = f", {retained} retained" if retained else ""
    sender = sender_of(first)
    who = f"; {sender.name}, as it looks" if sender else ""
    lines = [plain(f"{pattern}: {counted(count, 'message')}{kept}{rate}; {first.format}{who}")[: 2 * _WIDTH]]
    sensors = _sensors(first)
    if not sensors:
        return [*lines, f"    no sensor: {_why_not(first, capture)}"]
    lines += ["    " + _field(field) for field in sensors[:_FIELDS]]
    if len(sensors) > _FIELDS:
        lines.append(f"    and {len(sensors) - _FIELDS} more fields")
    lines += [f"    {line}" for line in _stamps(first, capture)]
    return lines


def _why_not(one: TopicFields, capture: Capture) -> str:
    texts = [text for field in one.fields.values() for text in field.texts[:1] if not is_stamp(field)]
    if one.format in ("empty", "too large"):
        return {"empty": "empty messages", "too large": "messages above 256 kB"}[one.format]
    if one.format == "binary":
        heard = capture.topics[one.topic]
        sizes = [len(message.payload) for message in heard.kept]
        return describe_bytes(heard.kept[-1].payload, sizes, heard.rate_hz)
    return f"text, {plain(texts[0])[:40]!r}" if texts else "no field holds numbers that look measured"


def _field(field: Field) -> str:
    name = plain(field.path or "(the message)")[:40]
    lists = f", lists of {_span(field.shortest, field.longest)}"
    text = ", as text with a decimal comma" if field.comma else ", as text"
    kind = {"number as text": text, "numbers": lists, "rows": f"{lists} rows of {field.width}"}
    same = ", always the same" if field.constant else ""
    return f"{name:<28} {_number(field.low)} to {_number(field.high)}{kind.get(field.kind, '')}{same}"


def _stamps(one: TopicFields, capture: Capture) -> list[str]:
    arrivals = [message.received for message in capture.topics[one.topic].live]
    stamps = find_stamps(with_named_columns(one, arrivals), arrivals)  # as the table will have them
    if stamps is None:
        return ["time: none in the messages"]
    parts = [f"time: {plain(stamps.path)[:40]!r}, {stamps.unit}"]
    if not math.isnan(stamps.step_s):
        parts.append(f"one each {stamps.step_s:.4g} s ({1 / stamps.step_s:.4g} Hz), jitter {stamps.jitter_s:.2g} s")
    if not math.isnan(stamps.offset_s):
        parts.append(_clock(stamps))
    if stamps.coarse:
        parts.append("whole seconds, shared by several samples")
    return ["; ".join(parts)]


def _clock(stamps: Stamps) -> str:
    if abs(stamps.offset_s) < 5:
        return "its clock agrees with this machine's"
    return f"its clock is {duration(abs(stamps.offset_s))} {'behind' if stamps.offset_s > 0 else 'ahead'}"


def _span(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def _number(value: float) -> str:
    return f"{value:.4g}"


def describe_trial(trial: DraftTrial, window_s: float) -> list[str]:
    """Describe what the table makes of the messages heard."""
    if trial.problem:
        return [f"this table is not accepted: {plain(trial.problem)}"]
    keys = sorted(trial.keys)
    shown = ", ".join(plain(key)[:32] for key in keys[:5]) + (", ..." if len(keys) > 5 else "")
    lines = [f"with this table: {counted(trial.samples, 'sample')} of {counted(len(keys), 'key')} ({shown or 'none'})"]
    if trial.refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(trial.refused.items()))
        last = f"; the last one: {plain(trial.example)[:160]}" if trial.example else ""
        lines.append(f"left out: {reasons}{last}")
    if trial.windows:
        lines.append(f"{counted(trial.windows, 'window')}: labels would have come")
    else:
        lines.append(f"no window yet: a key needs {window_s:.3g} s without a gap; listen longer to see one")
    return lines


def no_window(trial: DraftTrial, capture: Capture, contract: InputContract) -> str:
    """Say in one line that the model would not have answered, and what to do.

    Args:
        trial: a trial without a window.
        capture: the messages.
        contract: the model's contract.
    """
    window_s = contract.window / contract.rate_hz
    heard = capture.seconds
    if not trial.samples:
        todo = "see what was left out"
    elif math.isnan(heard) and any(trial.refused[reason] for reason in ("late", "duplicate", "same_stamp")):
        todo = "these messages have no times; capture them with mosquitto_sub -F %j, or listen to the broker"
    elif math.isnan(heard) or heard < 2 * window_s:
        todo = f"listen for longer: --seconds {math.ceil(3 * window_s)}, or more captured messages"
    else:
        each = max(trial.keys.values()) / heard
        todo = (
            f"a key brings {each:.3g} samples/s, the model wants {contract.rate_hz:g} without a gap; set the sensor to "
            f"{contract.rate_hz:g} Hz, or write rate_hz under [source.codec] where a message holds several samples"
        )
    return f"NO WINDOW: the model would not have answered; a window takes {window_s:.3g} s: {todo}"


def describe_unused(seen: Mapping[str, TopicFields], contract: InputContract, proposal: Proposal | None = None) -> str:
    """Name the fields that a table does not use, of the topics it reads, else of all; empty where there are none."""
    used = {(one.candidate.topic, one.candidate.path) for one in proposal.matches} if proposal else set()
    topics = [one for topic, one in seen.items() if proposal is None or topic in proposal.topics] or seen.values()
    fields = [field.path for one in topics for field in _sensors(one) if (one.topic, field.path) not in used]
    names = list(dict.fromkeys(plain(path)[:40] for path in fields if path))
    if not names:
        return ""
    more = ", ..." if len(names) > _FIELDS else ""
    wanted = proposal.missing[0] if proposal and proposal.missing else contract.channels[0].name
    example = f"{toml_key(wanted)} = {toml_value(names[0])}"
    return (
        f"fields not used: {', '.join(names[:_FIELDS])}{more}; name those that are the model's channels under "
        f"[source.codec.channels], as {example}"
    )
