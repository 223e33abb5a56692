"""The package's life under a systemd that has booted: start, journal, a kill, a hang-up, an upgrade, purge."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import deb, wheels
from tests.debian import Booted, booted_debian, need_roots
from tests.integration.running import Publisher, cut, predictions, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, has_subscriptions, needs_mosquitto

pytestmark = [
    pytest.mark.slow,
    needs_mosquitto,
    pytest.mark.skipif(not (wheels.CHECKOUT / ".git").exists(), reason="what is built is what git tracks"),
]

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
[[sink]]
type = "jsonl"
path = "/var/lib/edge-runtime/answers.jsonl"
"""
UNIT = "edge-runtime.service"


@pytest.fixture(scope="module")
def target() -> deb.Target:
    need_roots()
    own = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    return deb.Target("12", own)


@pytest.fixture
def debian(target: deb.Target, tmp_path: Path) -> Iterator[Booted]:
    with booted_debian(target.debian, target.python, tmp_path) as made:
        yield made


def shown(debian: Booted, what: str) -> str:
    return debian.run("systemctl", "show", UNIT, f"--property={what}", "--value").stdout.strip()


def test_a_service_starts_writes_to_the_journal_survives_a_kill_and_ends_in_order(
    debian: Booted, target: deb.Target, tmp_path: Path
) -> None:
    """Mutations: no `JournalFormatter`: no record is a warning. `stopped_by_signals` without SIGHUP: the unit fails."""
    place = dataclasses.replace(wheels.PLACES[0], mode=0o644)
    staged = deb.stage(target, tmp_path / "packages", place)
    packages = [deb.pack(staged, revision).path for revision in ("", ".1")]
    answers = debian.path / "var/lib/edge-runtime/answers.jsonl"
    messages = cut(streams(1, 2000)[0], lambda: 20)
    debian.install(packages[0])
    tiny_bundle(debian.path / "etc/edge-runtime/mine.edge", hop=8)
    (debian.path / "etc/edge-runtime/mine.edge").chmod(0o644)
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        (debian.path / "etc/edge-runtime/app.toml").write_text(APP.format(broker=broker.url), "utf-8")

        def receives() -> None:
            until(lambda: has_subscriptions(broker, "edge-runtime"), debian.log)
            seen = len(predictions(answers)) if answers.exists() else 0
            publisher.send([messages.pop(0) for _ in range(20)])
            until(lambda: answers.exists() and len(predictions(answers)) > seen, debian.log)

        debian.run("systemctl", "enable", "--now", UNIT)
        assert shown(debian, "ActiveState") == "active"
        receives()
        debian.run("systemctl", "kill", "--signal=KILL", UNIT)  # a crash: it is started again
        until(lambda: shown(debian, "NRestarts") == "1" and shown(debian, "ActiveState") == "active", debian.log)
        receives()
        broker.stop()
        until(lambda: "trying again" in debian.log(), debian.log)
        broker.start()
        until(lambda: debian.log().count("connected to") >= 3, debian.log)
        debian.install(packages[1])  # an upgrade: stopped, and started again
        until(lambda: shown(debian, "ActiveState") == "active", debian.log)
        receives()
        debian.run("systemctl", "kill", "--signal=HUP", UNIT)  # an orderly stop
        until(lambda: shown(debian, "ActiveState") == "inactive", debian.log)
        assert shown(debian, "Result") == "success"
    lines = debian.run("journalctl", "--unit", UNIT, "--output=json", "--no-pager", "_COMM=python3").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["SYSLOG_IDENTIFIER"] for record in records} == {"edge-runtime"}
    by_priority = {(record["PRIORITY"], "trying again" in record["MESSAGE"]) for record in records}
    assert ("4", True) in by_priority
    assert ("6", False) in by_priority
    assert ("6", True) not in by_priority
    debian.run("dpkg", "--purge", "edge-runtime")
    assert not answers.exists()
    assert debian.run("systemctl", "cat", UNIT, check=False).returncode != 0
