"""The add-on under examples/home-assistant-addon: not built here, but read as the Supervisor reads it.

The schema is written by hand from developers.home-assistant.io, "Add-on configuration" (2025).
"""

from __future__ import annotations

import importlib.util
import json
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edge_runtime._version import __version__
from edge_runtime.app.config import load_config
from edge_runtime.tools.cli.exits import RESTART
from tests.containerfiles import read

ROOT = Path(__file__).resolve().parents[1]
ADDON = ROOT / "examples" / "home-assistant-addon"

Check = Callable[[Any], bool]


def text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def matches(pattern: str) -> Check:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def one_of(*known: Any) -> Check:
    return lambda value: value in known


def listed(check: Check) -> Check:
    return lambda value: isinstance(value, list) and bool(value) and all(map(check, value))


OPTION = matches(
    r"(str|password)(\(\d*,\d*\))?\??|(int|float)(\([\d.]*,[\d.]*\))?\??|(bool|email|url|port)\??"
    r"|match\(.+\)\??|list\(.+\)\??|device(\(.+\))?\??"
)
FOLDERS = (
    "homeassistant_config",
    "addon_config",
    "ssl",
    "addons",
    "backup",
    "share",
    "media",
    "all_addon_configs",
    "data",
)


def mapped(value: Any) -> bool:
    """An entry of ``map``: its path is absolute, and not the root."""
    if not isinstance(value, dict) or not {"type"} <= value.keys() <= {"type", "read_only", "path"}:
        return False
    fine = value["type"] in FOLDERS and flag(value.get("read_only", True))
    return fine and matches(r"/[^/].*")(value.get("path", "/x"))


REQUIRED: dict[str, Check] = {
    "name": text,
    "version": text,
    "slug": matches(r"[-_.A-Za-z0-9]+"),
    "description": text,
    "arch": listed(one_of("armhf", "armv7", "aarch64", "amd64", "i386")),
}
OPTIONAL: dict[str, Check] = {
    "url": matches(r"https?://\S+"),
    "startup": one_of("initialize", "system", "services", "application", "once"),
    "boot": one_of("auto", "manual", "manual_only"),
    "init": flag,
    "host_network": flag,
    "homeassistant": matches(r"\d{4}\.\d+\.\d+"),
    "services": listed(matches(r"(mqtt|mysql):(provide|want|need)")),
    "map": listed(mapped),
    "options": lambda value: isinstance(value, dict),
    "schema": lambda value: value is False or (isinstance(value, dict) and all(map(OPTION, value.values()))),
    "timeout": lambda value: type(value) is int and 10 <= value <= 300,
    "backup": one_of("hot", "cold"),
    "backup_exclude": listed(text),
    "stage": one_of("stable", "experimental", "deprecated"),
}


def problems(config: dict[str, Any]) -> list[str]:
    """What the Supervisor would refuse, or silently leave out."""
    found = [f"{name} is missing" for name in REQUIRED if name not in config]
    for name, value in config.items():
        check = (REQUIRED | OPTIONAL).get(name)
        if check is None:
            found.append(f"{name} is unknown")
        elif not check(value):
            found.append(f"{name}: {value!r}")
    options, schema = config.get("options") or {}, config.get("schema") or {}
    found += [f"options.{name} is not in schema" for name in options.keys() - schema.keys()]
    return found + [
        f"schema.{name} has no default and is not optional"
        for name, kind in schema.items()
        if name not in options and not str(kind).endswith("?")
    ]


def plain_yaml(source: str) -> dict[str, Any]:
    """Read the part of YAML that the file keeps to: tables and lists one level deep, scalars on one line."""
    found: dict[str, Any] = {}
    name = ""
    for line in source.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indented = line.startswith(" ")
        item = re.fullmatch(r"  - (.+)", line)
        key, colon, value = (item[1] if item else line.strip()).partition(": ")
        pair = {key.rstrip(":"): scalar(value)} if colon or key.endswith(":") else None
        if not indented:
            assert pair is not None, line
            name = next(iter(pair))
            found[name] = pair[name] if value else None
        elif item:
            found[name] = [*(found[name] or []), pair if pair is not None else scalar(key)]
        elif line.startswith("    "):
            assert pair is not None
            found[name][-1] |= pair
        else:
            assert pair is not None
            found[name] = (found[name] or {}) | pair
    return found


