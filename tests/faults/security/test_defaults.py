"""S8: as it ships, the runtime listens on nothing, trusts nothing, and knows no password.

What it opens is read from /proc while it runs; tests/integration/test_silence.py watches every system call of it.
Broken on purpose, each seen to fail here: a socket that `App.run` listens on, ``unsigned = "allow"`` as the default,
`serve` on all interfaces.
"""

from __future__ import annotations

import dataclasses
import os
import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.base.system import toml
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.sinks.webhook import WebhookSinkConfig
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.operate.server.server import ServeConfig
from edge_runtime.tools.demo.broker.broker import Broker, EmbeddedBrokerConfig
from tests.faults.conftest import Note
from tests.integration.running import Process, command
from tests.models import tiny_bundle
from tests.mosquitto import free_port

ROOT = Path(__file__).resolve().parents[3]
LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
SECRET_WORDS = ("password", "token", "secret", "username", "key_file", "credentials")


def default_text() -> str:
    return files("edge_runtime.tools.cli").joinpath("default.toml").read_text("utf-8")


def listeners(pid: int) -> list[str]:
    """Where others can reach a process and its children: TCP that listens, any UDP, Unix sockets with a name."""
    pids = [pid, *(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    inodes = set()
    for one in pids:
        for descriptor in Path(f"/proc/{one}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if found := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                    inodes.add(found[1])
    open_ones = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (table.startswith("udp") or fields[3] == LISTEN):
                open_ones.append(f"{table} {fields[1]}")
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in inodes and len(fields) > 7:
            open_ones.append(f"unix {fields[7]}")
    return open_ones


def test_the_look_at_proc_sees_a_listener(tmp_path: Path) -> None:
    with Broker() as broker:
        assert any(found.endswith(f":{broker.port:04X}") for found in listeners(os.getpid()))


def test_the_default_configuration_listens_on_nothing(tmp_path: Path, note: Note) -> None:
    """As `run --print-default` writes it, but for ports, an unsigned bundle that may run, and no measuring first."""
    tiny_bundle(tmp_path / "watch.edge", hop=8, variants=("onnx-fp32",))
    with Broker() as broker:
        text = default_text().replace("localhost:1883", f"127.0.0.1:{broker.port}")
        text = text.replace("http://localhost:8000", f"http://127.0.0.1:{free_port()}")
        text = text.replace("tune_at_start_s = 20.0", "")
        text = text.replace('# unsigned = "refuse"', 'unsigned = "allow"', 1)
        (tmp_path / "app.toml").write_text(text)
        with Process(tmp_path, "run", "app.toml") as process:
            process.says("connected to")
            found = listeners(process.pid)
            process.kill()
    assert found == []
    note("S8", "default configuration: 0 listeners")


def test_the_default_configuration_runs_no_bundle_that_nobody_signed(tmp_path: Path) -> None:
    tiny_bundle(tmp_path / "watch.edge", hop=8, variants=("onnx-fp32",))
    (tmp_path / "app.toml").write_text(default_text())
    refused = command("run", "app.toml", cwd=tmp_path)
    assert refused.code != 0
    assert "sign" in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "outbox.db").exists()


def test_no_setting_has_a_secret_for_a_default() -> None:
    kinds: tuple[Any, ...] = (AppConfig, ModelConfig, BrokerConfig, CloudConfig, WebhookSinkConfig, ServeConfig)
    seen = 0
    for kind in kinds:
        for field in dataclasses.fields(kind):
            if any(word in field.name for word in SECRET_WORDS):
                default = field.default
                assert default in (None, "", False, dataclasses.MISSING, ()), (
                    f"{kind.__name__}.{field.name} = {default!r}"
                )
                seen += 1
    assert seen >= 8


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/*.toml")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_example_holds_a_secret(path: Path) -> None:
    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif isinstance(value, str) and any(word in name for word in SECRET_WORDS):
            assert name.endswith(("_file", "_files")), f"{name} = {value!r}"
            assert not (path.parent / value).exists(), f"{value} is shipped"

    walk(toml.loads(path.read_text("utf-8")), "")


def test_what_can_listen_does_it_for_this_machine_alone() -> None:
    assert ServeConfig().host in {"127.0.0.1", "localhost", "::1"}
    assert EmbeddedBrokerConfig().host in {"127.0.0.1", "localhost", "::1"}


def test_a_device_needs_three_packages_and_an_engine() -> None:
    """Each further one is somebody else to trust. Before Python 3.11, the TOML reader is a fourth."""
    project = toml.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = [Requirement(one) for one in project["dependencies"]]
    for python, older in (("3.10", {"tomli"}), ("3.11", set()), ("3.13", set())):
        there = {need.name for need in needs if not need.marker or need.marker.evaluate({"python_version": python})}
        assert there == {"numpy", "paho-mqtt", "orjson"} | older


def test_the_security_page_names_tests_that_exist_and_settings_that_load(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "SECURITY.md").read_text("utf-8")
    named = set(re.findall(r"`((?:tests|examples)/[\w/.]+)`", text))
    assert len(named) > 12
    assert [path for path in named if not (ROOT / path).exists()] == []
    (settings,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    config = parse('[model]\nbundle = "x.edge"\n' + settings, tmp_path / "app.toml")
    assert config.broker["local"].address().tls
