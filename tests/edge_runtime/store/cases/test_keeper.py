"""What is kept, over a sink and a tap that the test drives, and over a whole application."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreCorrupt, StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.cases.case import Rival
from edge_runtime.store.cases.config import CasesConfig
from edge_runtime.store.cases.keeper import CaseKeeper
from edge_runtime.types import Correction, Prediction, SuspectPrediction
from tests.edge_runtime.operate.observe.looking import ROWS, bearer, get, post, running, tcp
from tests.models import tiny_bundle

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def answered(at: int, *, hard: bool = False, suspect: str = "") -> tuple[Window, Prediction]:
    samples = np.full((ROWS, 3), at, np.float32)
    window = Window("a", at, float(at), samples, samples, 0.0)
    common: dict[str, Any] = {
        "id": window.id, "key": "a", "start": float(at), "end": at + 1.0, "label": "x", "confidence": 0.5,
        "scores": [0.5, 0.5], "route": "local", "hard": hard or bool(suspect), "model": "m/1", "variant": "v",
        "latency_ms": 1.0,
    }  # fmt: skip
    return window, SuspectPrediction(**common, suspect=suspect) if suspect else Prediction(**common)


class Kept:
    """A keeper and what it has written."""

    def __init__(self, path: Path, manifest: Manifest, **settings: Any) -> None:
        self.metrics, self.clock = Metrics(), SimulatedClock()
        self.keeper = CaseKeeper(
            CasesConfig(path=path, **{"max_per_minute": 6000, **settings}),
            audit_share=0.3, manifest=lambda: manifest, metrics=self.metrics, clock=self.clock,
        )  # fmt: skip
        with closing(Loop()) as loop:
            self.keeper.open(loop)

    def see(self, *all_of_it: tuple[Window, Prediction]) -> None:
        self.keeper.windows([window for window, _ in all_of_it])
        self.keeper.send([answer for _, answer in all_of_it], None)

    def reasons(self, cases: int) -> dict[str, str]:
        store = self.keeper.store
        assert store is not None
        until(lambda: self.metrics.counts["cases_kept_total"] >= cases)
        return {one["id"]: one["why"] for one in store.summaries("all", 10_000)}


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    tiny_bundle(tmp_path / "tiny.edge")
    with open_bundle(tmp_path / "tiny.edge") as bundle:
        return bundle.manifest


def test_each_kind_of_case_is_kept_for_its_reason(tmp_path: Path, manifest: Manifest) -> None:
    kept = Kept(tmp_path / "cases.db", manifest, random_share=0.2)
    kept.see(answered(1, hard=True), answered(2, suspect="unit"), *(answered(at) for at in range(3, 503)))
    found = kept.reasons(2 + 150)
    kept.keeper.close(PATIENCE_S)
    assert (found["a@1"], found["a@2"]) == ("hard", "suspect")
    reasons = list(found.values())
    assert 0.2 < reasons.count("audit") / 500 < 0.4
    assert 0.07 < reasons.count("random") / 500 < 0.22


def test_what_is_not_asked_for_is_not_kept(tmp_path: Path, manifest: Manifest) -> None:
    kept = Kept(tmp_path / "cases.db", manifest, hard=False, audits=False, suspect=False, random_share=1.0)
    kept.see(answered(1, hard=True), answered(2, suspect="unit"), answered(3))
    assert kept.reasons(1) == {"a@3": "random"}
    kept.keeper.close(PATIENCE_S)


def test_no_more_are_kept_in_a_minute_than_asked_for(tmp_path: Path, manifest: Manifest) -> None:
    kept = Kept(tmp_path / "cases.db", manifest, max_per_minute=5)
    kept.see(*(answered(at, hard=True) for at in range(20)))
    assert len(kept.reasons(5)) == 5
    assert kept.metrics.counts["cases_passed_over_total"] == 15
    kept.clock.advance(61)
    kept.see(*(answered(at, hard=True) for at in range(20, 23)))
    assert len(kept.reasons(8)) == 8
    rival = Rival(bundle="f" * 64, against="m/1", attempt=1, old="x", new="y")
    for at in range(100, 140):
        kept.keeper.differ(answered(at)[0], 0.5, rival)
    assert list(kept.reasons(48).values()).count("differ") == 40, "these were drawn"
    kept.keeper.close(PATIENCE_S)


def test_the_cloud_s_answer_stands_beside_its_case(tmp_path: Path, manifest: Manifest) -> None:
    kept = Kept(tmp_path / "cases.db", manifest)
    kept.see(answered(1, hard=True))
    kept.keeper.send(
        [Correction("a@1", "a", 1, 2, "y", 0.9, [0.1, 0.9], "cloud", True, "t/1", "cloud", 9.0, "x", False)], None
    )
    store = kept.keeper.store
    assert store is not None
    kept.reasons(1)
    until(lambda: store.one("a@1").cloud)
    assert store.one("a@1").cloud == {**store.one("a@1").cloud, "label": "y", "supersedes": "x"}  # type: ignore[dict-item]
    kept.keeper.close(PATIENCE_S)


def test_a_disk_that_fails_costs_cases_and_no_answer(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "cases.db", manifest)
    store = kept.keeper.store
    assert store is not None
    write, failing = store.write, threading.Event()
    failing.set()

    def fails(*arguments: Any) -> None:
        if failing.is_set():
            raise StoreError("full")
        write(*arguments)

    monkeypatch.setattr(store, "write", fails)
    kept.see(answered(1, hard=True))
    until(lambda: kept.metrics.counts["cases_lost_total"] == 1)
    failing.clear()
    kept.see(answered(2, hard=True))
    assert kept.reasons(1) == {"a@2": "hard"}
    kept.keeper.close(PATIENCE_S)


def test_a_file_that_is_found_damaged_is_set_aside_with_the_next_case_and_its_labels_go_on(
    tmp_path: Path, manifest: Manifest, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path / "cases.db", manifest)
    kept.see(answered(1, hard=True))
    kept.reasons(1)
    assert kept.keeper.store is not None
    kept.keeper.store.label("a@1", manifest.output.labels[0], "page")
    kept.keeper.distrust(StoreError("busy"))
    kept.keeper.distrust(StoreCorrupt("a page is not what it was", None))
    kept.see(answered(2, hard=True))
    until(lambda: kept.metrics.counts["cases_lost_total"] == 1)  # the file was opened a moment ago
    kept.clock.advance(11.0)
    kept.see(answered(3, hard=True))
    until(lambda: kept.metrics.counts["cases_kept_total"] == 2)
    assert set(kept.reasons(2)) == {"a@1", "a@3"}
    kept.keeper.close(PATIENCE_S)
    assert caplog.text.count("cases: set a damaged file aside: ") == 1
    assert "labels_kept=1" in caplog.text
    assert (tmp_path / "cases.db.damaged-1").exists()


def test_cases_of_a_running_application_are_listed_labelled_exported_and_erased(tmp_path: Path) -> None:
    tables = '[observe]\nlisten = "127.0.0.1:0"\n[cases]\npath = "cases.db"\nrandom_share = 1.0\nmax_per_minute = 1000'
    with running(tmp_path, tables) as (app, source), tcp(app) as connection:
        token = bearer(app)
        source.give("<b>a</b>", 3)
        source.give("b", 1)
        until(lambda: app.metrics.counts["cases_kept_total"] == 4)
        assert get(connection, "/api/cases/export", **token)[0] == 409
        listed = json.loads(get(connection, "/api/cases", **token)[1])
        assert listed["counts"]["open"] == 4
        first = listed["cases"][0]["id"]
        status, body = get(connection, f"/api/cases/one?id={first.replace('<', '%3C')}", **token)
        blind = json.loads(body)
        assert (status, blind["key"], "device" in blind) == (200, "<b>a</b>", False)
        assert len(blind["window"]["values"][0]) == ROWS
        told = json.loads(get(connection, f"/api/cases/one?answers=1&id={first}", **token)[1])
        assert told["device"]["id"] == first
        label = blind["labels"][0]
        assert (
            post(connection, "/api/cases/label", {"id": first, "label": label}, **token)[1]["counts"]["labelled"] == 1
        )
        assert post(connection, "/api/cases/label", {"id": first, "label": "<i>no such label"}, **token)[0] == 400
        assert post(connection, "/api/cases/label", {"id": "nobody@1", "label": label}, **token)[0] == 404
        assert post(connection, "/api/cases/label", {"id": first, "label": 7}, **token)[0] == 400
        status, csv = get(connection, "/api/cases/export", **token)
        assert status == 200
        assert len(csv.splitlines()) == 1 + ROWS
        assert post(connection, "/api/cases/erase", {}, **token)[0] == 400
        assert post(connection, "/api/cases/erase", {"key": "<b>a</b>"}, **token)[1] == {"erased": 3}
        assert post(connection, "/api/cases/erase", {"all": True}, **token)[1] == {"erased": 1}


def test_an_application_that_keeps_nothing_says_so_and_makes_no_file(tmp_path: Path) -> None:
    tables = '[observe]\nlisten = "127.0.0.1:0"\n[cases]\npath = "cases.db"\nkeep = "nothing"'
    with running(tmp_path, tables) as (app, source), tcp(app) as connection:
        token = bearer(app)
        source.give("a", 1)
        status, body = get(connection, "/api/cases", **token)
        assert (status, "[cases]" in json.loads(body)["error"]) == (404, True)
        assert not (tmp_path / "cases.db").exists()
