"""Draft of a codec for one topic: samples, sensors, channels and what follows from them, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.listen.capture import Heard
from edge_runtime.tools.listen.codec_settings import (
    DOCUMENTS,
    codec_of,
    decimal_lines,
    payload_key,
    rate_lines,
    settings_of,
    time_lines,
)
from edge_runtime.tools.listen.csv_columns import csv_lines, with_named_columns
from edge_runtime.tools.listen.fields import Field, TopicFields
from edge_runtime.tools.listen.match import Candidate, Match, candidates_in, gravity_unit, match, match_by_order, triads
from edge_runtime.tools.listen.names import Name, name_of
from edge_runtime.tools.listen.senders import Sender, sender_of
from edge_runtime.tools.listen.stamps import Stamps, find_stamps
from edge_runtime.tools.listen.table import Line
from edge_runtime.tools.listen.units import UnitGuess, guess_units

_OWN_SHAPE_SCORE = 8.0
"""Score of a column of our own shape, which no name tells: that of a field that is called as the channel."""


@dataclass(slots=True, kw_only=True)
class TopicDraft:
    """Codec, channels and units that read one topic alone."""

    seen: TopicFields
    matches: list[Match]
    stamps: Stamps | None
    sender: Sender | None
    units: dict[str, UnitGuess]
    codec: list[Line]
    channels: list[Line] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    """Channels of the model that the topic does not bring."""
    payload_key: str = ""
    """Field that says whose a message is; empty where the topic does."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Same for topics that one table can read."""
        return (
            tuple((line.key, str(line.value)) for line in (*self.codec, *self.channels)),
            tuple(sorted((name, guess.unit) for name, guess in self.units.items() if guess.unit)),
            self.payload_key,
        )


def draft_codec(seen: TopicFields, heard: Heard, contract: InputContract) -> TopicDraft | None:
    """Draft the codec for one topic; None where it brings no channel."""
    arrivals = [message.received for message in heard.live]
    seen = with_named_columns(seen, arrivals)
    stamps, sender = find_stamps(seen, arrivals), sender_of(seen)
    draft = _own_shape(seen, contract.channels) or _mapped(seen, contract.channels)
    if draft is None:
        return None
    draft.stamps, draft.sender = stamps, sender
    draft.units = guess_units(draft.matches, sender)
    draft.channels = _with_warning(draft)
    draft.codec += decimal_lines(seen) + time_lines(seen, stamps) + rate_lines(seen, stamps, heard.rate_hz, contract)
    draft.payload_key = payload_key(seen)
    if draft.payload_key:
        draft.codec.append(Line("key", draft.payload_key, "guess: it differs from message to message on one topic"))
    return draft


def _with_warning(draft: TopicDraft) -> list[Line]:
    """Say at an acceleration that it has no gravity, where its sender has another one that has."""
    warning = draft.sender.without_gravity if draft.sender is not None else ""
    without = {
        one.channel.name
        for axes in triads(draft.matches)
        for one in axes
        if name_of(one.channel.name, one.channel.unit).quantity == "acceleration" and not gravity_unit(axes)
    }
    return [
        replace(line, comment="; ".join(filter(None, (line.comment, warning)))) if line.key in without else line
        for line in draft.channels
    ]


# -- our own shape ----------------------------------------------------------------------------------------------------


def _own_shape(seen: TopicFields, channels: Sequence[Channel]) -> TopicDraft | None:
    """Draft for rows of one number for each channel, or one flat list of them; None for other messages."""
    values = next((one for one in seen.fields.values() if _holds_rows(one, len(channels))), None)
    if values is None or seen.format not in DOCUMENTS or seen.samples:
        return None
    n = len(channels)
    matches = [
        Match(
            channel,
            Candidate(seen.topic, f"column {i + 1}", Name(frozenset()), values.series[i::n]),
            _OWN_SHAPE_SCORE,
            by_order=True,
        )
        for i, channel in enumerate(channels)
    ]
    codec = [Line("type", seen.format)]
    if values.path != "values":
        codec.append(Line("values", values.path or ".", "rows with a number for each channel, in the model's order"))
    return TopicDraft(seen=seen, matches=matches, stamps=None, sender=None, units={}, codec=codec)


def _holds_rows(one: Field, channels: int) -> bool:
    if one.kind == "rows":
        return one.width == channels
    flat = one.kind == "numbers" and one.path in ("values", "")
    return flat and channels > 1 and one.longest % channels == 0 and one.shortest % channels == 0


