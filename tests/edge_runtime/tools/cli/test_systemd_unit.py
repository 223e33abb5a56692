"""The unit that an application gets: what systemd itself says of it, and what it lets the application do."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.errors import ConfigError
from edge_runtime.store.durable.config import ReadingLogConfig
from edge_runtime.tools.cli import SAFE_PATH, exits
from edge_runtime.tools.cli.systemd_unit import GROUPS, MARK, ServiceConfig, groups_of, hints, paths_of, unit
from tests.integration.running import environment, streams, write_recording
from tests.models import tiny_bundle

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

APP = """
drain_timeout_s = 20.0
[model]
bundle = "watch.edge"
trusted_keys = ["keys/release.pub.pem"]
{model}
[broker.local]
url = "mqtt://localhost:1883"
username_file = "secrets/user"
password_file = "secrets/password"
[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]
[source.codec]
type = "json"
[[sink]]
type = "jsonl"
path = "/var/lib/watch/answers/predictions.jsonl"
[cloud]
url = "http://localhost:8000"
model = "teacher"
token_file = "secrets/token"
[outbox]
path = "/var/lib/watch/outbox.db"
"""
FILE = Path("/etc/watch/app.toml")
INTERPRETER = Path("/bin/sh")
"""Any program that is there: no unit is started."""


def app(model: str = "", file: Path = FILE, more: str = "") -> AppConfig:
    return parse(APP.format(model=model) + more, file)


def config(file: Path = FILE, **more: object) -> ServiceConfig:
    return ServiceConfig(**({"app": file, "python": INTERPRETER} | more))  # type: ignore[arg-type]


def settings(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_only_what_the_configuration_makes_may_be_written() -> None:
    """Broken once by leaving `tuned` out: what tune measures could not have been remembered."""
    paths = paths_of(app('tuned = "/var/lib/watch/tuned/here.json"'), FILE)
    assert [str(path) for path in paths.written] == ["/var/lib/watch", "/var/lib/watch/answers", "/var/lib/watch/tuned"]
    assert {str(path) for path in paths.read} == {
        "/etc/watch/app.toml", "/etc/watch/watch.edge", "/etc/watch/keys/release.pub.pem",
        "/etc/watch/secrets/user", "/etc/watch/secrets/password", "/etc/watch/secrets/token",
    }  # fmt: skip
    updated = paths_of(app(more='[update]\nfolder = "/var/lib/watch/bundles"\ndrop = "/srv/drop"\n[governor]'), FILE)
    assert {Path("/var/lib/watch/bundles"), Path("/srv/drop")} <= set(updated.written)
    reading_log = dataclasses.replace(
        app(), durability="reading", reading_log=ReadingLogConfig(path=Path("/data/readings.db"))
    )
    assert Path("/data") in paths_of(reading_log, FILE).written
    assert Path("/data/readings.db") not in paths_of(reading_log, FILE).read
    assert not {Path("/"), *updated.written} & set(updated.read)
    beside = paths_of(app("tune_at_start_s = 5.0"), FILE)
    assert Path("/etc/watch") in beside.written
    found = settings(unit(app(), config()))
    assert found["ProtectSystem"] == ["strict"]
    assert found["ReadWritePaths"] == ["/var/lib/watch", "/var/lib/watch/answers"]
    assert "-/etc/watch/secrets/password" in found["ReadOnlyPaths"]


def _paths_in(hint: Any, where: str = "") -> Iterator[str]:
    """Every setting that holds a path, as a dotted name."""
    if isinstance(hint, schema.OneOf):
        for tag, part in hint.modules.items():
            yield from _paths_in(part, f"{where}({tag})")
        return
    if isinstance(hint, schema.Deferred):
        hint = hint.load()
    if hint is Path:
        yield where
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        for name, inner in get_type_hints(hint).items():
            yield from _paths_in(inner, f"{where}.{name}".lstrip("."))
    else:
        for inner in get_args(hint):
            yield from _paths_in(inner, where)


def test_every_path_that_can_be_configured_has_been_thought_of() -> None:
    """A new one fails here: say in `paths_of` whether it is written to, then add it. Credentials are read."""
    thought_of = {
        "model.bundle", "model.trusted_keys", "model.tuned", "model.compiled", "outbox.path", "reading_log.path",
        "governor.root", "update.folder", "update.drop", "sink(jsonl).path", "source(recording).files",
        "source(iio).sysfs", "source(iio).dev", "observe.socket", "observe.textfile", "home_assistant.labels",
        "cases.path",
    }  # fmt: skip
    found = set(_paths_in(AppConfig))
    assert {"outbox.path", "sink(jsonl).path", "broker.password_file"} <= found
    assert {name for name in found if not re.search(r"_files?$", name)} == thought_of


def test_what_accelerators_compile_can_be_written_where_a_folder_of_its_own_is_named() -> None:
    paths = paths_of(app('compiled = "/var/lib/watch/compiled"'), FILE)
    assert Path("/var/lib/watch/compiled") in paths.written
    assert Path("/var/lib/watch/compiled") not in paths.read


def test_what_observers_are_given_can_be_written() -> None:
    more = '[observe]\nsocket = "/run/watch/app.sock"\ntextfile = "/var/lib/node/watch.prom"\n'
    more += '[home_assistant]\nbroker = "local"\ncommands = ["label"]\nlabels = "/var/lib/labels/said.jsonl"\n'
    paths = paths_of(app(more=more), FILE)
    assert {Path("/run/watch"), Path("/var/lib/node"), Path("/var/lib/labels")} <= set(paths.written)
    assert not {Path("/run/watch/app.sock"), Path("/var/lib/node/watch.prom")} & set(paths.read)


def test_times_and_bounds_follow_the_configuration() -> None:
    found = settings(unit(app("threads = 2\nload_timeout_s = 10.0\ntune_at_start_s = 7.0"), config(watchdog_s=9)))
    assert found["TimeoutStopSec"] == ["35"]
    assert found["TimeoutStartSec"] == ["57"]
    assert found["WatchdogSec"] == ["9"]
    assert found["CPUQuota"] == ["200%"]
    assert found["MemoryMax"] == ["256M"]
    assert found["RestartPreventExitStatus"] == ["2"]
    assert found["RestartForceExitStatus"] == [str(exits.RESTART)]
    assert str(exits.RESTART) in found["SuccessExitStatus"][0].split()
    bounded = settings(unit(app(), config(memory_max="96M", cpu_percent=40)))
    assert (bounded["MemoryMax"], bounded["CPUQuota"]) == (["96M"], ["40%"])


def test_devices_are_closed_but_for_those_of_its_groups() -> None:
    found = settings(unit(app(), config()))
    assert found["PrivateDevices"] == ["yes"]
    assert "SupplementaryGroups" not in found
    wired = settings(unit(app(), config(groups=("i2c", "dialout"))))
    assert wired["SupplementaryGroups"] == ["i2c dialout"]
    assert wired["DevicePolicy"] == ["closed"]
    assert "char-i2c rw" in wired["DeviceAllow"]
    assert "char-ttyACM rw" in wired["DeviceAllow"]
    assert "PrivateDevices" not in wired
    fast = settings(unit(app("accelerators = {CUDAExecutionProvider = {}}"), config()))
    assert fast["SupplementaryGroups"] == ["video render"]
    assert fast["DevicePolicy"] == ["auto"]
    assert "MemoryDenyWriteExecute" not in fast


@dataclasses.dataclass
class Sensor:
    """A source, as far as a unit cares."""

    type: str
    dev: Path = Path("/dev")


def test_sources_bring_their_groups_and_what_they_set() -> None:
    sensors = tuple(Sensor(kind) for kind in ("serial", "iio", "alsa"))
    wired = dataclasses.replace(app(), source=sensors)  # type: ignore[arg-type]
    found = settings(unit(wired, config()))
    assert found["SupplementaryGroups"] == ["dialout iio audio"]
    assert {"char-ttyUSB rw", "char-iio rw", "char-alsa rw"} <= set(found["DeviceAllow"])
    assert "-/sys/devices" in found["ReadWritePaths"]
    assert "-/sys/devices" not in settings(unit(app(), config()))["ReadWritePaths"]
    assert Path("/dev") not in paths_of(wired, FILE).read


def test_homes_stay_closed_unless_something_lies_there(tmp_path: Path) -> None:
    """Broken once by not following a virtual environment's link to its interpreter: the service could not start."""
    assert settings(unit(app(), config()))["ProtectHome"] == ["yes"]
    at_home = Path("/home/pi/app.toml")
    assert settings(unit(app(file=at_home), config(file=at_home)))["ProtectHome"] == ["read-only"]
    linked = tmp_path / "python"
    linked.symlink_to("/root/watch/.venv/bin/python3")
    made = settings(unit(app(), config(python=linked)))
    assert made["ProtectHome"] == ["read-only"]
    assert any("/root is closed" in line for line in hints(app(), config(python=linked), known_groups=[]))
    temporary = Path("/tmp/watch/app.toml")
    assert "PrivateTmp" not in settings(unit(app(file=temporary), config(file=temporary)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"}, {"name": ""}, {"name": "../x"}, {"user": "ro ot"}, {"groups": ("i2c\nUser=root",)},
        {"memory_max": "lots"}, {"memory_max": "0"}, {"cpu_percent": -1}, {"watchdog_s": 1},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"name|memory|cpu|watchdog"):
        config(**wrong)  # type: ignore[arg-type]


def test_a_path_that_would_end_its_line_is_refused() -> None:
    odd = Path("/etc/watch/a\nUser=root/app.toml")
    with pytest.raises(ConfigError, match="control characters"):
        unit(app(file=odd), config(file=odd))


def test_hints_say_what_to_type_and_nothing_is_hidden() -> None:
    lines = hints(app(), config(groups=("i2c", "gpio"), name="watch"), known_groups=["gpio"])
    text = "\n".join(lines)
    assert "sudo groupadd --system i2c" in text
    assert "groupadd --system gpio" not in text
    assert GROUPS["i2c"].rule in text
    assert GROUPS["gpio"].rule not in text
    assert "--groups i2c,gpio edge-runtime" in text
    assert "sudo install -d -o edge-runtime -g edge-runtime -m 0750 /var/lib/watch" in text
    assert text.count("enable --now watch") == 1
    shared = hints(app("tune_at_start_s = 1.0"), config(), known_groups=[])
    assert any("holds what is only read, too" in line for line in shared)


def test_hints_are_a_script_that_a_shell_can_read() -> None:
    file = Path("/etc/it's a $watch/app.toml")
    lines = hints(app("tune_at_start_s = 1.0", file), config(file=file, groups=tuple(GROUPS)), known_groups=[])
    done = subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_group_has_devices_and_a_rule() -> None:
    assert {"i2c", "spi", "gpio", "dialout", "video", "render"} <= set(GROUPS)
    for name, access in GROUPS.items():
        assert all(re.fullmatch(r"char-[\w]+", node) for node in access.nodes), name
        assert f'GROUP="{name}"' in access.rule
    assert groups_of(app(), ["i2c", "i2c"]) == ("i2c",)


# -- systemd's own opinion -------------------------------------------------------------------------------------------


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


ODD = [
    "/etc/watch/app.toml",
    "/home/pi/my apps/app.toml",
    '/etc/it\'s 100% "odd" $HOME ${x} \\n/app.toml',
    "/etc/größe/app;x.toml",
]


@needs_systemd
@pytest.mark.parametrize("place", ODD)
@pytest.mark.parametrize("groups", [(), tuple(GROUPS)])
def test_systemd_understands_every_line(tmp_path: Path, place: str, groups: tuple[str, ...]) -> None:
    """Broken once by a setting that does not exist: verify said so."""
    file = Path(place)
    path = tmp_path / "watch.service"
    text = unit(app("tune_at_start_s = 5.0", file), config(file=file, groups=groups, name="watch"))
    assert text.startswith(MARK)
    path.write_text(text)
    done = analyze("verify", "--man=no", path)
    said = [line for line in done.stderr.splitlines() if "watch.service" in line]
    assert (done.returncode, said) == (0, []), done.stderr


@needs_systemd
def test_systemd_finds_little_to_blame(tmp_path: Path) -> None:
    """On its scale from 0 to 10; a service that runs as anybody with nothing set gets 9.2."""
    path = tmp_path / "watch.service"
    path.write_text(unit(app(), config()))
    done = analyze("security", "--offline=yes", "--threshold=20", "--no-pager", path)
    assert done.returncode == 0, done.stdout[-200:]
    path.write_text(unit(app(), config(groups=("i2c", "dialout"))))
    done = analyze("security", "--offline=yes", "--threshold=25", "--no-pager", path)
    assert done.returncode == 0, done.stdout[-200:]


def allowed_calls(name: str) -> set[str]:
    """A set of system calls, as this systemd defines it."""
    found: set[str] = set()
    for line in analyze("syscall-filter", name).stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            found |= allowed_calls(word)
        elif word and not word.startswith("#"):
            found.add(word)
    return found


@pytest.mark.slow
@needs_systemd
@needs_strace
def test_an_application_makes_no_call_that_its_unit_forbids(tmp_path: Path) -> None:
    """Reading, tuning, answering, the outbox and the cloud's client, under strace; children included."""
    tiny_bundle(tmp_path / "watch.edge", hop=8, variants=("onnx-fp32", "tflite-int8"))
    write_recording(tmp_path / "recording.jsonl", streams(2, 200))
    (tmp_path / "app.toml").write_text(
        """
        [model]
        bundle = "watch.edge"
        unsigned = "allow"
        tune_at_start_s = 60.0
        [[source]]
        type = "recording"
        files = ["recording.jsonl"]
        [[sink]]
        type = "jsonl"
        path = "answers.jsonl"
        [gate]
        threshold = 2.0
        [cloud]
        url = "http://127.0.0.1:9"
        model = "teacher"
        [outbox]
        path = "outbox.db"
        """
    )
    calls = tmp_path / "calls"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-c", "-U", "name", "-o", calls, sys.executable, SAFE_PATH, "-m", "edge_runtime", "run",
         str(tmp_path / "app.toml")],
        capture_output=True, text=True, timeout=120, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {line.strip() for line in calls.read_text().splitlines()} - {"", "syscall", "total"}
    made = {name for name in made if re.fullmatch(r"[a-z_0-9]+", name)}
    assert {"read", "futex", "openat"} <= made
    if os.geteuid() == 0:
        made.discard("fchown")  # SQLite gives its files the owner of the database where it is root: no service is
    allowed = allowed_calls("@system-service") - allowed_calls("@privileged")
    assert made <= allowed, made - allowed
    text = unit(app(), config())
    assert "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged\n" in text


@given(st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), min_size=1, max_size=30))
def test_the_command_line_holds_the_path_and_nothing_of_it_is_expanded(name: str) -> None:
    """Read back by systemd's rules: quotes, backslashes, ``$$`` and ``%%``."""
    file = Path("/etc/x") / f"{name} b.toml"
    (command,) = settings(unit(app(file=file), config(file=file)))["ExecStart"]
    assert command.endswith('"')
    quoted = command[command.index(' "') + 2 : -1]
    assert re.sub(r"\\(.)|\$(\$)|%(%)", lambda m: m[1] or m[2] or m[3], quoted) == str(file)
    assert not re.search(r"(?<!\$)\$(?!\$)", quoted.replace("$$", ""))
