"""``edge-export announce``: what it writes is what a device follows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from edge_export.cli import main
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.clock import SystemClock
from edge_runtime.model.bundle.signature import load_key
from edge_runtime.operate.update import announcement, freshness
from edge_runtime.operate.update.announcement import Announcement
from edge_runtime.operate.update.state import UpdateState
from tests.models import tiny_bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    new_key(folder / "release.pem")
    for name in ("watch", "unsigned"):
        tiny_bundle(folder / f"{name}.edge", hop=8, name="watch", version=4)
    sign_bundle(folder / "watch.edge", SigningKey(folder / "release.pem"))
    return folder


def announce(made: Path, out: Path, *words: str, bundle: str = "watch") -> int:
    return main(
        ["announce", str(made / f"{bundle}.edge"), "--key", str(made / "release.pem"), "--out", str(out), *words]
    )


def read(made: Path, out: Path) -> Announcement:
    return announcement.parse(out.read_bytes(), [load_key(made / "release.pub.pem")]).announcement


def test_what_it_writes_is_about_the_file_and_a_device_follows_it(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "announce.json"
    assert announce(made, out, "--url", "https://example.org/x") == 0
    data = (made / "watch.edge").read_bytes()
    found = read(made, out)
    assert (found.model, found.size, found.sha256) == ("watch/4", len(data), hashlib.sha256(data).hexdigest())
    assert (found.devices, found.canary, found.url) == (("*",), 1.0, "https://example.org/x")
    assert parse_time(found.expires) - parse_time(found.issued) == 30 * 86_400
    signed = announcement.parse(out.read_bytes(), [load_key(made / "release.pub.pem")])
    assert freshness.admitted(UpdateState(), signed, SystemClock.wall()).floors["watch"].sequence == found.sequence
    assert "watch/4, sequence" in capsys.readouterr().out


def test_every_option_stands_in_what_is_signed(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "announce.json"
    words = ["--chunks", "fleet/v4", "--chunk-bytes", "1000", "--devices", "w1", "--devices", "x-*", "--canary", "0.05",
             "--expires", "2126-01-01", "--not-before", "2026-12-01T08:00+01:00", "--sequence", "12"]  # fmt: skip
    assert announce(made, out, *words) == 0
    found = read(made, out)
    assert (found.chunks, found.chunk_bytes, found.devices, found.canary) == ("fleet/v4", 1000, ("w1", "x-*"), 0.05)
    assert (found.expires, found.not_before) == ("2126-01-01T00:00:00+00:00", "2026-12-01T07:00:00+00:00")
    assert found.sequence == 12
    assert json.loads(out.read_bytes())["payloadType"] == announcement.PAYLOAD_TYPE


@pytest.mark.parametrize(
    ("words", "more", "complaint"),
    [
        (["--url", "https://example.org/x"], {"bundle": "unsigned"}, "is not signed"),
        (["--url", "ftp://example.org/x"], {}, "this cannot be announced: url must be"),
        (["--url", "http://a..b/x"], {}, "no host name"),
        (["--chunks", "$share/x"], {}, "must not begin with"),
        (["--url", "https://example.org/x", "--canary", "2"], {}, "canary 0 to 1"),
        (["--url", "https://example.org/x", "--expires", "2001-01-01"], {}, "expires must be later than issued"),
        (["--url", "https://example.org/x", "--expires", "soon"], {}, "Invalid isoformat"),
    ],
)
def test_what_no_device_would_follow_is_not_made(
    made: Path,
    tmp_path: Path,
    words: list[str],
    more: dict[str, Any],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "announce.json"
    assert announce(made, out, *words, **more) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not out.exists()
