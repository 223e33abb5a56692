"""Tables proposed for what senders really send: the captured messages become the model's samples."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from edge_runtime.io.recordings.capture import Captured
from edge_runtime.manifest import InputContract
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.propose import answered, observations_of, propose, unknown_units
from edge_runtime.tools.listen.report import describe, describe_trial
from edge_runtime.tools.listen.stamps import duration, find_stamps
from edge_runtime.tools.listen.training import propose_contract
from edge_runtime.tools.listen.trial import DraftTrial, try_table
from tests.edge_runtime.tools.listen.traffic import CLIMATE, IMU, MOTION, T0, best, contract, messages, mixed, triad

G = 9.80665


def flat(i: int, size: float = G) -> dict[str, Any]:
    ax, ay, az = triad(i, size)
    return {"ts": round((T0 + i * 0.02) * 1000), "ax": ax, "ay": ay, "az": az, "battery": 87}


def test_fields_units_and_time_of_flat_objects() -> None:
    """Mutations that this finds: gravity not recognised, milliseconds not, the battery taken for a channel."""
    proposal, trial = best(messages(flat), MOTION)
    data = proposal.table.data()
    assert data["codec"] == {
        "type": "json",
        "time": "ts",
        "time_unit": "ms",
        "channels": {"ax": "ax", "ay": "ay", "az": "az"},
        "units": {"ax": "m/s2", "ay": "m/s2", "az": "m/s2"},
    }
    assert (trial.samples, trial.windows, trial.refused) == (120, 2, {})
    assert "guess" in proposal.table.text()


@pytest.mark.parametrize(("size", "unit"), [(G, "m/s2"), (1.0, "g"), (1000.0, "mg")])
def test_the_unit_of_acceleration_follows_from_gravity(size: float, unit: str) -> None:
    proposal, _ = best(messages(lambda i: flat(i, size)), MOTION)
    assert proposal.units["ax"].unit == unit


def test_a_unit_that_nothing_tells_is_said_to_be_unknown_and_can_be_answered() -> None:
    def payload(i: int) -> dict[str, float]:
        return {**flat(i, 1.0), "gx": 0.1, "gy": 0.2 * math.sin(i), "gz": 0.0}

    proposal, trial = best(messages(payload), IMU)
    unknown = unknown_units(proposal)
    assert [one.channel.name for one in unknown] == ["wx", "wy", "wz"]
    assert "not known" in proposal.table.text()
    assert trial.samples == 120
    said = answered(proposal, unknown[0], "deg/s")
    assert said.table.data()["codec"]["units"]["wx"] == "deg/s"
    assert [one.channel.name for one in unknown_units(said)] == ["wy", "wz"]


def test_rotation_too_fast_for_radians_is_in_degrees() -> None:
    proposal, _ = best(messages(lambda i: {**flat(i), "gx": 120 * math.sin(i / 8), "gy": 3.0, "gz": -2.0}), IMU)
    assert {proposal.units[name].unit for name in ("wx", "wy", "wz")} == {"deg/s"}


def test_a_phone_with_several_sensors_in_one_list_is_read_by_the_sensor_with_gravity() -> None:
    def payload(i: int) -> dict[str, Any]:
        def sample(name: str, k: int, values: list[float]) -> dict[str, Any]:
            t = round((T0 + i * 0.2 + k * 0.02) * 1e9)
            return {"name": name, "time": t, "values": dict(zip("xyz", values, strict=True))}

        samples = []
        for k in range(10):
            samples.append(sample("accelerometer", k, [0.1, 0.2, 0.1]))
            samples.append(sample("totalacceleration", k, triad(i * 10 + k, G)))
        return {"messageId": i, "sessionId": "s", "deviceId": "d", "payload": samples}

    proposal, trial = best(messages(payload, 20, topic="phone", step_s=0.2), MOTION)
    codec = proposal.table.data()["codec"]
    assert codec["samples"] == "payload"
    assert codec["select"] == {"name": "totalacceleration"}
    assert codec["channels"] == {"ax": "values.x", "ay": "values.y", "az": "values.z"}
    assert (codec["time"], codec["time_unit"]) == ("time", "ns")
    assert (trial.samples, trial.refused) == (200, {})
    assert "Sensor Logger" in proposal.table.text()


def test_channels_of_two_sensors_in_one_list_come_in_parts() -> None:
    def payload(i: int) -> list[dict[str, Any]]:
        t = T0 + i * 0.02
        acc, gyro = triad(i, G), [0.1, 0.2, 0.3]
        return [
            {"sensor": "acc", "t": t, **dict(zip("xyz", acc, strict=True))},
            {"sensor": "gyro", "t": t, **dict(zip("xyz", gyro, strict=True))},
        ]

    proposal, _ = best(messages(payload), IMU)
    codec = proposal.table.data()["codec"]
    assert codec["partial"] is True
    assert codec["channels"]["wx"] == "[sensor=gyro].x"
    assert not proposal.missing


def test_messages_that_bring_what_changed_are_read_in_parts() -> None:
    def payload(i: int) -> dict[str, Any]:
        part = {"humidity:0": {"rh": 42.5 + i / 3}} if i % 2 else {"temperature:0": {"tC": 19.5 + i / 7, "tF": 67.5}}
        return {"src": "shelly-1", "method": "NotifyStatus", "params": {"ts": T0 + 10 * i, **part}}

    proposal, trial = best(messages(payload, 20, topic="shelly-1/events/rpc", step_s=10), CLIMATE)
    codec = proposal.table.data()["codec"]
    assert codec["partial"] is True
    assert codec["channels"] == {"temperature": "params.temperature:0.tC", "humidity": "params.humidity:0.rh"}
    assert (trial.samples, trial.refused) == (20, {})


def test_stamps_in_whole_seconds_that_samples_share_are_spread() -> None:
    """Mutation that this finds: 57 of 60 samples lost as duplicates."""
    proposal, trial = best(messages(lambda i: {**flat(i), "ts": int(T0 + i * 0.02)}), MOTION)
    assert proposal.table.data()["codec"]["time_step_s"] == 1.0
    assert "whole seconds" in proposal.table.text()
    assert (trial.samples, trial.refused) == (120, {})


@pytest.mark.parametrize(("unit", "factor"), [("s", 1.0), ("ms", 1e3), ("us", 1e6)])
def test_stamps_that_count_from_a_start_are_in_the_unit_in_which_they_keep_pace(unit: str, factor: float) -> None:
    proposal, trial = best(messages(lambda i: {**flat(i), "ts": (5 + i * 0.02) * factor}), MOTION)
    assert proposal.table.data()["codec"].get("time_unit", "s") == unit
    assert trial.windows == 2


def test_another_rate_within_a_message_is_written_down() -> None:
    def payload(i: int) -> dict[str, Any]:
        rows = [triad(i * 100 + k) for k in range(100)]
        return {"t": T0 + i, "values": rows}

    proposal, trial = best(messages(payload, 6, step_s=1.0), MOTION)
    assert proposal.table.data()["codec"]["rate_hz"] == 100.0
    assert trial.windows >= 4


def test_several_devices_on_one_topic_have_their_keys_in_the_payload() -> None:
    def payload(i: int) -> list[dict[str, Any]]:
        return [{"id": name, **flat(i)} for name in ("m1", "m2")]

    proposal, trial = best(messages(payload, topic="hall/all"), MOTION)
    assert proposal.table.data()["key"] == "payload"
    assert proposal.table.data()["codec"]["key"] == "id"
    assert sorted(trial.keys) == ["m1", "m2"]


def test_devices_of_the_same_shape_share_a_table_and_status_topics_are_left_out() -> None:
    traffic = mixed(
        messages(flat, topic="hall/m1"), messages(flat, topic="hall/m2"), [Captured("hall/status", b"online", T0, True)]
    )
    proposal, trial = best(traffic, MOTION, ["hall/#"])
    assert sorted(proposal.topics) == ["hall/m1", "hall/m2"]
    assert sorted(trial.keys) == ["m1", "m2"]
    seen = observations_of(Capture(traffic))
    assert any("no sensor: text, 'online'" in line for line in describe(Capture(traffic), seen))


def test_nothing_is_proposed_where_nothing_fits() -> None:
    heard = Capture([*messages(lambda i: {"lux": i}), Captured("a", b"online", T0, False)])
    assert propose(heard, observations_of(heard), MOTION) == []


def test_an_axis_never_stands_for_another() -> None:
    heard = Capture(messages(lambda i: {"accX": 0.1 * i, "accY": 0.2}))
    (proposal,) = propose(heard, observations_of(heard), MOTION)
    assert proposal.missing == ("az",)
    assert "az" not in proposal.table.data()["codec"]["channels"]


def test_nameless_columns_are_taken_in_their_order_and_said_to_be() -> None:
    proposal, _ = best(messages(lambda i: {f"v{k}": value for k, value in enumerate(triad(i))}), MOTION)
    assert proposal.table.data()["codec"]["channels"] == {"ax": "v0", "ay": "v1", "az": "v2"}
    assert proposal.table.text().count("by the order alone") == 3


def test_the_windows_of_the_trial_are_those_of_the_table_in_use() -> None:
    """Mutation that this finds: the trial reads with other settings than the table has."""
    heard = Capture(messages(flat))
    (proposal, *_) = propose(heard, observations_of(heard), MOTION)
    data = proposal.table.data()
    data["codec"]["time"] = "no-such-field"
    assert try_table([data], heard, MOTION).refused == {"no_time": 120}
    data["codec"]["tiem"] = "ts"
    assert "did you mean 'time'" in try_table([data], heard, MOTION).problem


def test_channels_are_proposed_for_training_where_there_is_no_model() -> None:
    heard = Capture(messages(flat))
    seen = observations_of(heard)
    wanted = propose_contract(heard, seen)
    assert wanted is not None
    assert {channel.name: channel.unit for channel in wanted.channels} == {"ax": "m/s2", "ay": "m/s2", "az": "m/s2"}
    assert wanted.rate_hz == pytest.approx(50.0, rel=0.02)
    (proposal, *_) = propose(heard, seen, wanted)
    assert try_table([proposal.table.data()], heard, wanted).samples == 120


@pytest.mark.parametrize("wanted", [MOTION, CLIMATE, contract({"light": "lx"})])
def test_units_are_stated_for_all_channels_or_for_none(wanted: InputContract) -> None:
    """A codec refuses half a statement."""
    traffic = messages(lambda i: {**flat(i), "temperature": 21.5, "humidity": 40.0, "light": 300.0})
    proposal, trial = best(traffic, wanted)
    assert not trial.problem
    stated = proposal.table.data()["codec"].get("units", {})
    assert set(stated) in ({channel.name for channel in wanted.channels}, set())


def test_long_lists_of_stamps_are_compared_with_the_arrivals_of_their_own_messages() -> None:
    """Mutation that this finds: the clock of a lively phone is said to be behind by as long as one listened."""

    def payload(i: int) -> dict[str, Any]:
        t = [5.0 + i + k / 100 for k in range(100)]
        return {"t": t, "ax": [0.1] * 100, "ay": [0.2] * 100, "az": [9.8] * 100}

    heard = Capture(messages(payload, 60, step_s=1.0))
    seen = observations_of(heard)["hall/m1"]
    found = find_stamps(seen, [message.received for message in heard.topics["hall/m1"].live])
    assert found is not None
    assert (found.unit, found.path) == ("s", "t")
    dated = Capture(messages(lambda i: {**payload(i), "t": [T0 + i + k / 100 for k in range(100)]}, 60, step_s=1.0))
    seen = observations_of(dated)["hall/m1"]
    found = find_stamps(seen, [message.received for message in dated.topics["hall/m1"].live])
    assert found is not None
    assert abs(found.offset_s) < 2


@pytest.mark.parametrize(("step_s", "written"), [(1 / 55.6, None), (1 / 46, None), (1 / 100, 100.0)])
def test_a_rate_of_arrival_near_the_models_is_the_models(step_s: float, written: float | None) -> None:
    """Mutation that this finds: 55.6 messages a second, which is how bursts look, become the rate of the sensor."""
    traffic = messages(lambda i: {**flat(i), "ts": int(T0 + i * step_s)}, 400, step_s=step_s)
    proposal, trial = best(traffic, MOTION)
    rate = proposal.table.data()["codec"].get("rate_hz")
    assert rate == (None if written is None else pytest.approx(written, rel=0.05))
    assert trial.windows > 0


@pytest.mark.parametrize(
    ("seconds", "said"), [(40, "40 s"), (9000, "2.5 hours"), (950_000, "11.0 days"), (95_423_970, "3.0 years")]
)
def test_a_clock_that_is_far_off_is_so_in_days_or_years(seconds: float, said: str) -> None:
    assert duration(seconds) == said
    heard = Capture([Captured(m.topic, m.payload, m.received + seconds, m.retained) for m in messages(flat)])
    assert any(f"its clock is {said} behind" in line for line in describe(heard, observations_of(heard)))


def test_no_example_of_what_was_left_out_is_no_empty_end() -> None:
    lines = describe_trial(DraftTrial(samples=1, keys={"m1": 1}, refused=Counter({"duplicate": 42})), 1.0)
    assert "left out: 42 duplicate" in lines


def test_the_time_of_listening_is_said_not_that_of_the_messages() -> None:
    heard = Capture(messages(flat))
    heard.listened_s = 10.0
    assert describe(heard, observations_of(heard))[0] == "heard 120 messages on 1 topic in 10.0 s"


def sensors_on_topics_of_their_own(device: str = "body") -> list[Captured]:
    def of(sensor: str, size: float) -> list[Captured]:
        def payload(i: int) -> dict[str, Any]:
            return {"ts": round((T0 + i * 0.02) * 1000), **dict(zip("xyz", triad(i, size), strict=True))}

        return messages(payload, topic=f"{device}/{sensor}")

    return mixed(of("acc", G), of("gyro", 90.0))


def test_sensors_on_topics_of_their_own_are_two_sources_of_one_key() -> None:
    """Mutations that this finds: both are body/+, one is left out, the gyroscope's x is taken for acceleration."""
    proposal, trial = best(sensors_on_topics_of_their_own(), IMU, ["body/#"])
    acc, gyro = sorted((table.data() for table in proposal.tables), key=lambda data: data["topics"])
    assert (acc["topics"], gyro["topics"]) == (["body/acc"], ["body/gyro"])
    assert (acc["key"], gyro["key"]) == ("{0}", "{0}")
    assert acc["codec"]["partial"] is gyro["codec"]["partial"] is True
    assert acc["codec"]["channels"] == {"ax": "x", "ay": "y", "az": "z"}
    assert gyro["codec"]["channels"] == {"wx": "x", "wy": "y", "wz": "z"}
    assert not proposal.missing
    assert list(trial.keys) == ["body"]
    assert trial.windows == 2
    said = answered(proposal, proposal.matches[-1], "rad/s")
    assert [("rad/s" in str(table.data()["codec"]["units"])) for table in said.tables] == [False, True]


