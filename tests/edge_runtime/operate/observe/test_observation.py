"""A running application, looked into over its Unix socket and over TCP."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks.memory import MemorySink
from tests.edge_runtime.operate.observe.looking import ROWS, Hand, bearer, get, post, running, tcp, unix


def test_nothing_listens_unless_asked(tmp_path: Path) -> None:
    with running(tmp_path, "") as (app, _):
        assert app.observation is None
        assert not list(tmp_path.glob("*.sock"))


def test_a_socket_shows_each_key_and_what_was_dropped(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with running(tmp_path, '[observe]\nsocket = "app.sock"') as (app, source):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with unix(path) as connection:
            status, _ = get(connection, "/api/report")
            assert status == 200
            source.give("kitchen/<b>", 3)
            source.give("cellar", 2)
            status, body = get(connection, "/api/report?filter=KIT")
            report = json.loads(body)
            assert status == 200
            assert [one["key"] for one in report["keys"]] == ["kitchen/<b>"]
            assert report["keys"][0]["windows"] == 3
            assert report["counts"]["predictions_total"] == 5
            assert report["app"]["pid"] == os.getpid()
            assert app.observation is not None
    assert not path.exists()


def test_the_window_of_a_key_is_kept_once_it_was_asked_for_and_can_be_explained(tmp_path: Path) -> None:
    with running(tmp_path, '[observe]\nlisten = "127.0.0.1:0"') as (app, source):
        with tcp(app) as connection:
            source.give("a", 1)
            token = bearer(app)
            status, body = get(connection, "/api/key?key=a", **token)
            assert (status, json.loads(body)["window"]) == (200, None)
            assert post(connection, "/api/explain", {"key": "a"}, **token)[0] == 409
            source.give("a", 2, seed=1)
            window = json.loads(get(connection, "/api/key?key=a", **token)[1])["window"]
            assert [len(values) for values in window["values"]] == [ROWS] * 3
            status, why = post(connection, "/api/explain", {"key": "a"}, **token)
            assert status == 200
            assert why["id"] == window["id"]
            assert len(why["channels"]) == 3
            assert get(connection, "/api/key?key=nothing", **token)[0] == 404


def test_a_stream_brings_pictures_until_the_caller_leaves(tmp_path: Path) -> None:
    with running(tmp_path, '[observe]\nlisten = "127.0.0.1:0"') as (app, source):
        source.give("a", 1)
        with tcp(app) as connection:
            connection.request("GET", "/api/stream")
            answer = connection.getresponse()
            assert answer.headers["Content-Type"] == "text/event-stream"
            lines = [answer.readline() for _ in range(4)]
            assert json.loads(lines[0].removeprefix(b"data: "))["keys"][0]["key"] == "a"
            assert json.loads(lines[2].removeprefix(b"data: "))["at"] > 0


def test_a_scraper_gets_what_it_asks_for(tmp_path: Path) -> None:
    with running(tmp_path, '[observe]\nlisten = "127.0.0.1:0"\npage = false') as (app, source):
        source.give("a", 2)
        with tcp(app) as connection:
            text = get(connection, "/metrics")[1].decode()
            assert "edge_predictions_total 2\n" in text
            openmetrics = get(connection, "/metrics", Accept="application/openmetrics-text;version=1.0.0")[1].decode()
            assert openmetrics.endswith("# EOF\n")
            assert get(connection, "/", **bearer(app))[0] == 404


def test_the_page_itself_needs_no_token_and_keeps_it_in_a_cookie_of_its_port(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a; b %\n")
    observe = '[observe]\nlisten = "127.0.0.1:0"\ntoken_file = "token"'
    with running(tmp_path, observe) as (app, _), tcp(app) as connection:
        assert app.observation is not None
        port = app.observation.address[1]
        assert get(connection, "/")[0] == 200
        assert get(connection, "/metrics")[0] == 401
        connection.request("GET", "/?token=a%3B+b+%25")
        answer = connection.getresponse()
        answer.read()
        cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        assert cookie.startswith(f"edge_token_{port}=")
        assert get(connection, "/api/report", Cookie=cookie)[0] == 200
        assert get(connection, "/api/report", Cookie=cookie.replace(str(port), "1"))[0] == 401
        connection.request("GET", "/", headers={"Authorization": "Bearer a; b %"})  # as the page does
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, str(answer.headers["Set-Cookie"]).partition(";")[0]) == (200, cookie)
        connection.request("GET", "/?token=wrong")
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.headers["Set-Cookie"]) == (200, None)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('listen = "0.0.0.0:9464"', "token_file"),
        ('listen = "9464"', "ADDRESS:PORT"),
        ('textfile = "edge.txt"', ".prom"),
        ("max_clients = 0", "max_clients"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(f'[model]\nbundle = "x.edge"\n[observe]\n{table}\n', tmp_path / "app.toml")


@pytest.mark.slow
def test_a_socket_of_an_application_that_died_is_taken_over_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with running(tmp_path, '[observe]\nsocket = "app.sock"') as (app, _):
        second = App(app.config, sources=[Hand()], sinks=[MemorySink()])
        with pytest.raises(ConfigError, match="another application listens"):
            second.run()
        with unix(path) as connection:
            assert get(connection, "/api/report")[0] == 200
