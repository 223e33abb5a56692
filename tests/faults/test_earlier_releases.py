"""R16: what every release wrote, this one opens: outboxes, reading logs and signed bundles, with all that they held.

A release adds its folder under ``tests/data`` with ``python -m tests.faults.make_release_data``, and from then on it is
opened here for ever.

Mutation that was seen to fail here: another checksum over a case's row (`schema.case_row` without its meta).
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock, SystemClock
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.sandbox import probe
from edge_runtime.model.bundle.signature import load_key
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.config import ReadingLogConfig
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.reading_log import ReadingLog
from tests.faults.conftest import Note
from tests.faults.make_release_data import CASES, CONTRACT, DATA, readings
from tests.faults.oracle import missing

RELEASES = sorted(DATA.glob("v*"))


def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy to write to, with the permissions that the runtime gives its files; a checkout has others."""
    target = shutil.copytree(folder, tmp_path / folder.name)
    for path in target.iterdir():
        path.chmod(0o600)
    return target


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_an_outbox_of_every_release_opens_whole(release: Path, name: str, tmp_path: Path, note: Note) -> None:
    expected: dict[str, Any] = json.loads((release / "expected.json").read_text())[name]
    folder = copied(release / name, tmp_path)
    clock = SimulatedClock()
    with Outbox(OutboxConfig(path=folder / "outbox.db", max_bytes=256 * 1024), clock) as outbox:
        assert outbox.damage == []
        counts = outbox.counts()
        assert missing(counts) == 0
        assert (counts.accepted, counts.delivered) == (expected["accepted"], expected["delivered"])
        assert outbox.get_state("budget") == expected["budget"].encode()
        clock.advance(120.0)
        dead = {letter.case.id: letter.case for letter in outbox.dead_letters()}
        found = {case.id: case for case in outbox.lease(1_000, 2**30)} | dead
        assert sorted(dead) == expected["dead"]
        assert found.keys() == expected["cases"].keys()
        for id_, wanted in expected["cases"].items():
            case = found[id_]
            body = base64.b64decode(wanted["body"])
            assert (case.key, case.priority, case.body) == (wanted["key"], wanted["priority"], body)
            assert case.attempts == wanted["attempts"]
        assert outbox.put([HardCase("new@1", "new", 0.0, 30.0, 0, 0.5, b"new", b"{}")]).accepted  # and it works
    note("R16", f"{release.name}: outbox {name}, {len(found)} cases as they were")


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_journal_of_every_release_goes_on_where_it_ended(
    release: Path, name: str, tmp_path: Path, note: Note
) -> None:
    """Mutation that was seen to fail here: a field of the contract not left out of `WindowProgress.contract`."""
    folder = copied(release / name, tmp_path)
    loop, windower, whole = Loop(), Windower(CONTRACT), Windower(CONTRACT)
    config = ReadingLogConfig(path=folder / "journal.db")
    reading_log = ReadingLog(config, loop=loop, metrics=Metrics(), clock=SystemClock())
    try:
        held, _ = reading_log.recover(CONTRACT, WindowConfig(), windower, lambda _windows, _settled: None)
    finally:
        reading_log.close(60.0)
        loop.close()
    first, second = readings()[:CASES], readings()[CASES:]
    same(held, [window for at, reading in enumerate(first) for window in whole.push([reading]) if at >= CASES - 4])
    same(windower.push(second), whole.push(second))
    note("R16", f"{release.name}: reading log {name}, {len(held)} unanswered windows, and those after them")


def same(found: list[Window], expected: list[Window]) -> None:
    assert [window.id for window in found] == [window.id for window in expected] != []
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
        np.testing.assert_array_equal(one.context, other.context)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_a_bundle_of_every_release_verifies_and_answers_as_it_did(release: Path, note: Note) -> None:
    key = load_key(release / "release.pub.pem")
    with open_bundle(release / "tiny.edge", trusted=[key]) as bundle:
        assert bundle.signer == key
        variants = [variant.name for variant in bundle.manifest.variants]
        for variant in variants:
            probe(bundle, variant).require()  # in a child: loads it, and replays the golden vectors
    note("R16", f"{release.name}: signed bundle, {', '.join(variants)} answer as they did")


def test_there_is_a_release_to_open() -> None:
    assert RELEASES