def scalar(value: str) -> Any:
    if value.startswith('"') and value.endswith('"'):
        return json.loads(value)
    return {"true": True, "false": False}.get(value, int(value) if value.isdecimal() else value)


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return plain_yaml((ADDON / "config.yaml").read_text("utf-8"))


def test_the_supervisor_would_have_nothing_to_say(config: dict[str, Any]) -> None:
    assert problems(config) == []
    assert config["version"] == __version__
    assert config["services"] == ["mqtt:need"]
    assert config["map"] == [{"type": "addon_config", "read_only": False, "path": "/config"}]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arch": ["amd65"]}, "arch: "),
        ({"startup": "before"}, "startup: "),
        ({"services": ["mqtt"]}, "services: "),
        ({"map": ["config:rw"]}, "map: "),
        ({"map": [{"type": "share", "path": "/"}]}, "map: "),
        ({"schema": {"app": "string"}}, "schema: "),
        ({"options": {"ap": "x"}}, "options.ap is not in schema"),
        ({"options": {}}, "schema.app has no default"),
        ({"timeout": 5}, "timeout: "),
        ({"slugs": "x"}, "slugs is unknown"),
        ({"name": ""}, "name: "),
    ],
)
def test_the_schema_finds_what_is_wrong(config: dict[str, Any], change: dict[str, Any], says: str) -> None:
    assert any(problem.startswith(says) for problem in problems(config | change))
    assert problems({name: value for name, value in config.items() if name != "slug"}) == ["slug is missing"]


def test_a_builder_would_say_only_that_it_starts_as_root() -> None:
    found = read((ADDON / "Dockerfile").read_text("utf-8"), ADDON)
    assert found.problems == ["it runs as root"]  # the Supervisor's files are root's; start.py gives that up
    assert found.command[-1] == "/start.py"


def test_its_application_is_whole_and_reads_the_files_that_are_written_for_it(start: ModuleType) -> None:
    app = load_config(ADDON / "app.toml")
    broker = app.broker["home"]
    assert {str(broker.username_file), str(broker.password_file)} == {
        "/data/state/mqtt-user",
        "/data/state/mqtt-password",
    }
    assert app.home_assistant is not None
    assert start.AGAIN == RESTART


@pytest.fixture
def start() -> ModuleType:
    spec = importlib.util.spec_from_file_location("start", ADDON / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_broker_s_password_comes_from_the_supervisor_and_only_its_owner_can_read_it(
    start: ModuleType, tmp_path: Path
) -> None:
    asked: list[str | None] = []

    class Supervisor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            data = {"host": "core-mosquitto", "port": 1883, "username": "addons", "password": 'p"ä'}
            body = json.dumps({"result": "ok", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Supervisor) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        service = start.broker("secret", f"http://127.0.0.1:{server.server_port}/services/mqtt")
        thread.join()
    assert asked == ["Bearer secret"]
    start.write_secrets(service, tmp_path / "state")
    password = tmp_path / "state" / "mqtt-password"
    assert password.read_text("utf-8") == 'p"ä\n'
    assert stat.S_IMODE(password.stat().st_mode) == 0o600


def test_it_is_started_again_after_a_restart_and_not_after_an_end(start: ModuleType, tmp_path: Path) -> None:
    start.PAUSE_S = 0.0  # type: ignore[attr-defined]
    count = tmp_path / "count"
    count.write_text("")
    program = f"p = open({str(count)!r}, 'a+'); p.write('x'); p.seek(0); raise SystemExit([4, 4, 3][len(p.read()) - 1])"
    assert start.run([sys.executable, "-c", program], None) == 3
    assert count.read_text() == "xxx"


@pytest.mark.slow
def test_a_real_yaml_reader_reads_the_same(config: dict[str, Any]) -> None:
    from tests.conformance import environments  # noqa: PLC0415

    if not environments.is_ready("home-assistant-2025"):
        pytest.skip("no environment 'home-assistant-2025', which has a YAML reader")
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    python = environments.python_of("home-assistant-2025")
    done = subprocess.run([python, "-c", program, ADDON / "config.yaml"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == config
