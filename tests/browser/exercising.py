"""An application to look at: `edge-runtime run` on real recordings of people, with its broker, cloud and watches.

The bundle, the recordings (people 8 and 10) and the cloud are the demo's; the bundle is signed here, and has a
reference of its sensors from the same recordings, so that there is drift to look at. Keys come from a broker: some are
hostile.
``python -m tests.browser.exercising FOLDER`` runs it until Ctrl-C, to look at the page with a browser of one's own.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import orjson
from edge_export.choose.evaluation.sensors import Looks, faults_of, fit, thresholds_of
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.manifest import Manifest, dump, parse
from edge_runtime.manifest.drift import OwnPast, SensorReference
from edge_runtime.model.bundle import archive
from edge_runtime.operate.update import inbox
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.signal.drift.features import features, measure
from edge_runtime.signal.drift.latch import means
from edge_runtime.signal.drift.own_past import Distance
from edge_runtime.signal.drift.repair import LIMIT, RepairTest
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.tools.demo.schedule import ExerciseSet, load_recordings
from edge_runtime.types import Float64
from tests.edge_runtime.model.bundle.zipped import files_of
from tests.integration.running import ROOT, Process, Publisher, until
from tests.mosquitto import free_port

EXAMPLE = ROOT / "examples" / "exercise-watch"
HOSTILE = "<img src=x onerror=alert(1)>"
KEYS = (
    "mat 1, left wrist",
    "mat 1, right wrist",
    "mat 2, left wrist",
    "mat 2, right wrist",
    "mat 3",
    "rowing machine",
    "wall bars",
    HOSTILE,
    '"><svg onload=alert(2)>',
    "a name that is far too long for a card on any telephone that people carry",
)
PLAIN = {
    HOSTILE: "stall bars",
    KEYS[8]: "balance board",
    KEYS[9]: "bar by the window, for two people",
    "<b>shrug</b>": "shrug",
}
"""Names for pictures of the docs, in place of those that only a test would choose."""

RATE_HZ, MESSAGE = 50.0, 25
PAUSE_S = 4.0

_APP = """
name = "exercise-watch"

[model]
bundle = "watch.edge"
trusted_keys = ["release.pub.pem"]

[broker.gym]
url = "{broker}"
status_topic = "edge/gym/status"

[[source]]
type = "mqtt"
broker = "gym"
topics = ["watch/+/imu"]

[source.codec]
type = "json"

[[sink]]
type = "mqtt"
broker = "gym"
topic = "edge/{{key}}/prediction"

[[events]]
name = "pendulum"
label = "PEN"
on = 0.6
off = 0.4
of = [2, 3]

[[events]]
name = "row"
label = "ROW"
on = 0.6
off = 0.4
of = [2, 3]

[[events]]
name = "<b>shrug</b>"
label = "TRAP"
on = 0.6
off = 0.4
of = [2, 3]

[gate]
max_share = 0.5

[cloud]
url = "{cloud}"
model = "exercise-watch-teacher"

[escalation]
deadline_s = 10.0

[outbox]
path = "outbox.db"

[update]
folder = "updates"
drop = "drop"
poll_s = 0.2
shadow_s = 0
shadow_windows = 5
trial_s = 0
trial_windows = 5
max_slowdown = 1000.0

[cases]
path = "cases.db"
random_share = 0.05
max_per_minute = 120

