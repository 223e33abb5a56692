"""The printed template lists every setting that there is, with its default, and starts where a bundle may run."""

from __future__ import annotations

import dataclasses
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.tools.cli import main
from edge_runtime.tools.demo.broker.broker import Broker
from scripts.settings_page import Section, sections, settings
from tests.integration.running import ROOT, Message, Process, Publisher, listening, payload, streams, until

EXAMPLES = {
    ("model", "trusted_keys"),
    ("source mqtt", "topics"),
    ("source mqtt", "channels"),
    ("source mqtt", "topic_qos"),
    ("source.codec json", "channels"),
    ("update", "topic"),
    ("update", "broker"),
    ("events", "after"),
    ("events", "within_s"),
}
"""Settings whose value in the template is an example, not the default: table and name."""


@pytest.fixture
def template(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["run", "--print-default"]) == 0
    return capsys.readouterr().out


def test_every_setting_is_in_the_template(template: str) -> None:
    """Mutation that this finds: a new field of any configuration dataclass that nobody can read about."""
    found = sections(template)
    everything = list(settings())
    assert len(everything) > 200
    missing = [f"[{section}] {name}" for section, name, *_ in everything if name not in _values(found, section)]
    assert missing == []


def test_the_template_has_no_setting_that_does_not_exist(template: str) -> None:
    known = {(section, name) for section, name, *_ in settings()}
    named = {
        (section.name, name)
        for section in sections(template).values()
        for name in section.values
        if not section.table.startswith("model.accelerators")
    }
    assert named <= known


def test_the_template_shows_the_defaults_that_are_in_force(template: str) -> None:
    """None and what must be given have no default to show; there it has an example."""
    found = sections(template)
    wrong = []
    for section, name, default, *_ in settings():
        shown = _values(found, section).get(name)
        if default in (None, dataclasses.MISSING) or (section, name) in EXAMPLES or name == "type":
            continue
        plain = list(default) if isinstance(default, tuple) else str(default) if isinstance(default, Path) else default
        if shown != plain:
            wrong.append(f"[{section}] {name} = {shown!r}, and the default is {plain!r}")
    assert wrong == []


def _values(found: dict[str, Section], section: str) -> dict[str, Any]:
    return found[section].values if section in found else {}


@pytest.mark.slow
def test_the_template_starts_with_the_bundle_that_comes_along_once_unsigned_ones_may_run(
    template: str, tmp_path: Path
) -> None:
    """What is changed besides is the broker's port, which belongs to this test."""
    template = template.replace('# unsigned = "refuse"', 'unsigned = "allow"', 1)
    with Broker() as broker, listening(broker.port, "edge/+/prediction") as heard, Publisher(broker.port) as publisher:
        (tmp_path / "app.toml").write_text(template.replace("mqtt://localhost:1883", broker.url))
        shutil.copy(ROOT / "examples" / "exercise-watch" / "watch.edge", tmp_path)
        with Process(tmp_path, "run", "app.toml") as process:
            process.subscribed(broker)
            (stream,) = streams(1, 200, channels=6)
            publisher.send([Message("w", payload(stream.t, stream.values))])
            until(lambda: heard or not process.running(), lambda: process.err)
            process.send(signal.SIGTERM)
            code = process.wait()
    assert heard, process.err
    assert code in {0, 3}, process.err  # 3: the sensor above repeats itself
    assert "WARNING" not in re.sub(
        "WARNING (window: dropped|intake: a channel sticks|runtime: in a container)", "", process.err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.toml", "process.err", "process.out", "watch.edge"]
