"""Names of a device: made of the host's once, kept, and never in the way of a start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edge_runtime.app.composition.names import warn_container, with_kept_names
from edge_runtime.app.config import AppConfig, parse

APP = """
name = "app"
[model]
bundle = "watch.edge"
unsigned = "allow"
[broker.local]
url = "mqtt://127.0.0.1"
{client}
[[source]]
type = "mqtt"
broker = "local"
topics = ["a/+"]
[[sink]]
type = "stdout"
[home_assistant]
broker = "local"
[observe.otlp]
url = "http://127.0.0.1:4318"
{more}
"""
OUTBOX = '[outbox]\npath = "state/outbox.db"\n'


def named(config: AppConfig) -> tuple[str, str, str]:
    home, observe = config.home_assistant, config.observe
    assert home is not None
    assert observe is not None
    assert observe.otlp is not None
    return config.broker["local"].session_name("local", config.name), home.identity, observe.otlp.instance


def app(folder: Path, *, more: str = OUTBOX, client: str = "") -> AppConfig:
    (folder / "state").mkdir(exist_ok=True)
    return parse(APP.format(more=more, client=client), folder / "app.toml")


def test_names_stay_when_the_host_is_called_otherwise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Mutation: `_kept` that returns today's name: a container of the next image is another client to the broker."""
    caplog.set_level(logging.DEBUG)
    first = named(with_kept_names(app(tmp_path), write=True, host="box-1"))
    assert first == ("edge-box-1-app-local", "box-1", "app@box-1")
    assert named(with_kept_names(app(tmp_path), write=True, host="box-2")) == first
    assert [record.message.partition(":")[2].split(",")[0].strip() for record in caplog.records] == [
        "made the names of this device of its host name: kept=box-1 file=" + str(tmp_path / "state/outbox.names"),
        "this host was called otherwise",
    ]
    assert (tmp_path / "state/outbox.names").stat().st_mode & 0o777 == 0o600


def test_a_stated_name_is_used_as_it_is_and_a_rehearsal_keeps_none(tmp_path: Path) -> None:
    config = app(tmp_path, client='client_id = "mine"')
    assert named(with_kept_names(config, write=False, host="box-1"))[0] == "mine"
    assert not (tmp_path / "state/outbox.names").exists()


@pytest.mark.parametrize("held", [b"", b"\n", b"\xff\xfe\x00", b"a\nb", "folder", "read-only"])
def test_a_file_of_garbage_or_a_folder_in_its_place_ends_no_start(tmp_path: Path, held: bytes | str) -> None:
    config, path = app(tmp_path), tmp_path / "state/outbox.names"
    if held == "folder":
        path.mkdir()
    elif held == "read-only":
        (tmp_path / "state").rmdir()
        (tmp_path / "state").write_bytes(b"a file where the folder should be")
    elif isinstance(held, bytes):
        path.write_bytes(held)
    assert named(with_kept_names(config, write=True, host="box-1"))[1] == "box-1"


def test_without_a_file_of_state_names_follow_the_host(tmp_path: Path) -> None:
    config = app(tmp_path, more="")
    assert [named(with_kept_names(config, write=True, host=host))[1] for host in "ab"] == ["a", "b"]


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", ""])
@pytest.mark.parametrize("volume", [True, False])
@pytest.mark.parametrize("more", [OUTBOX, ""])
def test_a_container_without_a_volume_is_told_what_it_will_lose(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mark: str, more: str, *, volume: bool
) -> None:
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    where = tmp_path.resolve() / "state" if volume else "/"
    (root / "proc/self/mountinfo").write_text(
        f"1 0 0:1 / / rw - overlay overlay rw\n2 1 0:2 / {where} rw - ext4 /dev/sda1 rw\n"
    )
    if mark:
        (root / mark).parent.mkdir(exist_ok=True)
        (root / mark).touch()
    config = app(tmp_path, more=more)
    warn_container(with_kept_names(config, write=True, host="box-1"), config, root)
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    if not mark or (volume and more):
        assert not warned
    else:
        (line,) = warned
        assert "what the broker queues for edge-box-1-app-local ([broker.local])" in line
        assert ("hard cases that wait" in line) == bool(more)
