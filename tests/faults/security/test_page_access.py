"""Access to the page of a running application: another user of the machine, over loopback and the Unix socket."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime.operate.observe.access import FIGURES, GUARDED
from edge_runtime.operate.observe.routes import Routes, router_of
from tests.integration.running import PATIENCE_S, ROOT, Process, Publisher, cut, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

NOBODY = 65534
Request = tuple[str, str, Any]
KEPT = 4
APP = """
[model]
bundle = "tiny.edge"
unsigned = "allow"
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[cases]
path = "cases.db"
random_share = 1.0
[observe]
socket = "app.sock"
listen = "127.0.0.1:0"
"""
REQUESTS: dict[str, Request] = {
    "metrics": ("GET", "/metrics", None),
    "api/report": ("GET", "/api/report", None),
    "api/stream": ("GET", "/api/stream", None),
    "api/key": ("GET", "/api/key?key=watch-0", None),
    "api/explain": ("POST", "/api/explain", {"key": "watch-0"}),
    "api/reset": ("POST", "/api/reset", {"keys": ["watch-0"]}),
    "api/cases": ("GET", "/api/cases", None),
    "api/cases/one": ("GET", "/api/cases/one?id=watch-0@0&answers=1", None),
    "api/cases/export": ("GET", "/api/cases/export", None),
    "api/cases/label": ("POST", "/api/cases/label", {"id": "watch-0@0", "label": "a"}),
    "api/cases/erase": ("POST", "/api/cases/erase", {"all": True}),
}

pytestmark = [needs_mosquitto, pytest.mark.slow]


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Return what a child process of a user finds out, or the error that it meets, by name."""
    ours, childs = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        if user != os.geteuid():
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        try:
            childs.send(work())
        except OSError as error:
            childs.send(type(error).__name__)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert ours.poll(PATIENCE_S), "the child says nothing"
    found = ours.recv()
    process.join()
    return found


def asked(
    requests: list[Request], port: int, *, user: int | None = None, sock: Path | None = None, token: str = ""
) -> list[tuple[int, str]]:
    """Statuses and bodies that a process of a user gets."""

    def work() -> list[tuple[int, str]]:
        found = []
        for method, path, document in requests:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            if sock is not None:
                connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.sock.connect(str(sock))
            headers = {"Content-Type": "application/json"} if document is not None else {}
            headers |= {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, None if document is None else orjson.dumps(document), headers)
            answer = connection.getresponse()
            body = answer.read() if "stream" not in path else b""
            found.append((answer.status, body.decode()))
            connection.close()
        return found

    found = as_user(os.geteuid() if user is None else user, work)
    assert isinstance(found, list), found
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can look into, so that the modes of its files alone protect them."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def running(folder: Path) -> Iterator[tuple[Process, int]]:
    """The application with kept cases, and its port."""
    tiny_bundle(folder / "tiny.edge")
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        (folder / "app.toml").write_text(APP.format(url=broker.url))
        with Process(folder, "run", "app.toml") as process:
            process.subscribed(broker)
            port = int(re.findall(r"observe: listening: url=http://127\.0\.0\.1:(\d+)/", process.err)[0])
            publisher.send(cut(streams(1, 16 * KEPT)[0], lambda: 16))
            publisher.flush()
            until(lambda: kept(process, port)["open"] == KEPT, lambda: process.err)
            yield process, port


def token_of(process: Process) -> str:
    return str(re.findall(r"link=http://127\.0\.0\.1:\d+/#token=(\S+)", process.err)[0])


def kept(process: Process, port: int) -> dict[str, int]:
    ((status, body),) = asked([("GET", "/api/cases", None)], port, token=token_of(process))
    assert status == 200, body
    counts: dict[str, int] = orjson.loads(body)["counts"]
    return counts


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_changes_nothing_and_sees_no_sample(
    running: tuple[Process, int], folder: Path
) -> None:
    process, port = running
    assert REQUESTS.keys() == FIGURES | GUARDED, "each path is tried"
    guarded = sorted(GUARDED)
    assert {status for status, _ in asked([REQUESTS[path] for path in FIGURES], port, user=NOBODY)} == {200}
    for token in ("", "wrong"):
        found = asked([REQUESTS[path] for path in guarded], port, user=NOBODY, token=token)
        assert [status for status, _ in found] == [401] * len(guarded), found
        assert all("link with its token" in body and str(folder / "app.page-token") in body for _, body in found)
    more = [("POST", "//api/cases/erase", {"all": True}), ("POST", "/api%2Fcases%2Ferase", {"all": True})]
    assert [status for status, _ in asked(more, port, user=NOBODY)] == [401, 401]
    assert kept(process, port)["open"] == KEPT

    secret = folder / "app.page-token"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert as_user(NOBODY, secret.read_text) == "PermissionError"

    (folder / "app.sock").chmod(0o666)  # an operator's mistake: the peer is checked as well
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:

        def told() -> bytes:
            sock.connect(str(folder / "app.sock"))
            return sock.recv(4096)  # before it has sent anything

        assert b"403" in as_user(NOBODY, told)
    assert asked([REQUESTS["api/cases"]], port, sock=folder / "app.sock")[0][0] == 200


def test_the_link_of_the_log_opens_all_and_stays_the_same_over_a_restart(
    running: tuple[Process, int], folder: Path
) -> None:
    process, port = running
    token = token_of(process)
    assert (folder / "app.page-token").read_text().strip() == token
    label = ("POST", "/api/cases/label", {"id": "watch-0@0", "label": "skip"})
    for one in asked([REQUESTS["api/key"], REQUESTS["api/reset"], label], port, token=token):
        assert one[0] in {200, 404}, one
    assert asked([REQUESTS["api/cases/erase"]], port, token=token)[0] == (200, f'{{"erased":{KEPT}}}')
    assert process.err.count(token) == 1, "the token is logged once, in its link"
    process.kill()
    (folder / "app.page-token").chmod(0o644)  # another user may have read it
    with Process(folder, "run", "app.toml", name="again") as again:
        again.says("link=")
        assert token_of(again) != token
        assert stat.S_IMODE((folder / "app.page-token").stat().st_mode) == 0o600
        second = token_of(again)
    with Process(folder, "run", "app.toml", name="third") as third:
        third.says("link=")
        assert token_of(third) == second
    (folder / "app.page-token").write_bytes(b"\0\xff\n\n")  # a damaged disk ends no start
    with Process(folder, "run", "app.toml", name="fourth") as fourth:
        fourth.says("link=")
        assert token_of(fourth) != second


def test_a_path_without_a_row_is_not_served() -> None:
    def nothing(*_: object, **__: object) -> Any:
        raise AssertionError

    routes = Routes(works={}, posts={"api/new": nothing}, reads={}, changes={})
    with pytest.raises(LookupError, match=r"no row in edge_runtime\.operate\.observe\.access: api/new"):
        router_of(routes, guard=None, hosts=None, metrics=nothing, pending=nothing, streams={}, files={})


@pytest.mark.parametrize("path", sorted(FIGURES | GUARDED))
def test_the_documented_table_has_a_row_for_each_path(path: str) -> None:
    page = (ROOT / "docs" / "SECURITY.md").read_text("utf-8")
    row = next((line for line in page.splitlines() if line.startswith("|") and f"`/{path}`" in line), "")
    assert row, f"docs/SECURITY.md lacks /{path}"
    assert ("| yes | no | yes |" in row) == (path in FIGURES), row
