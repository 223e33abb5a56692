"""Two real Home Assistants over a real mosquitto see a real ``edge-runtime run``: docs/home-assistant.md."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_export.package.sign import SigningKey, sign_bundle

from edge_runtime.event_rule import EventRule
from edge_runtime.manifest.outputs import Quantity, RegressionOutput
from edge_runtime.signal.windowing.window import Window
from tests import task_bundles
from tests.conformance.conftest import need
from tests.conformance.home_assistant import HomeAssistant
from tests.edge_runtime.operate.update.devices import Factory, announcement
from tests.edge_runtime.operate.update.files import FileServer
from tests.integration.cloud import serving
from tests.integration.running import Floats, Message, Process, Publisher, load_model, payload, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

pytestmark = pytest.mark.slow

OURS = re.compile(
    r"(WARNING|ERROR).*(er-|edge-runtime|components\.(mqtt|sensor|binary_sensor|button|event|text|update)|helpers\.)"
)
"""Lines of its log about our devices, or by what shows them."""
LABELS = ("rest", "walk", "run")
HTML = "<img src=x onerror=alert(1)>"
ROWS, RATE_HZ = 16, 50.0
APP = """
name = "gym"
silence_s = 0
[model]
bundle = "tiny.edge"
failover = "off"
{model}
[broker.b]
url = "mqtt://127.0.0.1:{port}"
client_id = "{name}"
status_topic = "edge-runtime/{name}/status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["{name}/+/imu"]
key = "{{1}}"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[home_assistant]
broker = "b"
device_id = "{name}"
interval_s = 0.5
{home}
{more}
"""


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Mosquitto]:
    with Mosquitto() as broker:
        yield broker


@pytest.fixture(scope="module", params=["home-assistant-2025", "home-assistant-2026"])
def home(
    request: pytest.FixtureRequest, mosquitto: Mosquitto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HomeAssistant]:
    """One after the other, each version; its log has no warning that names us at the end."""
    python = need(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "config"
    with HomeAssistant([str(python), "-m", "homeassistant"], folder, mosquitto.port) as running:
        yield running
        issues = running.ask("repairs/list_issues")["issues"]
    ours = [line for line in running.log().splitlines() if OURS.search(line)]
    assert ours == [], "\n".join(ours)
    assert [one for one in issues if one["domain"] == "mqtt"] == []


class Gym:
    """An application with its sensors: for each label, a window that it answers so."""

    def __init__(self, folder: Path, port: int, name: str, *, labels: tuple[str, ...] = LABELS) -> None:
        self.folder, self.port, self.name = folder, port, name
        self.labels = labels
        self.at = 1_700_000_000.0
        self.windows = self._windows()
        self.process: Process | None = None
        self._starts = 0

    def _windows(self) -> dict[str, Floats]:
        model = load_model(self.folder / "tiny.edge", "onnx-fp32")
        tried = np.random.default_rng(1).normal(0, 2, (400, 1, 3)).astype(np.float32).repeat(ROWS, axis=1)
        cut = [Window("k", i, 0.0, samples, samples, 0.0) for i, samples in enumerate(tried)]
        scores = np.concatenate([model.predict(cut[i : i + 16])[0] for i in range(0, len(cut), 16)])
        model.close()
        return {label: tried[int(scores[:, i].argmax())] for i, label in enumerate(self.labels)}

    def write(self, *, home: str = "", model: str = 'unsigned = "allow"', more: str = "") -> None:
        text = APP.format(port=self.port, name=self.name, home=home, model=model, more=more)
        (self.folder / "app.toml").write_text(text)

    @contextmanager
    def running(self) -> Iterator[Process]:
        self._starts += 1
        with Process(self.folder, "run", "app.toml", name=f"run-{self._starts}") as process:
            self.process = process
            process.says("connected")
            yield process

    def message(self, key: str, label: str) -> Message:
        """The next window of a key."""
        self.at += ROWS / RATE_HZ
        return Message(key, payload(self.at + np.arange(ROWS) / RATE_HZ, self.windows[label]))

    def device(self, key: str = "") -> str:
        return f"er-{self.name}-gym-{key}" if key else f"er-{self.name}-gym"


@contextmanager
def sensors(gym: Gym) -> Iterator[Callable[[str, str], None]]:
    with Publisher(gym.port, topic=f"{gym.name}/{{key}}/imu") as publisher:
        yield lambda key, label: publisher.send([gym.message(key, label)])


@pytest.fixture
def gym(tmp_path: Path, mosquitto: Mosquitto, request: pytest.FixtureRequest) -> Gym:
    """With an event ``fall`` for the label ``run``."""
    rule = EventRule(name="fall", label="run", on=0.5)
    tiny_bundle(tmp_path / "tiny.edge", hop=ROWS, labels=LABELS, events=(rule,))
    version = request.getfixturevalue("home_name")
    return Gym(tmp_path, mosquitto.port, f"{version}_{request.node.originalname.split('_')[1]}")


@pytest.fixture
def home_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["home"]).rpartition("-")[2]


def state(home: HomeAssistant, unique_id: str) -> Any:
    return home.states().get(unique_id, {}).get("state")


def test_appears_as_a_device_with_entities_and_follows_a_label(home: HomeAssistant, gym: Gym) -> None:
    gym.write(home='classes = {fall = "safety"}')
    with gym.running(), sensors(gym) as send:
        send("phone", "walk")
        phone = gym.device("phone")
        home.until(lambda: state(home, f"{phone}-label") == "walk")
        devices = home.devices()
        assert devices[phone]["name"] == "phone"
        assert devices[phone]["manufacturer"] == "edge-runtime"
        assert devices[phone]["via_device_id"] == devices[gym.device()]["id"]
        found = home.states()
        label = found[f"{phone}-label"]
        assert label["attributes"]["options"] == list(LABELS)
        assert label["attributes"]["route"] == "local"
        assert 33 < float(found[f"{phone}-confidence"]["state"]) <= 100
        assert found[f"{phone}-suspect"]["state"] == "off"
        assert found[f"{phone}-during-fall"]["attributes"]["device_class"] == "safety"
        assert found[f"{gym.device()}-model"]["state"] == "tiny/1"
        with home.websocket() as events:
            events.ask("subscribe_events", event_type="state_changed")
            times = []
            for wanted in ("rest", "walk", "rest", "walk", "rest"):
                time.sleep(0.6)  # so that it is no state that waits for the one before
                began = time.monotonic()
                send("phone", wanted)
                while _changed(events.receive(), label["entity_id"]) != wanted:
                    pass
                times.append(time.monotonic() - began)
        print(f"label followed in {1e3 * min(times):.1f} to {1e3 * max(times):.1f} ms")
        send("phone", "run")
        home.until(lambda: state(home, f"{phone}-during-fall") == "on")
        event = home.states()[f"{phone}-event-fall"]
        assert event["attributes"]["event_type"] == "start"
        assert event["attributes"]["label"] == "run"
        assert len(event["attributes"]["evidence"]) >= 1
        send("phone", "rest")
        home.until(lambda: state(home, f"{phone}-during-fall") == "off")


def _changed(message: Any, entity: str) -> str:
    data = message.get("event", {}).get("data", {})
    return str(data["new_state"]["state"]) if data.get("entity_id") == entity and data["new_state"] else ""


def test_corrections_change_the_label_and_are_an_event(home: HomeAssistant, gym: Gym) -> None:
    with serving() as cloud:
        gym.write(
            more=f'[cloud]\nurl = "{cloud.url}"\nmodel = "teacher"\n[escalation]\ninput = "x"\noutput = "p"\n'
            '[outbox]\npath = "outbox.db"\n[gate]\nthreshold = 1.1\nmax_share = 1.0\n'
        )
        with gym.running(), sensors(gym) as send:
            wrong = next(label for label, window in gym.windows.items() if LABELS[int(window[-1].argmax())] != label)
            right = LABELS[int(gym.windows[wrong][-1].argmax())]
            send("phone", wrong)
            label = f"{gym.device('phone')}-label"
            home.until(lambda: state(home, label) == right)
            assert home.states()[label]["attributes"]["route"] == "cloud"
            send("phone", wrong)  # Home Assistant knows the device by now: events are not kept for it
            home.until(lambda: state(home, f"{gym.device('phone')}-correction") not in ("unknown", None))
            event = home.states()[f"{gym.device('phone')}-correction"]
            assert event["attributes"]["event_type"] == "changed"
            assert (event["attributes"]["label"], event["attributes"]["supersedes"]) == (right, wrong)
            home.until(lambda: float(state(home, f"{gym.device()}-share")) > 0, 60)


def test_bundle_with_other_labels_is_installed_from_the_update_entity(
    home: HomeAssistant, gym: Gym, tmp_path: Path
) -> None:
    factory = Factory(tmp_path)
    factory.key()
    made: dict[str, Any] = {"hop": ROWS, "name": "watch", "variants": ("onnx-fp32",)}
    tiny_bundle(tmp_path / "tiny.edge", labels=LABELS, version=1, **made)
    sign_bundle(tmp_path / "tiny.edge", SigningKey(tmp_path / "release.pem"))
    tiny_bundle(tmp_path / "two.edge", labels=("sit", "stand", HTML), version=2, **made)
    sign_bundle(tmp_path / "two.edge", SigningKey(tmp_path / "release.pem"))
    with FileServer((tmp_path / "two.edge").read_bytes()) as files:
        gym.write(
            model='trusted_keys = ["release.pub.pem"]',
            home='commands = ["install"]',
            more='[update]\nfolder = "updates"\nbroker = "b"\ntopic = "' + gym.name + '/update"\nstart = "asked"\n'
            'hosts = ["127.0.0.1"]\npoll_s = 0.2\ntrial_s = 0.5\ntrial_windows = 3\ncontract_change = "allow"\n',
        )
        with gym.running(), sensors(gym) as send, Publisher(gym.port, topic="{key}") as fleet:
            send("phone", "walk")
            label, update = f"{gym.device('phone')}-label", f"{gym.device()}-update"
            home.until(lambda: state(home, label) == "walk")
            home.until(lambda: state(home, update) == "off")
            fleet.send([Message(f"{gym.name}/update", announcement(tmp_path / "two.edge", 2, url=files.url))])
            home.until(lambda: state(home, update) == "on")
            shown = home.states()[update]["attributes"]
            assert (shown["installed_version"], shown["latest_version"]) == ("1", "2")
            assert not shown["in_progress"]
            home.call("update/install", home.states()[update]["entity_id"])
            home.until(lambda: send("phone", "run") or state(home, label) == HTML)
            assert home.states()[label]["attributes"]["options"] == ["sit", "stand", HTML]
            home.until(lambda: send("phone", "rest") or state(home, update) == "off")
            assert home.states()[update]["attributes"]["installed_version"] == "2"


def test_restarts_of_either_side_bring_everything_back(home: HomeAssistant, gym: Gym) -> None:
    gym.write(home='commands = ["restart"]')
    label = f"{gym.device('phone')}-label"
    with sensors(gym) as send:
        with gym.running() as process:
            send("phone", "walk")
            home.until(lambda: state(home, label) == "walk")
            home.stop()
            home.start()
            home.until(lambda: state(home, label) == "walk")  # nothing new has come
            home.until(lambda: state(home, f"{gym.device('phone')}-during-fall") == "off")  # known again: birth
            send("phone", "rest")
            home.until(lambda: state(home, label) == "rest")
            home.call("button/press", home.states()[f"{gym.device()}-restart"]["entity_id"])
            assert process.wait() == 4
            home.until(lambda: state(home, label) == "unavailable")
        with gym.running() as process:
            home.until(lambda: state(home, label) == "rest")  # the broker has kept it
            send("phone", "walk")
            home.until(lambda: state(home, label) == "walk")
            process.kill()
            home.until(lambda: state(home, label) == "unavailable")  # the Last Will


def test_keys_that_are_gone_disappear_those_of_an_earlier_run_too(home: HomeAssistant, gym: Gym) -> None:
    gym.write(home="retire_s = 3")
    with sensors(gym) as send:
        with gym.running():
            send("old", "walk")
            home.until(lambda: state(home, f"{gym.device('old')}-label") == "walk")
        with gym.running():
            home.until(lambda: send("new", "walk") or state(home, f"{gym.device('new')}-label") == "walk")
            home.until(lambda: send("new", "walk") or gym.device("old") not in home.devices())
            assert gym.device("new") in home.devices()
            home.until(lambda: gym.device("new") not in home.devices())
            assert gym.device() in home.devices()


def test_hostile_keys_are_devices_of_their_own_and_forged_commands_do_nothing(home: HomeAssistant, gym: Gym) -> None:
    gym.write(home='commands = ["reset"]')
    hostile = ["a b", "a-b", "a.b", HTML.replace("/", ""), "{{ 2 * 2 }}", "é\u202e" + "x" * 300]
    with gym.running() as process, sensors(gym) as send, Publisher(gym.port, topic="{key}") as forger:
        for key in hostile:
            send(key, "walk")
        own = f"er-{gym.name}-gym-"

        def ours() -> list[dict[str, Any]]:
            return [one for name, one in home.devices().items() if name.startswith(own)]

        home.until(lambda: len(ours()) == len(hostile))
        names = {one["name"] for one in ours()}
        assert {"a b", "a-b", "a.b", HTML.replace("/", ""), "{{ 2 * 2 }}"} < names

        def labels() -> list[str]:
            found = home.states().items()
            return [one["state"] for name, one in found if name.startswith(own) and name.endswith("-label")]

        home.until(lambda: labels() == ["walk"] * len(hostile))
        base = f"edge-runtime/{gym.name}/gym"
        forged = {
            "set/restart": b"restart", "set/install": b"install", "set/x": b"", "keys/../set/reset": b"reset",
            f"keys/{'y' * 500}/set/reset": b"reset", "keys/nobody/set/reset": b"\xff\xfe" * 5000,
        }  # fmt: skip
        forger.send([Message(f"{base}/{topic}", sent) for topic, sent in forged.items()])
        forger.send([Message("homeassistant/status", b"online")] * 50)
        send("a b", "rest")
        home.until(lambda: "rest" in labels())
        assert process.running()
        until(lambda: "reason=command_not_allowed" in process.err, lambda: process.err)


def test_one_device_of_the_application_holds_the_entities_of_all_keys(home: HomeAssistant, gym: Gym) -> None:
    gym.write(home='devices = "application"')
    with gym.running(), sensors(gym) as send:
        send("left", "walk")
        send("right", "rest")

        def found() -> list[Any]:
            return [state(home, f"{gym.device(key)}-label") for key in ("left", "right")]

        home.until(lambda: found() == ["walk", "rest"])
        assert [name for name in home.devices() if name.startswith(gym.device())] == [gym.device()]
        send("third", "run")
        home.until(lambda: state(home, f"{gym.device('third')}-label") == "run")
        assert found() == ["walk", "rest"]


QUANTITIES = RegressionOutput(
    quantities=(
        Quantity(name="room", unit="Cel", kind="temperature", half_width=0.5),
        Quantity(name="load", unit="kW", kind="temperature"),  # its unit is none of that kind
        Quantity(name=HTML, unit="furlong"),
    )
)
EXPECTED: dict[str, dict[str, dict[str, object]]] = {
    "anomaly": {"anomalous": {"device_class": "problem"}, "score": {"state_class": "measurement"}},
    "detection": {"count-cat": {"state_class": "measurement"}, "count-dog": {}},
    "embedding": {"label": {"options": ["up", "down", "unknown"]}},
    "multi-label": {"on-dog": {}, "on-rain": {}},
    "regression": {
        "value-room": {"unit_of_measurement": "°C", "device_class": "temperature", "state_class": "measurement"},
        "value-load": {"unit_of_measurement": "kW", "device_class": None},
    },
    "text": {"text": {"options": None}},
    "vector": {"number-x": {"state_class": "measurement"}, "number-y": {}, "number-z": {}},
}
"""By task: entities that come to have a state, and attributes of theirs."""


@pytest.mark.parametrize("task", EXPECTED)
def test_each_task_is_shown_as_what_its_answers_are(
    home: HomeAssistant, home_name: str, mosquitto: Mosquitto, tmp_path: Path, task: str
) -> None:
    output = QUANTITIES if task == "regression" else task_bundles.OUTPUTS[task]
    task_bundles.task_bundle(tmp_path / "tiny.edge", output, files=task_bundles.FILES.get(task))
    name = f"{home_name}_{task.replace('-', '_')}"
    text = APP.format(port=mosquitto.port, name=name, home="", model='unsigned = "allow"', more="")
    (tmp_path / "app.toml").write_text(text)
    rows = task_bundles.samples(1)[0].T
    stamps = 1_700_000_000.0 + np.arange(len(rows)) / task_bundles.RATE_HZ
    with (
        Process(tmp_path, "run", "app.toml") as process,
        Publisher(mosquitto.port, topic=f"{name}/{{key}}/imu") as publisher,
    ):
        process.says("connected")
        publisher.send([Message("k", payload(stamps, rows))])
        for entity, attributes in EXPECTED[task].items():
            unique_id = f"er-{name}-gym-k-{entity}"
            home.until(lambda one=unique_id: state(home, one) not in (None, "unknown", "unavailable"))  # type: ignore[misc]
            found = home.states()[unique_id]["attributes"]
            assert {attribute: found.get(attribute) for attribute in attributes} == attributes