def test_two_devices_with_two_sensors_each_are_read_by_wildcards() -> None:
    traffic = mixed(sensors_on_topics_of_their_own("left"), sensors_on_topics_of_their_own("right"))
    proposal, trial = best(traffic, IMU)
    assert sorted(table.data()["topics"] for table in proposal.tables) == [["+/acc"], ["+/gyro"]]
    assert sorted(trial.keys) == ["left", "right"]


def test_sensors_on_topics_of_their_own_are_reported_apart_and_named_for_training() -> None:
    heard = Capture(sensors_on_topics_of_their_own())
    seen = observations_of(heard)
    lines = describe(heard, seen)
    assert any(line.startswith("body/acc:") for line in lines)
    assert any(line.startswith("body/gyro:") for line in lines)
    wanted = propose_contract(heard, seen)
    assert wanted is not None
    assert {channel.name for channel in wanted.channels} == {f"{s}_{axis}" for s in ("acc", "gyro") for axis in "xyz"}
    (proposal, *_) = propose(heard, seen, wanted)
    assert not proposal.missing


def test_a_gyroscope_is_no_accelerometer() -> None:
    heard = Capture([one for one in sensors_on_topics_of_their_own() if one.topic == "body/gyro"])
    assert propose(heard, observations_of(heard), MOTION) == []


