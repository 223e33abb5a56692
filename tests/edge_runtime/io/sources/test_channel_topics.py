"""One topic per channel: what cannot work is refused with the line to write, what can meets in the key's readings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.cells import BlockConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.routing import Receive
from edge_runtime.io.mqtt.topics import filters_overlap, topic_matches
from edge_runtime.io.sources import mqtt
from edge_runtime.io.sources.build import build_source, require_channels
from edge_runtime.io.sources.channel_topics import keys_of
from edge_runtime.io.sources.mqtt import MqttSource, MqttSourceConfig, key_of
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.types import Done, Reading
from tests.edge_runtime.io.mqtt.clients import Bench, unique
from tests.mosquitto import Mosquitto

NOW = 1_700_000_000.0
MODEL = (
    Channel(name="temperature", unit="Cel", resample="previous"),
    Channel(name="humidity", unit="%RH", resample="previous"),
    Channel(name="ax", unit="g"),
    Channel(name="ay", unit="g"),
)
CONTRACT = InputContract(channels=MODEL, rate_hz=10, window=10, hop=5)
CLIMATE = {"temperature": "+/temperature/state", "humidity": "+/humidity/state"}


@pytest.fixture(scope="module", params=["demo", "mosquitto"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with Broker() if request.param == "demo" else Mosquitto() as broker:
        yield broker.url


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as running:
        yield running


class Running:
    """A source on a broker, and what it delivered."""

    def __init__(self, bench: Bench, url: str, channels: dict[str, str], **config: Any) -> None:
        self.bench = bench
        self.client: BrokerClient = bench.broker_client(url)
        source = build_source(
            MqttSourceConfig(broker="b", channels=channels, **config),
            name="source[0]",
            contract=CONTRACT,
            broker_clients={"b": self.client},
            metrics=bench.metrics,
            clock=SimulatedClock(wall=NOW),
        )
        assert isinstance(source, MqttSource)
        self.readings: list[Reading] = []
        source.open(bench.loop, self._take)
        bench.until(lambda: self.client.connected and not self.client._subscribing)

    def _take(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.readings += readings
        if done is not None:
            done()

    def wait(self, n: int) -> list[tuple[str, tuple[int, ...] | None, list[list[float]]]]:
        self.bench.until(lambda: len(self.readings) >= n)
        return [(one.key, one.channels, one.values.tolist()) for one in self.readings]


# -- what cannot work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": CLIMATE, "topics": ["a"]}, "use one of them"),
        ({"channels": {}}, "at least one topic filter"),
        ({"channels": {"a": "x/#/y"}}, "'x/#/y' cannot be subscribed to"),
        (
            {"channels": {"a": "dev/+/a", "b": "dev/3/+"}},
            r"'dev/\+/a' \(a\) and 'dev/3/\+' \(b\) cover the same topics",
        ),
        ({"channels": {"a": "attic/a", "b": "attic/b"}}, r"'attic/a' would be a key of its own.* key = \"\{0\}\""),
        ({"channels": {"a": "dev/+/a", "b": "dev/b"}}, "'dev/b' would be a key of its own"),
        ({"channels": CLIMATE, "key": "topic"}, "would be a key of its own"),
        ({"channels": {"a": "dev/+/a", "b": "dev/+/+/b"}}, r"give different keys.* key = \"\{1\}\""),
        ({"channels": {"a": "a/#", "b": "b/#"}}, "give different keys"),
        (
            {"channels": {"a": "a/+", "b": "b/+"}, "key": "{2}"},
            r"key '\{2\}' cannot be taken from 'a/\+', .* \{0\} to \{1\}",
        ),
        ({"topics": ["a/+"], "key": "{-3}"}, r"cannot be taken from 'a/\+'"),
    ],
)
def test_topics_that_cannot_meet_are_refused_with_the_line_to_write(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(schema.SchemaError, match=message):
        schema.load(MqttSourceConfig, {"type": "mqtt", "broker": "b", **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"channels": CLIMATE},
        {"channels": {"a": "attic/a", "b": "attic/b"}, "key": "{0}"},
        {"channels": {"a": "attic/a"}},
        {"channels": {"a": "attic/acc", "b": "attic/acc"}},
        {"channels": {"a": "a/+", "b": "b/+"}, "key": "payload"},
        {"channels": {"a": "a/+/x", "b": "b/+"}},
        {"channels": {"a": "a/#", "b": "b/#"}, "key": "{1}"},
        {"topics": ["a/#"], "key": "{7}"},
    ],
)
def test_topics_that_can_meet_are_taken(settings: dict[str, Any]) -> None:
    config = schema.load(MqttSourceConfig, {"type": "mqtt", "broker": "b", **settings})
    assert [one for one, _ in config.filters()] == list(config.patterns)


def build(codec: Any = None, **channels: str) -> None:
    build_source(
        MqttSourceConfig(broker="b", channels=channels, codec=codec or JsonConfig()),
        name="source[0]",
        contract=CONTRACT,
        broker_clients={"b": BrokerClient(BrokerConfig(url="mqtt://127.0.0.1:1"), "b", Metrics())},
        metrics=Metrics(),
        clock=SimulatedClock(),
    )


def test_a_channel_that_the_model_has_not_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="channels names warmth; the model's channels are temperature, humidity, ax, ay"
    ):
        build(warmth="+/t")


def test_units_are_stated_of_all_topics_or_none() -> None:
    with pytest.raises(
        ConfigError, match=r"says nothing of humidity; .* units = \{temperature = \"degF\", humidity = "
    ):
        build(JsonConfig(units={"temperature": "degF"}), **CLIMATE)


APP = """
[model]
bundle = "model.edge"
unsigned = "allow"
[broker.local]
url = "mqtt://127.0.0.1:1"
[broker.other]
url = "mqtt://127.0.0.1:2"
[[sink]]
type = "stdout"
[[source]]
type = "mqtt"
broker = "local"
channels = {a = "dev/+/a"}
[[source]]
type = "mqtt"
broker = "%s"
topics = ["%s"]
[source.codec]
type = "json"
channels = {b = "b", mask = "mask"}
partial = true
"""


def test_two_sources_do_not_ask_for_the_same_messages() -> None:
    with pytest.raises(ConfigError, match=r"two sources ask broker local for 'dev/\+/a' and 'dev/#'.* only the first"):
        parse(APP % ("local", "dev/#"), Path("app.toml"))
    assert len(parse(APP % ("other", "dev/#"), Path("app.toml")).source) == 2
    assert len(parse(APP % ("local", "dev/+/b"), Path("app.toml")).source) == 2


def test_a_channel_that_no_source_brings_is_named() -> None:
    sources = parse(APP % ("local", "dev/+/b"), Path("app.toml")).source

    def contract(*channels: Channel) -> InputContract:
        return InputContract(channels=channels, rate_hz=1, window=2, hop=1)

    a, b, c = (Channel(name=name, unit="1") for name in "abc")
    may_lack, mask = Channel(name="a", unit="1", missing="last"), Channel(name="d", unit="1", mask_of="a")
    require_channels(sources[:1], contract(may_lack, mask))
    with pytest.raises(ConfigError, match=r"no source brings b, c: add to channels under \[\[source\]\] the topic"):
        require_channels(sources[:1], contract(a, b, c))
    with pytest.raises(ConfigError, match="name each once"):
        require_channels(sources, contract(a, b))  # mask is no channel of this model


BODY = """
[[source]]
type = "mqtt"
broker = "local"
topics = ["%s"]
key = "%s"
codec = {type = "json", partial = true, channels = {%s}}
"""
MASKED = (Channel(name="g", unit="1", missing="last"), Channel(name="has_g", unit="1", mask_of="g"))


def require(*sources: tuple[str, str, str], more: str = "", channels: Sequence[Channel] = ()) -> None:
    """Check sources of topic, key and a channel each, as `run --check` does."""
    tables = "".join(BODY % (topic, key, f'{name} = "x"') for topic, key, name in sources)
    config = parse(
        '[model]\nbundle = "m.edge"\n[broker.local]\nurl = "mqtt://127.0.0.1"\n' + tables + more, Path("app.toml")
    )
    named = channels or [Channel(name=name, unit="1") for name in dict.fromkeys(name for _, _, name in sources)]
    require_channels(config.source, InputContract(channels=tuple(named), rate_hz=1, window=2, hop=1))


@pytest.mark.parametrize(
    ("topics", "key", "advice"),
    [
        (("body/acc", "body/gyro"), "wildcards", "topic 'body/acc' would be a key of its own.* key = \"{0}\""),
        (("body/acc", "body/gyro"), "topic", 'key = "{0}"'),
        (("body/acc", "body/gyro"), "{1}", 'their keys are never the same.* key = "{0}"'),
        (("acc/body", "gyro/body"), "wildcards", 'key = "{1}"'),
        (("+/acc", "+/gyro/+"), "wildcards", 'their keys are never the same.* key = "{0}"'),
        (("+/acc", "body/gyro/raw"), "wildcards", "topic 'body/gyro/raw' would be a key of its own.* key = \"{0}\""),
        (("$share/us/body/acc", "body/gyro"), "wildcards", 'key = "{0}"'),
        (("acc", "gyro"), "wildcards", 'key = "payload"'),
    ],
)
def test_sources_whose_keys_never_meet_are_refused(topics: tuple[str, str], key: str, advice: str) -> None:
    a, g = ((topic, key, name) for topic, name in zip(topics, "ag", strict=True))
    with pytest.raises(ConfigError, match=advice.replace("{", r"\{")):
        require(a, g)


@pytest.mark.parametrize("key", ["wildcards", "topic"])
def test_a_channel_that_both_bring_does_not_make_them_meet(key: str) -> None:
    with pytest.raises(ConfigError, match=r"'body/acc' \(a, m\) and 'body/gyro' \(g\)"):
        require(
            ("body/acc", key, 'a = "x", m'),
            ("body/gyro", key, "g"),
            channels=[Channel(name=n, unit="1") for n in "agm"],
        )


@pytest.mark.parametrize(
    ("topics", "key"),
    [
        (("body/acc", "body/gyro"), "{0}"),
        (("body/acc", "body/gyro"), "payload"),
        (("/body/acc", "/body/gyro"), "{0}"),  # an empty level: the payload names the key
        (("+/acc", "+/gyro"), "wildcards"),
        (("+/acc", "gyro"), "wildcards"),  # the key of 'gyro/acc' is gyro
        (("a/#", "body/gyro"), "wildcards"),
        (("body/acc/#", "body/gyro/#"), "{-1}"),
        (("body/acc", "+/gyro"), "{0}"),
    ],
)
def test_sources_whose_keys_can_meet_are_not(topics: tuple[str, str], key: str) -> None:
    a, g = ((topic, key, name) for topic, name in zip(topics, "ag", strict=True))
    require(a, g)


def test_sources_that_need_not_meet_are_not_refused() -> None:
    both = [Channel(name=name, unit="1") for name in "ag"]
    require(("body/acc", "wildcards", 'a = "x", g'), ("leg/acc", "wildcards", 'g = "x", a'), channels=both)
    require(("body/acc", "wildcards", "a"), ("body/gyro", "wildcards", "g"), channels=[both[0], *MASKED])
    require(("body/acc", "wildcards", "a"), more='[[source]]\ntype = "stdin"\n', channels=both)


LEVELS = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=4)
FILTERS = st.tuples(LEVELS, st.booleans()).map(lambda drawn: "/".join(drawn[0] + ["#"] * drawn[1]))


@given(FILTERS, st.sampled_from(["wildcards", "topic", "{0}", "{-1}", "{0}/{-1}", "{-1}-{0}"]))
def test_the_keys_of_a_filter_cover_those_of_all_its_topics(pattern: str, key: str) -> None:
    config = MqttSourceConfig(broker="local", topics=(pattern,), key=key)
    topics = [pattern.replace("+", level).replace("#", rest) for level in "ab" for rest in ("a", "b/a")]
    for made in [key_of(config)(topic.encode()) for topic in topics]:
        assert made is not None
        assert topic_matches(keys_of(pattern, key), made)


@given(FILTERS, FILTERS)
def test_filters_overlap_where_a_topic_fits_both(a: str, b: str) -> None:
    """Against all topics of up to five levels that could tell."""
    topics = [""]
    every: list[str] = []
    for _ in range(5):
        topics = [f"{topic}/{level}" if topic else level for topic in topics for level in "ab"]
        every += topics
    assert filters_overlap(a, b) == any(topic_matches(a, topic) and topic_matches(b, topic) for topic in every)


def test_a_wildcard_in_front_does_not_reach_the_server_s_topics() -> None:
    assert not filters_overlap("#", "$SYS/a")
    assert not filters_overlap("+/a", "$SYS/a")
    assert filters_overlap("$SYS/#", "$SYS/a")


# -- what can ---------------------------------------------------------------------------------------------------------


def test_bare_values_on_topics_of_their_own_become_readings_of_one_key(bench: Bench, url: str) -> None:
    root = unique("home")
    running = Running(bench, url, {name: f"{root}/{one}" for name, one in CLIMATE.items()})
    sender = bench.connected(url)
    topics = [(f"{root}/attic/temperature/state", b"21.5"), (f"{root}/attic/humidity/state", b'"44"')]
    topics += [(f"{root}/bath/temperature/state", b"unavailable"), (f"{root}/bath/temperature/state", b"19")]
    sender.publish([Message(topic.encode(), payload, b"", 1) for topic, payload in topics])
    assert running.wait(3) == [("attic", (0,), [[21.5]]), ("attic", (1,), [[44]]), ("bath", (0,), [[19]])]
    assert [reading.t for reading in running.readings] == [NOW] * 3
    assert bench.metrics.counts["undated_total"] == 3
    assert bench.metrics.counts["messages_total"] == 4
    bench.until(lambda: not running.client._inbound_queue.inbound_acks.unacked)


def test_channels_may_share_a_topic_and_come_in_units_of_their_own(bench: Bench, url: str) -> None:
    root = unique("mixed")
    codec = JsonConfig(
        channels={"ax": "x", "ay": "y", "temperature": "value"}, units={"temperature": "degF", "ax": "mg", "ay": "mg"}
    )
    running = Running(
        bench, url, {"ay": f"{root}/+/acc", "ax": f"{root}/+/acc", "temperature": f"{root}/+/temp"}, codec=codec
    )
    sender = bench.connected(url)
    sender.publish(
        [
            Message(f"{root}/w1/acc".encode(), b'{"t": 5, "x": 500, "y": -250}', b"", 1),
            Message(f"{root}/w1/temp".encode(), b'{"t": 6, "value": "212 \xc2\xb0F"}', b"", 1),
        ]
    )
    first, second = running.wait(2)
    assert first == ("w1", (2, 3), [[0.5, -0.25]])
    assert second[:2] == ("w1", (0,))
    assert second[2][0][0] == pytest.approx(100)
    assert [reading.t for reading in running.readings] == [5, 6]


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (RawConfig(), np.float32(2.5).tobytes()),
        (RawConfig(dtype="int16", scale=(0.01,)), np.int16(250).tobytes()),
        (JsonConfig(block=BlockConfig(dtype="float64")), b'{"t":1,"values":"AAAAAAAABEA="}'),
        (SenmlConfig(), b'[{"n":"ax","v":2.5}]'),
    ],
    ids=["raw", "int16", "base64", "senml"],
)
def test_every_codec_may_read_a_channel_s_topic(bench: Bench, url: str, codec: Any, payload: bytes) -> None:
    root = unique("codecs")
    running = Running(bench, url, {"ax": f"{root}/+/x"}, codec=codec)
    bench.connected(url).publish([Message(f"{root}/w1/x".encode(), payload, b"", 1)])
    assert running.wait(1) == [("w1", (2,), [[2.5]])]


def test_what_one_topic_gets_wrong_costs_only_that(bench: Bench, url: str) -> None:
    root = unique("wrong")
    running = Running(bench, url, {name: f"{root}/{one}" for name, one in CLIMATE.items()})
    payloads = [b"21,5", b"x" * 300_000, b'{"a":' * 3000, b"21.5"]
    topic = f"{root}/attic/temperature/state".encode()
    bench.connected(url).publish([Message(topic, payload, b"", 1) for payload in payloads])
    assert running.wait(1) == [("attic", (0,), [[21.5]])]
    assert bench.metrics.dropped == {"decimal_comma": 1, "malformed": 1, "too_large": 1}


def test_a_million_topics_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100 for 65,536, and 10,000 for a million."""

    class Client:
        """Stand-in for a broker's client: hands over what the test sends."""

        def subscribe(self, _filters: Sequence[tuple[str, int]], receive: Receive, _key_of: object = None) -> None:
            self.receive = receive

        def open(self, _loop: Loop) -> None: ...

        def pause(self) -> None: ...

        def close(self, _timeout_s: float) -> None: ...

    monkeypatch.setattr(mqtt, "_KEYS", 100)
    client, metrics, taken = Client(), Metrics(), [0]
    config = MqttSourceConfig(broker="b", channels=CLIMATE)
    source = mqtt.make_source(config, client, CONTRACT, metrics, SimulatedClock(), name="source[0]")

    def count(readings: Sequence[Reading], received: float, done: Done | None) -> None:
        taken[0] += len(readings)

    with contextlib.closing(Loop()) as loop:
        source.open(loop, count)
        for i in range(0, 10_000, 100):
            topics = [b"%d/%s/state" % (i + k, b"humidity" if k % 2 else b"temperature") for k in range(100)]
            client.receive([(topic, b"21.5", 0, 0, 0, None) for topic in topics], 0.0, None)
    assert taken == [10_000]
    assert len(source._keys) <= 100
    assert len(source._decoders) <= 100


