"""R16: what every release wrote, this one opens: outboxes with all their cases, signed bundles with all their answers.

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

import pytest

from edge_runtime.bundle import open_bundle
from edge_runtime.clock import SimulatedClock
from edge_runtime.probe import probe
from edge_runtime.signature import load_key
from edge_runtime.store import HardCase, Outbox, OutboxConfig
from tests.faults.conftest import Note
from tests.faults.make_release_data import DATA
from tests.faults.oracle import missing

RELEASES = sorted(DATA.glob("v*"))


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_an_outbox_of_every_release_opens_whole(release: Path, name: str, tmp_path: Path, note: Note) -> None:
    expected: dict[str, Any] = json.loads((release / "expected.json").read_text())[name]
    shutil.copytree(release / name, tmp_path / name)
    clock = SimulatedClock()
    with Outbox(OutboxConfig(path=tmp_path / name / "outbox.db", max_bytes=256 * 1024), clock) as outbox:
        assert outbox.damage == []
        counts = outbox.counts()
        assert missing(counts) == 0
        assert (counts.accepted, counts.delivered) == (expected["accepted"], expected["delivered"])
        assert outbox.get_state("budget") == expected["budget"].encode()
        clock.advance(120.0)
        dead = {letter.case.id: letter.case for letter in outbox.dead_letters()}
        found = {case.id: case for case in outbox.take(1_000, 2**30)} | dead
        assert sorted(dead) == expected["dead"]
        assert found.keys() == expected["cases"].keys()
        for id_, wanted in expected["cases"].items():
            case = found[id_]
            body = base64.b64decode(wanted["body"])
            assert (case.key, case.priority, case.body) == (wanted["key"], wanted["priority"], body)
            assert case.attempts == wanted["attempts"]
        assert outbox.put([HardCase("new@1", "new", 0.0, 30.0, 0, 0.5, b"new", b"{}")]).accepted  # and it works
    note("R16", f"{release.name}: outbox {name}, {len(found)} cases as they were")


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
