"""An edge node in the eyes of a host that checks every message against the specification."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from edge_devices.integrations.sparkplug import SparkplugSink, SparkplugSinkConfig, check_broker
from edge_devices.integrations.sparkplug_bdseq import BirthDeathSequence, file_beside
from edge_devices.integrations.sparkplug_node import device_id
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.codecs.sparkplug import SparkplugCodec, SparkplugConfig
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.sinks import Described
from edge_runtime.manifest import Channel
from edge_runtime.manifest.outputs import AnomalyOutput, AnyOutput, OutputContract, Quantity, RegressionOutput
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answers import AnomalyPrediction, RegressionPrediction
from edge_runtime.types import Answer, FinalAnswer, Prediction
from tests.edge_devices.integrations.sparkplug_host import DESCRIBED, Client, read_payload
from tests.edge_runtime.io.codecs.sparkplug_messages import block, number, payload
from tests.edge_runtime.io.sinks import answers
from tests.edge_runtime.io.sinks.answers import correction, event
from tests.edge_runtime.manifests import manifest

STATE = "spBv1.0/STATE/scada"


class Bench:
    """A sink on a loop whose time stands still until a test moves it."""

    def __init__(
        self,
        *,
        client: Client | None = None,
        described: Described = DESCRIBED,
        file: Path | None = None,
        **changes: Any,
    ) -> None:
        self.client = client or Client()
        self.host = self.client.host
        self.clock = SimulatedClock()
        self.metrics = Metrics()
        self.described = described
        self.loop = Loop(clock=self.clock)
        settings_of: dict[str, Any] = {"broker": "b", "group": "plant", "node": "line-1", "max_hz": 0, **changes}
        self.sink = SparkplugSink(
            SparkplugSinkConfig(**settings_of),
            cast("BrokerClient", self.client),
            self.metrics,
            self.clock,
            describe=lambda: self.described,
            bd_seq_file=file,
        )
        self.sink.open(self.loop)
        self.done = 0

    def send(self, *answers: Answer) -> None:
        self.sink.send(answers, self._done)

    def _done(self) -> None:
        self.done += 1

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.loop.iterate(0)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.sink.close(0.0)
        self.loop.close()


def described(output: AnyOutput, *events: str, version: int = 3) -> Described:
    made = dataclasses.replace(manifest(output=output), version=version)
    return Described(made, output.labels, events)


def prediction(i: int, **changes: Any) -> Prediction:
    return answers.prediction(i, **({"model": "bench/3"} | changes))


# -- births, data, deaths ----------------------------------------------------------------------------------------------


def test_a_new_key_is_born_with_names_types_and_values_and_its_data_name_aliases_alone() -> None:
    with Bench() as bench:
        bench.send(prediction(0))
        bench.send(prediction(1, label="run", hard=True))
        assert bench.host.verbs == ["NBIRTH", "DBIRTH k", "DDATA k"]
        types = dict(bench.host.alive["k"].values())
        assert types == {
            "id": 12, "label": 12, "confidence": 10, "hard": 11, "route": 12, "suspect": 12,
            "scores/low": 10, "scores/high": 10,
            "correction/id": 12, "correction/label": 12, "correction/confidence": 10, "correction/reason": 12,
            "events/fall/active": 11, "events/fall/peak": 10, "events/fall/id": 12, "events/fall/label": 12,
            "events/fall/reason": 12,
        }  # fmt: skip
        assert bench.host.values("label") == ["walk", "run"]
        assert bench.host.values("hard") == [False, True]
        assert bench.host.values("confidence") == [0.75], "what did not change is not said again"
        assert [one.time_ms for one in bench.host.seen if one.metric == "label"] == [2000, 3000]


def test_events_and_corrections_stand_beside_the_answer_that_holds() -> None:
    with Bench() as bench:
        bench.send(prediction(0), event(0))
        assert bench.host.values("events/fall/active") == [True]
        bench.send(event(0, kind="end", end=9.0, reason="off"), correction(0))
        assert bench.host.live["k", "events/fall/active"] is False
        assert bench.host.live["k", "events/fall/reason"] == "off"
        assert bench.host.live["k", "correction/id"] == bench.host.live["k", "id"] == "k@0"


def test_a_final_message_of_a_damaged_case_has_the_time_of_today() -> None:
    with Bench() as bench:
        lost = FinalAnswer(
            id="k@0", key="k", start=None, end=None, label="", confidence=0.0, scores=[], route="local", hard=True,
            model="m/1", variant="v", latency_ms=0.0, final=True, reason="damaged",
        )  # fmt: skip
        bench.send(lost)
        (said,) = [one for one in bench.host.seen if one.metric == "correction/reason"]
        assert (said.value, said.time_ms) == ("damaged", int(bench.clock.wall() * 1000 + 0.5))


def test_values_carry_their_unit_and_a_window_without_an_answer_makes_them_null() -> None:
    contract = RegressionOutput(quantities=(Quantity(name="flow/in", unit="m3/h", half_width=1.0),))
    plain = vars(prediction(0)) | {"scores": [7.0]}
    with Bench(described=described(contract)) as bench:
        bench.send(
            RegressionPrediction(**plain, values={"flow/in": {"value": 7.0, "unit": "m3/h", "low": 6.0, "high": None}})
        )
        assert bench.host.live["k", "values/flow%2Fin"] == 7.0
        assert bench.host.live["k", "values/flow%2Fin/low"] == 6.0
        assert bench.host.live["k", "values/flow%2Fin/high"] is None
        bench.send(RegressionPrediction(**plain | {"variant": "none", "label": "", "scores": []}))
        assert bench.host.live["k", "values/flow%2Fin"] is None


def test_our_own_codec_reads_what_is_published() -> None:
    client, messages = Client(), list[bytes]()
    client._deliver = lambda message: messages.append(message.payload)  # type: ignore[method-assign]
    channel = Channel(name="trust", unit="1")
    with Bench(client=client) as bench:
        bench.send(prediction(0), prediction(1, confidence=0.5))
    codec = SparkplugCodec(SparkplugConfig(channels={"trust": "confidence"}), (channel,))
    _, born, data, _ = messages
    readings = [reading for message in (born, data) for reading in codec.decode("k", message, 0.0)]
    assert [(reading.t, reading.values[0, 0]) for reading in readings] == [(2.0, 0.75), (3.0, 0.5)]


def test_a_birth_names_units() -> None:
    births: list[bytes] = []
    client = Client()
    client._deliver = lambda message: births.append(message.payload)  # type: ignore[method-assign]
    contract = RegressionOutput(quantities=(Quantity(name="flow", unit="m3/h"), Quantity(name="cos")))
    with Bench(client=client, described=described(contract)) as bench:
        bench.send(prediction(0))
    units = {metric.name: metric.unit for metric in read_payload(births[1]).metrics if metric.unit}
    assert units == dict.fromkeys(("values/flow", "values/flow/low", "values/flow/high"), "m3/h")


def test_an_anomaly_score_is_a_number_with_its_threshold() -> None:
    with Bench(described=described(AnomalyOutput(threshold=3.0))) as bench:
        bench.send(AnomalyPrediction(**vars(prediction(0)), score=4.5, threshold=3.0, anomalous=True))
        live = bench.host.live
        assert (live["k", "score"], live["k", "threshold"], live["k", "anomalous"]) == (4.5, 3.0, True)
        assert not any(name.startswith("scores/") for _, name in live)


def test_scores_of_labels_can_be_left_out_and_are_where_there_are_too_many() -> None:
    many = OutputContract(labels=tuple(f"class-{i}" for i in range(300)))
    for bench in (Bench(scores=False), Bench(described=described(many))):
        with bench:
            bench.send(prediction(0))
            assert not any(name.startswith("scores/") for _, name in bench.host.live)


def test_births_and_data_are_of_qos_0_deaths_of_qos_1_and_nothing_is_retained() -> None:
    with Bench(max_keys=1) as bench:
        bench.send(prediction(0), prediction(1), prediction(2, key="other"))
        bench.send(prediction(3))
    expected = {(verb, 0, False) for verb in ("NBIRTH", "DBIRTH", "DDATA", "DDEATH")}
    assert bench.client.qos == expected | {("NDEATH", 1, False)}
    assert bench.host.verbs[-1] == "NDEATH"
    assert bench.host.alive == {}


def test_the_number_after_255_is_0() -> None:
    with Bench() as bench:
        for i in range(600):
            bench.send(prediction(i))
        assert bench.host.seq == 600 % 256


def test_beyond_the_bound_the_device_silent_for_longest_dies() -> None:
    with Bench(max_keys=2) as bench:
        bench.send(prediction(0, key="a"), prediction(0, key="b"), prediction(1, key="a"), prediction(0, key="c"))
        assert bench.host.verbs[-2:] == ["DDEATH b", "DBIRTH c"]
        bench.send(prediction(1, key="b"))
        assert bench.host.verbs[-2:] == ["DDEATH a", "DBIRTH b"], "a key that comes back is born again"
        assert set(bench.host.alive) == {"", "b", "c"}


def test_a_silent_device_dies_and_others_live() -> None:
    with Bench(retire_s=60) as bench:
        bench.send(prediction(0, key="a"), prediction(0, key="b"))
        bench.wait(40)
        bench.send(prediction(1, key="b"))
        bench.wait(21)
        assert bench.host.verbs[-1] == "DDEATH a"
        assert "b" in bench.host.alive


# -- rebirth -----------------------------------------------------------------------------------------------------------


def test_asked_for_a_rebirth_the_node_and_all_devices_are_born_again_with_what_holds_now() -> None:
    with Bench() as bench:
        bench.send(prediction(0, key="a"), prediction(0, key="b"), prediction(1, key="a", label="run"))
        bench.client.ask_for_rebirth()
        assert bench.host.verbs[-3:] == ["NBIRTH", "DBIRTH b", "DBIRTH a"]
        assert bench.host.live["a", "label"] == "run"
        assert bench.host.live["", "bdSeq"] == 0, "the connection is the same"
        assert bench.metrics.counts["sparkplug_births_total"] == 2


def test_data_stop_at_once_when_a_rebirth_is_asked_for() -> None:
    client = Client(writes=False)
    with Bench(client=client) as bench:
        for i in range(100):
            bench.send(prediction(i))
        assert client.queued < 100, "most have no sequence number yet"
        under_way = client.queued
        client.ask_for_rebirth()
        client.write()
        birth = bench.host.verbs.index("NBIRTH", 1)
        assert birth == under_way
        assert bench.host.verbs[birth + 1] == "DBIRTH k"
        assert sorted(bench.host.values("id"), key=lambda name: int(name[2:])) == [f"k@{i}" for i in range(100)]


@pytest.mark.parametrize(
    "command",
    [
        *(b"", b"\xff", b"\x12\x02\x0a\x09", orjson.dumps({"Node Control/Rebirth": True})),
        payload(block(2, block(1, b"Node Control/Rebirth") + number(4, 11) + number(14, 0)), ms=1),
        payload(block(2, block(1, b"Node Control/Rebirth") + number(4, 12) + block(14, b"true")), ms=1),
    ],
)
def test_commands_that_ask_for_no_rebirth_change_nothing(command: bytes) -> None:
    with Bench() as bench:
        bench.send(prediction(0))
        before = list(bench.host.verbs)
        bench.client.say("spBv1.0/plant/NCMD/line-1", command)
        assert bench.host.verbs == before
        assert bench.metrics.dropped["side_channel_errors_total"] == 0


def test_a_bundle_with_other_classes_brings_a_rebirth_and_one_with_the_same_only_its_name() -> None:
    with Bench() as bench:
        bench.send(prediction(0))
        bench.described = described(manifest().output, "fall", version=4)
        bench.send(prediction(1, model="bench/4"))
        assert bench.host.verbs[2:] == ["NDATA", "DDATA k"]
        assert bench.host.live["", "Properties/Model"] == "bench/4"
        bench.described = described(OutputContract(labels=("low", "high", "off")), "fall", version=5)
        bench.send(prediction(2, model="bench/5", scores=[0.1, 0.2, 0.7]))
        assert bench.host.verbs[4:] == ["NBIRTH", "DBIRTH k"]
        assert bench.host.live["k", "scores/off"] == 0.7
        bench.send(prediction(3, model="bench/4", scores=[0.5, 0.5]))
        assert bench.host.live["k", "scores/low"] is None, "an answer of the bundle before, late"


def test_a_label_that_was_taught_on_the_device_brings_a_rebirth() -> None:
    with Bench() as bench:
        bench.send(prediction(0))
        bench.described = bench.described._replace(labels=("low", "high", "new"))
        bench.send(prediction(1, scores=[0.1, 0.2, 0.7]))
        assert bench.host.verbs[2:] == ["NBIRTH", "DBIRTH k"]
        assert bench.host.live["k", "scores/new"] == 0.7


# -- connections that come and go --------------------------------------------------------------------------------------


def test_every_connect_has_the_next_number_and_its_birth_the_same() -> None:
    with Bench() as bench:
        for expected in range(3):
            assert bench.host.bd_seq == expected
            bench.client.lose()
            assert bench.host.alive == {}, "the Will ends this birth and no other"
            bench.client.connect()


def test_what_came_while_the_broker_was_away_is_history_and_only_the_newest_holds() -> None:
    with Bench() as bench:
        bench.send(prediction(0))
        bench.client.lose()
        for i in range(1, 5):
            bench.send(prediction(i, label=f"label-{i}"))
        bench.send(event(4))
        assert bench.done == 1
        bench.client.connect()
        assert bench.done == 6
        assert bench.host.verbs[-4:] == ["DBIRTH k", "DDATA k", "DDATA k", "DDATA k"]
        past = [(one.value, one.time_ms) for one in bench.host.seen if one.historical and one.metric == "label"]
        assert past == [("label-1", 3000), ("label-2", 4000), ("label-3", 5000)]
        assert bench.host.live["k", "label"] == "label-4"
        assert bench.host.live["k", "events/fall/active"] is True


def test_what_was_under_way_when_the_connection_ended_is_said_again_under_new_numbers() -> None:
    client = Client(writes=False)
    with Bench(client=client) as bench:
        for i in range(50):
            bench.send(prediction(i))
        client.write(10)
        client.lose()
        client.connect()
        client.write()
        assert bench.done == 50
        assert set(bench.host.values("id")) == {f"k@{i}" for i in range(50)}


def test_a_device_that_was_retired_while_the_broker_was_away_has_its_history_said_and_dies() -> None:
    client = Client(connected=False)
    with Bench(client=client, max_keys=1) as bench:
        bench.send(prediction(0, key="a"), prediction(0, key="b"))
        client.connect()
        assert bench.host.verbs == ["NBIRTH", "DBIRTH b", "DBIRTH a", "DDEATH a"]


def test_the_oldest_leave_a_full_queue_and_are_counted() -> None:
    client = Client(connected=False, queue_messages=10)
    with Bench(client=client) as bench:
        for i in range(30):
            bench.send(prediction(i))
        assert bench.done == 20
        assert bench.metrics.dropped["publish_queue_full"] == 20
        client.connect()
        assert set(bench.host.values("id")) == {f"k@{i}" for i in range(20, 30)}


def test_the_queue_has_a_bound_in_bytes() -> None:
    client = Client(connected=False, queue_bytes=100_000)
    with Bench(client=client) as bench:
        for i in range(30):
            bench.send(prediction(i, id="x" * 10_000))
        assert bench.metrics.dropped["publish_queue_full"] >= 20


def test_what_is_not_handed_over_at_the_end_is_counted() -> None:
    bench = Bench(client=Client(connected=False))
    with bench:
        bench.send(prediction(0), prediction(1))
    assert bench.metrics.dropped["publish_not_sent"] == 2


# -- the rate ----------------------------------------------------------------------------------------------------------


def test_predictions_of_a_key_are_published_at_most_so_often_and_the_newest_is() -> None:
    with Bench(max_hz=2) as bench:
        for i in range(40):
            bench.send(prediction(i, key="a"), prediction(i, key="b"))
            bench.wait(0.05)
        assert bench.done == 40, "an answer that waits for its turn keeps nobody waiting"
        for key in "ab":
            assert 4 <= len(bench.host.values("id", key)) <= 5  # in 2 s
        bench.wait(0.5)
        assert bench.host.live["a", "id"] == bench.host.live["b", "id"] == "k@39"
        said = len(bench.host.values("id"))
        assert bench.metrics.counts["sparkplug_coalesced_total"] == 80 - said


def test_events_are_not_held_back_and_come_after_the_answer_before_them() -> None:
    with Bench(max_hz=0.1) as bench:
        bench.send(prediction(0), prediction(1), event(1), event(1, kind="end"), prediction(2), event(3))
        ids = [one.value for one in bench.host.seen if one.metric in ("id", "events/fall/id") and one.value]
        assert ids == ["k@0", "k@1", "k@1/fall", "k@2", "k@3/fall"]
        bench.send(prediction(4))
        bench.wait(9.9)
        assert bench.host.live["k", "id"] == "k@2"
        bench.wait(0.2)
        assert bench.host.live["k", "id"] == "k@4"


def test_closing_publishes_what_waits_for_its_turn() -> None:
    with Bench(max_hz=0.1) as bench:
        bench.send(prediction(0), prediction(1))
    assert bench.host.values("id") == ["k@0", "k@1"]


# -- the primary host --------------------------------------------------------------------------------------------------


def state(online: bool, ms: int) -> bytes:
    return orjson.dumps({"online": online, "timestamp": ms})


def test_nothing_is_born_before_the_primary_host_is_online() -> None:
    with Bench(host="scada") as bench:
        bench.send(prediction(0))
        bench.client.ask_for_rebirth()
        assert bench.host.verbs == []
        bench.client.say(STATE, state(True, 5))
        assert bench.host.verbs == ["NBIRTH", "DBIRTH k"]
        bench.client.say(STATE, state(True, 6))
        assert bench.host.verbs == ["NBIRTH", "DBIRTH k"], "it is born already"


def test_when_the_primary_host_leaves_the_node_leaves_too_and_waits_for_it() -> None:
    with Bench(host="scada") as bench:
        bench.client.say(STATE, state(True, 5))
        bench.client.say(STATE, state(False, 4))
        bench.loop.iterate(0)
        assert bench.client.renewed == 0, "a death older than the birth is a late one"
        bench.client.say(STATE, state(False, 5))
        bench.loop.iterate(0)
        assert bench.client.renewed == 1
        assert bench.host.verbs == ["NBIRTH", "NDEATH"]
        bench.client.connect()
        bench.send(prediction(0), prediction(1))
        assert bench.host.verbs == ["NBIRTH", "NDEATH"]
        bench.client.say(STATE, state(True, 9))
        assert bench.host.verbs[2:] == ["NBIRTH", "DBIRTH k", "DDATA k"]
        assert bench.host.bd_seq == 1


@pytest.mark.parametrize(
    "text", [b"", b"ONLINE", b"[]", b'{"online": 1, "timestamp": 5}', b'{"online": true}', b"x" * 5000]
)
def test_a_state_that_makes_no_sense_changes_nothing_and_is_counted(text: bytes) -> None:
    with Bench(host="scada") as bench:
        bench.client.say(STATE, text)
        assert bench.host.verbs == []
        assert bench.metrics.dropped["sparkplug_state_malformed"] == 1


# -- any order ---------------------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("predict"), st.sampled_from("abcde")),
    st.tuples(st.just("event"), st.sampled_from("abcde")),
    st.tuples(st.just("write"), st.integers(1, 40)),
    st.tuples(st.sampled_from(["lose", "connect", "rebirth", "swap", "wait"]), st.just(0)),
)


class Walk:
    """Steps in any order; the host checks each message as it comes."""

    def __init__(self, max_hz: float) -> None:
        self.client = Client(connected=False, writes=False)
        self.bench = Bench(client=self.client, max_keys=3, retire_s=5, max_hz=max_hz)
        self.sent = 0
        self.labels = 3
        self._swap(0)
        self.last: dict[str, str] = {}

    def step(self, kind: str, of: Any) -> None:
        getattr(self, f"_{kind}")(of)

    def _predict(self, key: str) -> None:
        self.sent += 1
        self.last[key] = f"{key}@{self.sent}"
        scores = [random.Random(self.sent).random() for _ in range(self.labels)]
        self.bench.send(prediction(self.sent, key=key, id=self.last[key], scores=scores, model=f"bench/{self.labels}"))

    def _event(self, key: str) -> None:
        self.sent += 1
        self.bench.send(event(self.sent, key=key, id=f"{key}@{self.sent}/fall"))

    def _write(self, count: int) -> None:
        if self.client.connected:
            self.client.write(count)

    def _lose(self, _: int) -> None:
        if self.client.connected:
            self.client.lose()

    def _connect(self, _: int) -> None:
        if not self.client.connected:
            self.client.connect()

    def _rebirth(self, _: int) -> None:
        self.client.ask_for_rebirth()

    def _swap(self, _: int) -> None:
        self.labels = 5 - self.labels
        labels = tuple(f"class-{i}" for i in range(self.labels))
        self.bench.described = described(OutputContract(labels=labels), "fall", version=self.labels)

    def _wait(self, _: int) -> None:
        self.bench.wait(2.0)

    def end(self) -> None:
        self._connect(0)
        self.client.write()
        self.bench.wait(1.5)
        self.client.write()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=120), st.sampled_from([0.0, 1.0]))
@example([*(("predict", key) for key in "dabcdabc"), ("connect", 0), ("lose", 0)], 0.0)
@example([*(("predict", key) for key in "dabcdabc"), ("connect", 0), ("lose", 0), ("predict", "d")], 0.0)
def test_in_any_order_of_keys_data_connections_and_rebirths_the_host_understands_every_message(
    steps: Sequence[tuple[str, Any]], max_hz: float
) -> None:
    walk = Walk(max_hz)
    with walk.bench:
        for kind, of in steps:
            walk.step(kind, of)
        walk.end()
        host = walk.bench.host
        assert walk.bench.done == walk.sent, "each answer is reported once"
        events = {f"{step[1]}" for step in steps if step[0] == "event"}
        assert {name[0] for name in host.values("events/fall/id")} == events
        for device in host.alive.keys() - {""}:
            assert host.live[device, "id"] in (None, walk.last.get(device)), "what the host shows is the newest"
        if not max_hz:
            assert set(host.values("id")) >= set(walk.last.values()), "no key's newest answer is lost"


# -- ids ---------------------------------------------------------------------------------------------------------------

HOSTILE = [
    *("", "/", "+", "#", "a/b", "a+b", "%", "%2F", "..", ".", "\0", "\ud800", "$a"),
    *("x" * 10_000, "x" * 10_001, "é" * 5000),
]


def test_hostile_keys_become_device_ids_without_collisions() -> None:
    ids = [device_id(key) for key in HOSTILE]
    assert len(set(ids)) == len(HOSTILE)
    for one in ids:
        assert one
        assert not set(one) & set("/+#\0")
        assert len(one.encode()) <= 1000
    with Bench() as bench:
        bench.send(*(prediction(0, key=key, id=key) for key in HOSTILE))
        assert len(bench.host.alive) == 1 + len(HOSTILE)


@given(st.lists(st.text(max_size=300), unique=True, max_size=8))
def test_no_two_keys_have_one_device_id(keys: list[str]) -> None:
    assert len({device_id(key) for key in keys}) == len(keys)


# -- the number of births ----------------------------------------------------------------------------------------------


def test_the_number_goes_on_after_a_restart_and_after_255_comes_0(tmp_path: Path) -> None:
    file = file_beside(tmp_path / "outbox.db", "plant", "line-1")
    assert file != file_beside(tmp_path / "outbox.db", "plant", "line-2")
    assert [BirthDeathSequence(file).advance() for _ in range(258)] == [*range(256), 0, 1]


@pytest.mark.parametrize("text", [b"", b"256", b"-1", b"x", b"\xff" * 100])
def test_a_file_that_holds_no_number_is_begun_again(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "a.bdseq"
    file.write_bytes(text)
    assert BirthDeathSequence(file).advance() == 0
    assert BirthDeathSequence(file).advance() == 1


def test_a_disk_that_fails_does_not_keep_the_node_from_connecting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = BirthDeathSequence(tmp_path / "absent" / "a.bdseq")
    assert [numbers.advance(), numbers.advance()] == [0, 1]
    assert caplog.text.count("cannot be written") == 1


def test_the_number_is_on_the_disk_before_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "a.bdseq"
    with Bench(file=file, client=Client(connected=False)) as bench:
        will = bench.sink.will()
        assert file.read_bytes() == b"0\n"
        assert [metric.value for metric in read_payload(will.payload).metrics] == [0]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("group", ""), ("group", "a/b"), ("node", "#"), ("host", "a+b")),
        ("max_hz", -1),
        ("max_keys", 0),
        ("retire_s", -1),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=name):
        SparkplugSinkConfig(**{"broker": "b", "group": "g", "node": "n"} | {name: wrong})


@pytest.mark.parametrize(
    ("broker", "users", "says"),
    [
        ({"status_topic": "a"}, ["b"], "take status_topic out"),
        ({"clean_start": False}, ["b"], "take it out"),
        ({}, ["b", "other", "b"], r"add a second \[broker.NAME\] with the same url"),
    ],
)
def test_a_broker_that_cannot_carry_the_death_is_refused(broker: dict[str, Any], users: list[str], says: str) -> None:
    config = SparkplugSinkConfig(broker="b", group="g", node="n")
    check_broker(config, BrokerConfig(url="mqtt://h"), ["b", "other", "other"])
    with pytest.raises(ValueError, match=says):
        check_broker(config, BrokerConfig(url="mqtt://h", **broker), users)