# -- a field for each channel -----------------------------------------------------------------------------------------


def _mapped(seen: TopicFields, channels: Sequence[Channel]) -> TopicDraft | None:
    """Draft for messages with a field for each channel, or for some; None where none is found."""
    kind = codec_of(seen)
    if kind == "sparkplug" or not settings_of(kind) or (seen.format == "number" and len(channels) > 1):
        return None
    candidates = candidates_in(seen)
    matches = match(channels, candidates) or match_by_order(channels, candidates)
    if not matches:
        return None
    who = _only_sensor(seen, matches)
    found = {one.channel.name for one in matches}
    return TopicDraft(
        seen=seen,
        matches=matches,
        stamps=None,
        sender=None,
        units={},
        codec=[Line("type", kind), *csv_lines(seen, matches), *_shape_lines(seen, matches, channels, who)],
        channels=_channel_lines(seen, matches, who),
        missing=tuple(channel.name for channel in channels if channel.name not in found),
    )


def _shape_lines(seen: TopicFields, matches: Sequence[Match], channels: Sequence[Channel], who: str) -> list[Line]:
    """State which part of a message is a sample, of which sensor, and whether it may lack channels."""
    lines = []
    if seen.format == "senml-cbor":
        lines.append(Line("encoding", "cbor"))
    if seen.samples and seen.format in DOCUMENTS:
        of = f"; {seen.discriminator!r} says of which sensor" if seen.discriminator else ""
        lines.append(Line("samples", seen.samples, "a list of samples" + of))
    if who:
        lines.append(Line("select", {seen.discriminator: who}, "the other sensors' samples are left out"))
    if seen.format == "number":
        lines.append(Line("values", ".", "the message is the number"))
    why = _why_partial(seen, matches, channels, who)
    if why and "partial" in settings_of(codec_of(seen)):
        lines.append(Line("partial", True, why))
    return lines


def _channel_lines(seen: TopicFields, matches: Sequence[Match], who: str) -> list[Line]:
    """State the field of each channel; of formats that read a name as it is, of those that are called otherwise."""
    if seen.format == "number" or (seen.dialect is not None and not seen.dialect.header and not seen.dialect.pair):
        return []
    paths = [one.candidate.path.rpartition("].")[2] if who else one.candidate.path for one in matches]
    if seen.format in DOCUMENTS:
        return [Line(one.channel.name, path, _why(one)) for one, path in zip(matches, paths, strict=True)]
    lines = [
        Line(one.channel.name, units.split_name(path)[0], _why(one)) for one, path in zip(matches, paths, strict=True)
    ]
    return [line for line in lines if line.key != line.value]


def _only_sensor(seen: TopicFields, matches: Sequence[Match]) -> str:
    """Return the one sensor that all channels come from, where objects are told apart by a sensor's name."""
    start = f"[{seen.discriminator}="
    sensors = {one.candidate.path.removeprefix(start).partition("]")[0] for one in matches}
    named = bool(seen.discriminator) and all(one.candidate.path.startswith(start) for one in matches)
    return sensors.pop() if named and len(sensors) == 1 else ""


def _why_partial(seen: TopicFields, matches: Sequence[Match], channels: Sequence[Channel], who: str) -> str:
    """Return why a sample may lack a channel; empty where it brings all."""
    if len(matches) < len(channels):
        return "the other channels come from elsewhere"
    if seen.discriminator and not who:
        return "each sample is from one sensor"
    counts = [_count(seen, one.candidate) for one in matches]
    wanted = max(counts) if who else seen.items
    if min(counts) >= wanted:
        return ""
    lacking = matches[counts.index(min(counts))]
    return f"{min(counts)} of {wanted} samples have {lacking.candidate.shown!r}"


def _count(seen: TopicFields, candidate: Candidate) -> int:
    one = seen.fields.get(candidate.path) or seen.fields.get(candidate.path.rpartition(".")[0])
    return 0 if one is None else one.count - one.kinds["nothing"]


def _why(one: Match) -> str:
    if one.by_order:
        return "guess: by the order alone, since the names tell nothing"
    if one.others:
        return f"guess by the name; it may also be {' or '.join(other.shown for other in one.others)}"
    return "" if one.candidate.path.lower() == one.channel.name.lower() else "guess: by the name"