# -- retained values --------------------------------------------------------------------------------------------------


def keep(bench: Bench, url: str, *kept: tuple[str, bytes]) -> None:
    """Leave retained messages on the broker."""
    sender = bench.connected(url)
    taken: list[bool] = []
    messages = [Message(topic.encode(), payload, b"", 1, retain=True) for topic, payload in kept]
    sender.publish(messages, lambda: taken.append(True))
    bench.until(lambda: taken)


@pytest.mark.parametrize(
    ("rule", "expected", "dropped"), [("ignore", [], 4), ("hold", [("w", (0,), [[21.5]]), ("w", (2,), [[2]])], 2)]
)
def test_a_retained_value_is_no_sample_of_now(
    bench: Bench, url: str, rule: Any, expected: list[Any], dropped: int
) -> None:
    """Held: temperature, whose rule is previous, and ax with a stamp; not ax without one, nor what is malformed."""
    root = unique("kept")
    keep(
        bench,
        url,
        (f"{root}/w/t", b"21.5"),
        (f"{root}/w/ax", b'{"t": 1600000000, "values": [2]}'),
        (f"{root}/v/ax", b"3"),
        (f"{root}/u/t", b"?"),
    )
    running = Running(bench, url, {"temperature": f"{root}/+/t", "ax": f"{root}/+/ax"}, retained=rule)
    live = Message(f"{root}/w/t".encode(), b"22", b"", 1)
    bench.connected(url).publish([live])
    found = running.wait(1 + len(expected))
    assert [*sorted(found[:-1]), found[-1]] == [*expected, ("w", (0,), [[22]])]
    malformed = bench.metrics.dropped["not_a_number"]
    assert bench.metrics.dropped["retained"] + malformed == dropped
    assert malformed == (rule == "hold")
    bench.until(lambda: not running.client._inbound_queue.inbound_acks.unacked)
