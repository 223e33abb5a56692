"""Connections to brokers end once, after all that publish."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, call

from edge_runtime.app.composition.brokers import Brokers
from edge_runtime.app.config import parse
from edge_runtime.metrics import Metrics


def test_each_broker_is_told_and_let_go_of_once(tmp_path: Path) -> None:
    brokers = Brokers(parse('[model]\nbundle = "a.edge"\n', tmp_path / "app.toml"), Metrics())
    assert brokers.clients == {}
    clients = [Mock(), Mock()]
    brokers.clients.update(zip("ab", clients, strict=True))
    brokers.release(1.0)
    brokers.hold()
    brokers.publish_status("model", {"on": 1})
    brokers.publish_stats(b"{}")
    brokers.release(2.0)
    brokers.release(0.0)
    for client in clients:
        assert client.mock_calls == [
            call.hold(),
            call.publish_status("model", {"on": 1}),
            call.publish_below_status("$stats", b"{}"),
            call.close(2.0),
        ]
