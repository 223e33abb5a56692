"""The life of the Debian package in a clean Debian: install, answers, an upgrade in an outage, remove, purge.

Mutations that this finds: prerm that does not stop the service; postinst that does not start it again; purge that
follows a link without looking for the marker; purge that deletes files of others behind it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from edge_runtime._version import __version__
from edge_runtime.app.python_api import open_model, replay
from edge_runtime.base.oip import Array
from edge_runtime.operate.server.server import ServeConfig, Server
from scripts import deb, sbom, wheels
from tests.debian import Debian, clean_debian, need_roots
from tests.integration.cloud import assert_right, teacher
from tests.integration.running import (
    Publisher,
    Stream,
    corrections,
    cut,
    ids,
    listening,
    predictions,
    streams,
    subscribed,
    until,
    write_recording,
)
from tests.long_tier import some
from tests.mosquitto import Mosquitto, free_port, needs_mosquitto

pytestmark = [
    pytest.mark.slow,
    needs_mosquitto,
    pytest.mark.skipif(not (wheels.CHECKOUT / ".git").exists(), reason="what is built is what git tracks"),
]

STATE, MARKER = "var/lib/edge-runtime", ".made-by-debian-package-edge-runtime"
UNIT = "edge-runtime.service"
EXAMPLE = wheels.CHECKOUT / "examples" / "first-label" / "message.json"

APP = """
[model]
bundle = "/etc/edge-runtime/mine.edge"
unsigned = "allow"
[broker.local]
url = "{broker}"
client_id = "edge-runtime"
[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]
qos = 1
[[sink]]
type = "jsonl"
path = "/var/lib/edge-runtime/answers.jsonl"
[gate]
threshold = 0.9
[cloud]
url = "http://127.0.0.1:{cloud}"
model = "teacher"
[outbox]
path = "/var/lib/edge-runtime/outbox.db"
"""


@pytest.fixture(scope="module", params=some(deb.RELEASES, [max(deb.RELEASES)]))
def target(request: pytest.FixtureRequest) -> deb.Target:
    """The newest release of Debian, on the architecture of this machine; in the long tier each."""
    need_roots()
    own = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    if own not in deb.ARCHITECTURES:
        pytest.skip(f"there is no package for this machine's architecture, {own}")
    return deb.Target(request.param, own)


@pytest.fixture(scope="module")
def built(target: deb.Target, tmp_path_factory: pytest.TempPathFactory) -> list[deb.Built]:
    """Two versions for this machine."""
    place = dataclasses.replace(wheels.PLACES[0], mode=0o644)
    staged = deb.stage(target, tmp_path_factory.mktemp("packages"), place)
    return [deb.pack(staged, revision) for revision in ("", ".1")]


@pytest.fixture
def packages(built: list[deb.Built]) -> list[Path]:
    return [one.path for one in built]


@pytest.fixture
def debian(target: deb.Target, tmp_path: Path) -> Iterator[Debian]:
    with clean_debian(target.debian, target.python, tmp_path) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[Mosquitto]:
    with Mosquitto("max_queued_messages 100000") as started:
        yield started


def configure(debian: Debian, text: str) -> None:
    (debian.path / "etc/edge-runtime/app.toml").write_text(text, "utf-8")


def start(debian: Debian, broker: Mosquitto) -> None:
    """As `systemctl start` does; returns when it receives."""
    known = len(debian.log())
    debian.run("systemctl", "start", UNIT)
    until(lambda: subscribed(broker, debian.log()[known:]), debian.log)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_two_machines_build_the_same_package(target: deb.Target, packages: list[Path], tmp_path: Path) -> None:
    """Mutations that this finds: times of the files, permissions or paths of the building machine get into it."""
    other = deb.build(target, tmp_path, wheels.PLACES[1])
    assert other.path.name == packages[0].name
    assert other.path.read_bytes() == packages[0].read_bytes()


def test_it_answers_by_the_configuration_that_it_brings(
    debian: Debian, broker: Mosquitto, packages: list[Path]
) -> None:
    debian.install(packages[0])
    assert debian.run("edge-runtime", "--version").stdout.strip() == f"edge-runtime {__version__}"
    engines = json.loads(debian.run("edge-runtime", "doctor", "--json").stdout)["engines"]
    assert {engine["name"] for engine in engines if engine["version"]} >= {"onnxruntime", "litert"}
    config = (debian.path / "etc/edge-runtime/app.toml").read_text("utf-8")
    configure(debian, config.replace("mqtt://localhost:1883", broker.url))
    debian.run("edge-runtime", "run", "--check", "/etc/edge-runtime/app.toml")
    # One source of the unit: the command.
    made = debian.run("edge-runtime", "install-service", "/etc/edge-runtime/app.toml", "--dry-run").stdout
    assert made.endswith((debian.path / "lib/systemd/system" / UNIT).read_text("utf-8"))
    start(debian, broker)
    with Publisher(broker.port) as publisher, listening(broker.port, "edge/+/prediction") as heard:
        publisher.publish("watch/me/imu", EXAMPLE.read_bytes(), 1)
        until(lambda: heard, debian.log)
    assert heard[0]["label"] == "PEN"
    pid = int((debian.path / "run" / f"{UNIT}.pid").read_text())
    assert Path(f"/proc/{pid}").stat().st_uid == (debian.path / STATE).stat().st_uid != 0


class Teacher:
    """A cloud that counts the windows it is asked about; it is away until `back`."""

    def __init__(self) -> None:
        self.port, self.asked = free_port(), 0
        truth = teacher()

        def predict(inputs: dict[str, Array]) -> dict[str, Array]:
            self.asked += len(inputs["x"])
            return truth.predict(inputs)

        self.server = Server({"teacher": dataclasses.replace(truth, predict=predict)}, ServeConfig(port=self.port))

    def back(self) -> None:
        self.server.start()

    def close(self) -> None:
        self.server.stop()


@pytest.fixture
def cloud() -> Iterator[Teacher]:
    made = Teacher()
    try:
        yield made
    finally:
        made.close()


def expected_ids(bundle: Path, recorded: list[Stream], folder: Path) -> list[str]:
    """Windows of an application that nothing happens to."""
    recording = write_recording(folder / "recording.jsonl", recorded)
    with open_model(bundle) as model:
        return sorted(prediction.id for prediction in replay(model, recording))


def test_its_bill_of_materials_names_what_it_holds(
    debian: Debian, target: deb.Target, packages: list[Path], built: list[deb.Built]
) -> None:
    bill = deb.keep(built[0], target, packages[0].parent / "kept")
    text = bill.with_name(f"{bill.name}.cdx.json").read_text("utf-8")
    assert JsonStrictValidator(sbom.VERSION).validate_str(text) is None
    components = json.loads(text)["components"]
    debian.install(packages[0])
    ask = "import importlib.metadata as m; print(*(f'{d.name} {d.version}' for d in m.distributions()), sep='\\n')"
    lines = debian.run("/usr/lib/edge-runtime/bin/python3", "-c", ask).stdout.splitlines()
    held = {(canonicalize_name(name), version) for name, version in map(str.split, lines)}
    assert {(one["name"], one["version"]) for one in components} | {("edge-runtime", __version__)} == held
    assert all(len(one["hashes"]) == 1 and one["licenses"] for one in components)


def test_an_upgrade_in_an_outage_loses_nothing_and_does_nothing_twice(
    debian: Debian,
    broker: Mosquitto,
    cloud: Teacher,
    target: deb.Target,
    packages: list[Path],
    bundle: Path,
    tmp_path: Path,
) -> None:
    recorded = streams(4, 600, seed=11)
    parts = [cut(stream, lambda: 7) for stream in recorded]
    thirds = [[m for part in parts for m in part[len(part) * i // 3 : len(part) * (i + 1) // 3]] for i in range(3)]
    expected = expected_ids(bundle, recorded, tmp_path)
    answers = debian.path / STATE / "answers.jsonl"

    debian.install(packages[0])
    (debian.path / "etc/edge-runtime/mine.edge").write_bytes(bundle.read_bytes())
    configure(debian, APP.format(broker=broker.url, cloud=cloud.port))
    start(debian, broker)
    debian.asked()
    with Publisher(broker.port) as publisher:
        publisher.send(thirds[0])
        until(lambda: len(predictions(answers)) > len(expected) // 4, debian.log)

        # The cloud is away, the outbox has hard cases, and readings go on coming while the package is replaced.
        publisher.send(thirds[1])
        said = debian.install(packages[1])
        assert f"edge-runtime ({target.version('.1')}) over ({target.version()})" in said
        asked = debian.asked()
        assert [line for line in asked if not line.startswith("is-active")] == [
            f"stop {UNIT}", "daemon-reload", f"start {UNIT}",
        ]  # fmt: skip
        publisher.send(thirds[2])
        publisher.flush()
        until(lambda: len(predictions(answers)) >= len(expected), debian.log)
        waiting = [answer for answer in predictions(answers) if answer["route"] == "provisional"]
        assert len(waiting) > 20
        assert cloud.asked == 0
        assert corrections(answers) == []

        cloud.back()
        until(lambda: len(corrections(answers)) >= len(waiting), debian.log)
        debian.run("systemctl", "stop", UNIT)
    assert ids(predictions(answers)) == expected
    assert ids(corrections(answers)) == ids(waiting)
    assert cloud.asked == len(waiting)
    for correction in corrections(answers):
        assert_right(correction, recorded)

    # The configuration is the operator's, and was not asked about.
    assert "mine.edge" in (debian.path / "etc/edge-runtime/app.toml").read_text("utf-8")


def test_remove_keeps_state_and_purge_deletes_it(debian: Debian, broker: Mosquitto, packages: list[Path]) -> None:
    debian.install(packages[0])
    config = (debian.path / "etc/edge-runtime/app.toml").read_text("utf-8").replace("mqtt://localhost:1883", broker.url)
    configure(debian, config)
    (debian.path / "etc/edge-runtime/secret").write_text("s")
    start(debian, broker)
    until((debian.path / STATE / "readings.db").exists, debian.log)
    debian.asked()

    debian.run("dpkg", "--remove", "edge-runtime")
    assert f"stop {UNIT}" in debian.asked()
    assert {"readings.db", MARKER} <= names(debian.path / STATE)
    assert (debian.path / "etc/edge-runtime/app.toml").read_text("utf-8") == config
    assert not (debian.path / "usr/lib/edge-runtime").exists()
    assert not (debian.path / "lib/systemd/system" / UNIT).exists()
    assert debian.run("id", "edge-runtime").returncode == 0

    debian.run("dpkg", "--purge", "edge-runtime")
    assert not (debian.path / STATE).exists()
    assert not (debian.path / "etc/edge-runtime").exists()
    assert debian.run("id", "edge-runtime", check=False).returncode != 0
    assert "edge-runtime" not in (debian.path / "etc/group").read_text("utf-8")
    assert debian.run("dpkg", "--audit").stdout == ""
    left = debian.run("find", "/", "-xdev", "-name", "*edge-runtime*", "-not", "-path", "/tmp/*", check=False).stdout
    assert [line for line in left.splitlines() if not line.startswith(("/proc", "/run/", "/var/log"))] == []


@pytest.mark.parametrize("known", [True, False], ids=["an empty folder of its own", "a folder with files of others"])
def test_purge_behind_a_link_deletes_what_is_ours_alone(debian: Debian, packages: list[Path], known: bool) -> None:
    disk = debian.path / "mnt/disk/state"
    disk.mkdir(parents=True)
    if not known:
        (disk / "holiday.jpg").write_text("of others")
    (debian.path / STATE).symlink_to("/mnt/disk/state")
    said = debian.install(packages[0])
    assert (MARKER in names(disk)) == known
    assert ("holds files of others" in said) != known

    # State of the service, files of others between it, and a link of the service's that leads out.
    ours = ("outbox.db", "answers/1.jsonl")
    for name in (*ours, "photos/a.jpg", "answers.txt"):
        (disk / name).parent.mkdir(exist_ok=True)
        (disk / name).write_text("x")
    (debian.path / "mnt/disk/precious").write_text("x")
    (disk / "way-out").symlink_to("/mnt/disk/precious")
    owned = [f"/mnt/disk/state/{name}" for name in (*ours, "answers", "way-out")]
    debian.run("chown", "-h", "edge-runtime:edge-runtime", *owned, "/mnt/disk/precious")

    debian.run("dpkg", "--remove", "edge-runtime")
    assert all((disk / name).exists() for name in ours)
    said = debian.run("dpkg", "--purge", "edge-runtime").stdout
    assert not (debian.path / STATE).is_symlink()
    assert (debian.path / "mnt/disk/precious").exists()
    assert (disk / "photos/a.jpg").exists()
    assert (disk / "answers.txt").exists()
    if known:
        assert names(disk) == {"photos", "answers.txt"}
        assert "stays, with what others have in it" in said
    else:
        assert all((disk / name).exists() for name in (*ours, "holiday.jpg"))
        assert "is not marked as ours" in said


def test_state_behind_a_link_is_written_there_and_purged_with_its_folder(
    debian: Debian, broker: Mosquitto, packages: list[Path]
) -> None:
    disk = debian.path / "mnt/disk/state"
    disk.mkdir(parents=True)
    (debian.path / STATE).symlink_to("/mnt/disk/state")
    debian.install(packages[0])
    config = (debian.path / "etc/edge-runtime/app.toml").read_text("utf-8")
    configure(debian, config.replace("mqtt://localhost:1883", broker.url))
    start(debian, broker)
    until((disk / "readings.db").exists, debian.log)
    debian.run("dpkg", "--purge", "edge-runtime")
    assert not disk.exists()
    assert disk.parent.exists()