[observe]
listen = "127.0.0.1:{port}"
token_file = "token"
{more}
"""


class Players:
    """Watches that play the recordings again and again, faster than life, from a thread."""

    def __init__(self, port: int, speed: float, keys: Sequence[str] = KEYS) -> None:
        self._port, self._speed, self._keys = port, speed, keys
        self._stop, self._breaking = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._play, name="players", daemon=True)
        recordings = load_recordings(EXAMPLE / "recordings.npz")
        self._orders = {key: [0, 1, 2, 3, 4, 5] for key in keys}
        self._lines = [
            _endless(recordings[at :: len(keys)] or recordings, time.time(), self._orders[key])
            for at, key in enumerate(keys)
        ]

    def _play(self) -> None:
        step = MESSAGE / RATE_HZ / self._speed
        with Publisher(self._port) as publisher:
            while not self._stop.wait(step):
                for key, line in zip(self._keys, self._lines, strict=True):
                    publisher.publish(f"watch/{key}/imu", next(line), 1)
                if self._breaking.is_set():
                    publisher.publish("watch/<i>broken/imu", b'{"values": "<script>"}', 0)

    def send_what_is_broken(self) -> None:
        """Let one watch send messages that nobody can read, from now on."""
        self._breaking.set()

    def swap_axes(self, key: str) -> None:
        """Let a watch send y before x, from now on."""
        self._orders[key][:2] = [1, 0]

    def __enter__(self) -> Players:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)


def _endless(recordings: list[ExerciseSet], began: float, order: list[int]) -> Iterator[bytes]:
    """Messages of half a second of these recordings, one after the other for ever."""
    t = float(int(began))
    while True:
        for recording in recordings:
            for at in range(0, len(recording.values), MESSAGE):
                part = recording.values[at : at + MESSAGE, order]
                yield orjson.dumps({"t": t, "values": part.tolist()})
                t += len(part) / RATE_HZ
            t = float(int(t + PAUSE_S))


def described(manifest: Manifest, version: int = 1) -> Manifest:
    """The manifest with a reference of its sensors: training and use are the same recordings, so little is wrong."""
    names = [channel.name for channel in manifest.input.channels]
    rows = manifest.input.window
    recordings = load_recordings(EXAMPLE / "recordings.npz")
    windows = [
        (one.values[at : at + rows], one.label, one.person)
        for one in recordings
        for at in range(0, len(one.values) - rows + 1, rows)
    ]
    labels = [label for _, label, _ in windows]
    statistics = measure(np.stack([values for values, _, _ in windows]))
    floors = 0.01 * np.sqrt(np.mean(statistics.deviation**2, axis=0))
    y = np.array([sorted(set(labels)).index(label) for label in labels])
    looks = Looks(statistics, y, np.array([str(person) for _, _, person in windows]))
    reference = fit(looks, names, floors)
    reference = dataclasses.replace(
        reference, repairs=tuple(faults_of(manifest.input.channels, [names[:3], names[3:]]))
    )
    people = [looks.of(looks.group == person) for person in sorted(set(looks.group.tolist()))]
    thresholds = thresholds_of([means(RepairTest(reference).scores(one.statistics), LIMIT) for one in people])
    repairs = [
        dataclasses.replace(one, threshold=level)
        for one, level in zip(reference.repairs, thresholds.tolist(), strict=True)
    ]
    own = _own_past([features(one.statistics, floors)[:, : 3 * len(names)] for one in people])
    sensors: SensorReference = dataclasses.replace(reference, repairs=tuple(repairs), own=own)
    return dataclasses.replace(manifest, schema_version=2, version=version, sensors=sensors)


def _own_past(people: list[Float64], beginning: int = 10) -> OwnPast:
    """By how much the later looks of these people differ from their first ones; no more than that is usual."""
    apart = np.concatenate([means(one[beginning:]) - one[:beginning].mean(axis=0) for one in people])
    width = apart.shape[1]
    own = OwnPast(
        windows=beginning,
        spread=tuple(apart.std(axis=0).tolist()),
        correlations=(0.0,) * (width * (width - 1) // 2),
        threshold=1.0,
    )
    return dataclasses.replace(own, threshold=1.2 * float(Distance(own).of(apart).max()))


class Exercising:
    """The application under test, which can be ended and started again on the same port."""

    token = "first-token"

    def __init__(self, folder: Path, broker: Broker, cloud: str, more: str, speed: float, *, plain: bool) -> None:
        self._folder, self.port = folder, free_port()
        self.players = Players(broker.port, speed, [PLAIN.get(key, key) for key in KEYS] if plain else KEYS)
        shutil.copy(EXAMPLE / "teacher.edge", folder / "teacher.edge")
        for name in ("release", "stranger"):
            if not (folder / f"{name}.pem").exists():
                new_key(folder / f"{name}.pem")
        (folder / "drop").mkdir(exist_ok=True)
        self._write_bundle(folder / "watch.edge", 1, "release")
        text = _APP.format(broker=broker.url, cloud=cloud, port=self.port, more=more)
        text = text.replace("<b>shrug</b>", PLAIN["<b>shrug</b>"]) if plain else text
        (folder / "app.toml").write_text(text)
        self.change_token(self.token)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def change_token(self, token: str) -> None:
        """Write another token while the application runs."""
        self.token = token
        (self._folder / "token").write_text(token + "\n")

    def _write_bundle(self, path: Path, version: int, key: str) -> None:
        files = files_of(EXAMPLE / "watch.edge")
        manifest = described(parse(files["manifest.json"]), version)
        path.write_bytes(archive.pack(files | {"manifest.json": dump(manifest)}))
        sign_bundle(path, SigningKey(self._folder / f"{key}.pem"))

    def drop_bundle(self, version: int, key: str) -> None:
        """Hand the application a bundle as an update."""
        beside = self._folder / f"watch-{version}.edge"
        self._write_bundle(beside, version, key)
        beside.rename(self._folder / "drop" / beside.name)

    def go_back(self) -> None:
        """Ask for the bundle before, as an operator does."""
        inbox.post(UpdateStore(self._folder / "updates", read_only=True), inbox.Request(action="rollback"))

    def start(self) -> None:
        self._process = Process(self._folder, "run", "app.toml", name="app")
        self._process.says("observe: listening")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def says_no_defect(self) -> None:
        """Assert that nothing unforeseen happened."""
        assert self._process is not None
        assert self._process.running(), self._process.err
        assert "Traceback" not in self._process.err, self._process.err


@contextmanager
def exercising(folder: Path, *, speed: float = 4.0, more: str = "", plain: bool = False) -> Iterator[Exercising]:
    """Broker, cloud, application and watches, until the end of the block; with plain names for pictures of the docs."""
    cloud = free_port()
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        serve = ("serve", EXAMPLE / "teacher.edge", "--allow-unsigned", "--port", str(cloud))
        server = stack.enter_context(Process(folder, *serve, name="cloud"))
        server.says("serving")
        app = Exercising(folder, broker, f"http://127.0.0.1:{cloud}", more, speed, plain=plain)
        app.start()
        stack.callback(app.kill)
        stack.enter_context(app.players)
        yield app


def main() -> None:
    """Run it until Ctrl-C."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with exercising(folder) as app:
        print(f"{app.url}?token={app.token}", flush=True)
        until(lambda: False, seconds=float(sys.argv[2]) if len(sys.argv) > 2 else 3600.0)


if __name__ == "__main__":
    main()
