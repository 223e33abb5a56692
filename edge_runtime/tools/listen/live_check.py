"""Live check of an application: what its sources would get from their brokers now, and what comes on other topics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from edge_runtime.app.config import AppConfig
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.packets import topic_matches
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.manifest import InputContract
from edge_runtime.tools.listen.broker import watch
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.report import counted, describe_trial
from edge_runtime.tools.listen.table import plain
from edge_runtime.tools.listen.trial import try_sources

SHOWN: Final = 5
"""Other topics that a line names: those most like the ones that were asked for."""


class LiveCheck(NamedTuple):
    """Outcome of a live check."""

    lines: list[str]
    fine: bool
    """Every source got messages, and readings came of them."""


def check_live(config: AppConfig, contract: InputContract, seconds: float) -> LiveCheck:
    """Listen to the brokers of an application, without taking the place of one that runs.

    It subscribes to all topics with QoS 0, under a client id of its own, and publishes nothing. A broker that does not
    allow that is asked for the application's own topics.

    Args:
        config: the application's configuration.
        contract: its model's contract.
        seconds: time of listening, for each broker.

    Raises:
        ConnectionFailed: a broker cannot be reached.
    """
    checks = []
    for name, broker in config.broker.items():
        sources = {i: one for i, one in enumerate(config.source) if one.type == "mqtt" and one.broker == name}
        if sources:
            checks.append(_check(broker, sources, contract, seconds))
    return LiveCheck([line for check in checks for line in check.lines], all(check.fine for check in checks))


def _check(
    broker: BrokerConfig, sources: Mapping[int, MqttSourceConfig], contract: InputContract, seconds: float
) -> LiveCheck:
    """Check the sources of one broker; they go by their numbers in the configuration."""
    capture = _heard(broker, [topic for one in sources.values() for topic in _topics(one)], seconds)
    found = {i: _of_source(source, capture) for i, source in sources.items()}
    lines = [f"source[{i}]: in {seconds:g} s {text}" for i, (_, text) in found.items()]
    trial = try_sources(list(sources.values()), capture, contract)
    if trial.messages or trial.problem:
        lines += describe_trial(trial, contract.window / contract.rate_hz)
    return LiveCheck(lines, trial.samples > 0 and all(count for count, _ in found.values()))


def _heard(broker: BrokerConfig, own: Sequence[str], seconds: float) -> Capture:
    quiet = replace(
        broker, client_id=f"edge-runtime-check-{os.getpid()}", clean_start=True, session_expiry_s=0, status_topic=""
    )
    capture = watch(quiet, ["#"], seconds)
    return capture if capture.count else watch(quiet, own, seconds)


def _topics(source: MqttSourceConfig) -> list[str]:
    """List the filters of a source, without the group that shares their messages."""
    return [one.split("/", 2)[2] if one.startswith("$share/") else one for one, _ in source.filters()]


def _of_source(source: MqttSourceConfig, capture: Capture) -> tuple[int, str]:
    """Count the messages of a source, and say what came in their place where there are none."""
    wanted = _topics(source)
    count = 0
    others: dict[str, int] = {}
    for topic, heard in capture.topics.items():
        messages = heard.count + heard.retained
        if any(topic_matches(one, topic) for one in wanted):
            count += messages
        else:
            others[topic] = messages
    shown = ", ".join(wanted)
    if count:
        return count, f"{counted(count, 'message')} on {shown}"
    if not others:
        broker = f"is [broker.{source.broker}] the broker that the sensors publish to?"
        return 0, f"nothing on {shown}, nor on any other topic: {broker}"
    alike = sorted(others, key=lambda topic: -max(SequenceMatcher(None, one, topic).ratio() for one in wanted))
    names = ", ".join(f"{plain(topic)} ({others[topic]})" for topic in alike[:SHOWN])
    more = len(others) - SHOWN + capture.more_topics
    rest = f" and {counted(more, 'more topic')}" if more > 0 else ""
    return 0, f"nothing on {shown}, but on {names}{rest}: set topics under [[source]]"
