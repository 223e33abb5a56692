"""Channels proposed for training, where there is no model yet: the sensors of the liveliest topic."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.fields import TopicFields
from edge_runtime.tools.listen.match import Candidate, Match, candidates_in, is_sensor, sensor_level
from edge_runtime.tools.listen.names import name_of
from edge_runtime.tools.listen.senders import sender_of
from edge_runtime.tools.listen.stamps import find_stamps
from edge_runtime.tools.listen.units import guess_units

_MOST = 64
"""Channels that are proposed."""


def propose_contract(capture: Capture, seen: Mapping[str, TopicFields]) -> InputContract | None:
    """Propose the channels and the rate of a model to be; None where no topic has a sensor.

    1. The topic with the most samples and fields counts; numbers that are no measurements are left out.
    2. Where each topic has one number, the topics that share the most levels with the liveliest count together.
    3. Where a level of the topic names the sensor, the other sensors of the same device count, too.
    """
    alive = {topic: one for topic, one in seen.items() if _candidates(one)}
    if not alive:
        return None
    best = max(alive.values(), key=lambda one: (min(3, len(_candidates(one))), one.items))
    candidates = _candidates(best)
    if len(candidates) == 1:
        candidates = _siblings(best, alive)  # rule 2
    elif sensor_level(best.topic)[1]:
        candidates = _sensors(best, alive)  # rule 3
    channels = _named(candidates[:_MOST])
    matches = [Match(channel, candidate, 0.0) for channel, candidate in zip(channels, candidates, strict=False)]
    guesses = guess_units(matches, sender_of(best))
    named = tuple(Channel(name=one.name, unit=units.canonical(guesses[one.name].unit) or "1") for one in channels)
    rate = _rate(capture, best)
    window = max(1, round(2 * rate))
    return InputContract(channels=named, rate_hz=rate, window=window, hop=max(1, window // 2))


def _candidates(one: TopicFields) -> list[Candidate]:
    sensors = {field.path for field in one.fields.values() if is_sensor(field)}
    return [each for each in candidates_in(one) if each.path in sensors or each.path.rpartition(".")[0] in sensors]


def _siblings(best: TopicFields, alive: Mapping[str, TopicFields]) -> list[Candidate]:
    levels = best.topic.split("/")
    found = []
    for topic, one in alive.items():
        own = topic.split("/")
        same = len(own) == len(levels) and sum(a == b for a, b in zip(own, levels, strict=True)) >= len(levels) - 1
        candidates = _candidates(one)
        if same and len(candidates) == 1:
            differing = next((a for a, b in zip(own, levels, strict=True) if a != b), own[-1])
            found.append(Candidate(topic, candidates[0].path, name_of(differing), candidates[0].series))
    return found


def _sensors(best: TopicFields, alive: Mapping[str, TopicFields]) -> list[Candidate]:
    """Candidates of all sensors of a device; the level that names the sensor is a part of their names."""
    place, _ = sensor_level(best.topic)
    levels = best.topic.split("/")
    found = []
    for topic, one in alive.items():
        own = topic.split("/")
        same = [*own[:place], *own[place + 1 :]] == [*levels[:place], *levels[place + 1 :]]
        if same and sensor_level(topic)[0] == place:
            found += _candidates(one)
    several = {one.topic for one in found}
    return (
        found
        if len(several) == 1
        else [dataclasses.replace(one, path=f"{one.topic.split('/')[place]}.{one.path}") for one in found]
    )


def _named(candidates: Sequence[Candidate]) -> list[Channel]:
    """Make short names that differ: the last step of a path, or more of it."""
    steps = [
        [step for step in re.split(r"[^A-Za-z0-9]+", one.path or one.topic) if step] or ["value"] for one in candidates
    ]
    depth = 1
    while depth < max(map(len, steps)) and len({"_".join(own[-depth:]) for own in steps}) < len(steps):
        depth += 1
    names = ["_".join(own[-depth:]) for own in steps]
    return [Channel(name=name, unit="1") for name in dict.fromkeys(names)]


def _rate(capture: Capture, best: TopicFields) -> float:
    """Return the samples per second of a topic, in three digits; 1 where nothing tells."""
    heard = capture.topics[best.topic]
    stamps = find_stamps(best, [message.received for message in heard.live])
    several = max((one.longest for one in best.fields.values() if one.kind in ("numbers", "rows")), default=1) or 1
    if stamps is not None and stamps.step_s > 0 and not stamps.coarse:
        own = best.fields.get(stamps.path)
        rate = (1 if own is not None and own.kind == "numbers" else several) / stamps.step_s
    else:
        rate = heard.rate_hz * several * max(1.0, best.items / max(1, best.documents))
    return float(f"{min(max(rate, 1e-3), 1e5):.3g}") if not math.isnan(rate) else 1.0