@pytest.mark.parametrize(("name", "size", "warned"), [("accelerometer", 0.1, 3), ("totalacceleration", G, 0)])
def test_an_acceleration_of_sensor_logger_without_gravity_is_said_at_its_channels(
    name: str, size: float, warned: int
) -> None:
    def payload(i: int) -> dict[str, Any]:
        values = dict(zip("xyz", triad(i, size), strict=True))
        sample = {"name": name, "time": round((T0 + i * 0.02) * 1e9), "values": values}
        return {"messageId": i, "sessionId": "s", "deviceId": "d", "payload": [sample]}

    proposal, _ = best(messages(payload), MOTION)
    lines = [line for line in proposal.table.text().splitlines() if line[:5] in ("ax = ", "ay = ", "az = ")]
    assert sum("no gravity in it" in line for line in lines) == warned


def test_the_time_of_csv_without_names_is_the_same_in_the_report_and_in_the_table() -> None:
    heard = Capture(messages(lambda i: ",".join(map(str, [T0 + i / 50, *triad(i)])).encode()))
    seen = observations_of(heard)
    assert any("time: 't', s; one each 0.02 s" in line for line in describe(heard, seen))
    (proposal, *_) = propose(heard, seen, MOTION)
    assert proposal.table.data()["codec"]["time"] == "t"
