"""``edge-runtime outbox``, on the file alone and beside an application that has it open."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.control import serve
from edge_runtime.tools.cli import main

TENSOR = np.arange(12, dtype="<f4")
APP = """
[model]
bundle = "none.edge"
[[source]]
type = "stdin"
[[sink]]
type = "stdout"
[cloud]
url = "http://127.0.0.1:1"
model = "teacher"
[outbox]
path = "outbox.db"
"""


def case(number: int) -> HardCase:
    meta = orjson.dumps({"label": "walk", "confidence": 0.5})
    return HardCase(f"watch@{number}", "watch", 1.7e9 + number, 60.0, 0, 0.5, (TENSOR + number).tobytes(), meta)


def fill(outbox: Outbox) -> None:
    """1 and 2 were rejected, 3 was tried too often, 4 waits."""
    outbox.put([case(number) for number in (1, 2, 3, 4)])
    outbox.lease(4, 2**20)
    outbox.move_to_dead_letters(["watch@1", "watch@2"], "rejected", "the cloud answered 413: window too large")
    outbox.move_to_dead_letters(["watch@3"], "attempts", "no answer")
    outbox.release(["watch@4"])


@pytest.fixture(params=["stopped", "running"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The configuration of an application whose outbox is closed, or open and looked after."""
    path = tmp_path / "app.toml"
    path.write_text(APP)
    outbox = Outbox(OutboxConfig(path=tmp_path / "outbox.db"), SimulatedClock())
    fill(outbox)
    if request.param == "stopped":
        outbox.close()
        yield path
        return
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            serve(outbox.path, outbox)

    thread = threading.Thread(target=look)
    thread.start()
    yield path
    stop.set()
    thread.join()
    assert outbox.counts().balances()
    outbox.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["outbox", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 or captured.out else captured.err


def listed(capsys: pytest.CaptureFixture[str], app: Path, *options: str) -> dict[str, Any]:
    found = orjson.loads(run(capsys, "list", app, "--json", *options))
    assert isinstance(found, dict)
    return found


def test_list_shows_the_law_and_the_dead_letters(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "list", app)
    assert "accepted 4 = delivered 0 + queued 1 + dead 3 + dropped 0 (none)" in text
    assert "offered again after a restart: 0; final messages to publish: 3" in text
    assert [line.split()[:2] for line in text.splitlines()[2:]] == [[f"watch@{n}", "dead"] for n in (1, 2, 3)]
    assert "window too large" in text
    found = listed(capsys, app, "--queued")
    assert found["counts"]["dead"] == 3
    assert [(one["id"], one["state"]) for one in found["cases"]] == [
        ("watch@1", "dead"), ("watch@2", "dead"), ("watch@3", "dead"), ("watch@4", "ready"),
    ]  # fmt: skip
    assert [one["id"] for one in listed(capsys, app, "--reason", "attempts")["cases"]] == ["watch@3"]


def test_show_tells_everything_about_a_case(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = orjson.loads(run(capsys, "show", app, "watch@2", "--json"))
    assert found["reason"] == "rejected"
    assert found["meta"] == {"label": "walk", "confidence": 0.5}
    assert found["tensor"] == {"values": 12, "min": 2.0, "mean": 7.5, "max": 13.0}
    text = run(capsys, "show", app, "watch@4")
    assert "label walk" in text
    assert "reason" not in text


@pytest.mark.parametrize("action", ["show", "retry", "drop"])
def test_an_unknown_id_is_one_line_and_code_1(app: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    said = run(capsys, action, app, "watch@99", code=1)
    assert said.count("\n") == 1
    assert "watch@99" in said or "0 of 1" in said
    assert listed(capsys, app)["counts"]["dead"] == 3


def test_retry_queues_dead_letters_again(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 of 1 dead letters queued again" in run(capsys, "retry", app, "watch@2")
    counts = listed(capsys, app)["counts"]
    assert (counts["accepted"], counts["queued"], counts["dead"]) == (4, 2, 2)
    done = orjson.loads(run(capsys, "retry", app, "--all", "--reason", "rejected", "--json"))
    assert done == {"action": "retry", "asked": 1, "done": 1}
    found = listed(capsys, app, "--queued")
    assert {one["id"]: one["attempts"] for one in found["cases"] if one["state"] == "ready"} == {
        "watch@1": 0, "watch@2": 0, "watch@4": 0,
    }  # fmt: skip


def test_drop_counts_what_it_drops(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 of 1 dead letters dropped" in run(capsys, "drop", app, "watch@1")
    assert run(capsys, "drop", app, "watch@4", code=1)  # queued: only policy, age and delivery take it
    run(capsys, "drop", app, "--all")
    counts = listed(capsys, app)["counts"]
    assert counts == {
        "accepted": 4, "delivered": 0, "queued": 1, "dead": 0,
        "dropped": {"evicted": 0, "expired": 0, "damaged": 0, "discarded": 3, "dead_letters_full": 0},
        "repeated": 0, "unpublished": 3,
    }  # fmt: skip


def test_export_gives_back_the_tensors(app: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "cases.jsonl"
    assert "4 cases" in run(capsys, "export", app, "--queued", "--out", out)
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    for number, row in enumerate(rows, 1):
        tensor = np.frombuffer(base64.b64decode(row["body"]), row["dtype"])
        assert row["id"] == f"watch@{number}"
        assert tensor.tolist() == (TENSOR + number).tolist()
    assert out.stat().st_mode & 0o777 == 0o600
    assert run(capsys, "export", app, "--reason", "attempts").count("\n") == 1


def test_the_file_itself_can_be_named(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, app.with_name("outbox.db"))["counts"]["dead"] == 3


def test_mistakes_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "app.toml"
    path.write_text(APP)
    assert "there is no outbox" in run(capsys, "list", path, code=1)
    assert "there is no outbox" in run(capsys, "retry", path, "--all", code=1)
    assert not (tmp_path / "outbox.db").exists()
    assert "name the dead letters, or all of them" in run(capsys, "drop", path, code=2)
    assert "name the dead letters, or all of them" in run(capsys, "drop", path, "watch@1", "--all", code=2)
    path.write_text(APP.split("[cloud]", maxsplit=1)[0])
    assert "there is no [outbox]" in run(capsys, "list", path, code=2)
    with pytest.raises(SystemExit) as ended:
        main(["outbox", "burn", str(path)])
    assert ended.value.code == 2


def test_another_users_outbox_is_left_alone(
    app: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root it would work, and the log it leaves behind could not be opened by the application."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert "belongs to user" in run(capsys, "drop", app, "--all", code=1)
    monkeypatch.undo()
    assert listed(capsys, app)["counts"]["dead"] == 3
