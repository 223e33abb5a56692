"""The host is called otherwise, as with each new image of a container: what the broker kept for us still comes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.apps import app_file
from tests.integration.running import Process, Publisher, cut, predictions, streams, until
from tests.mosquitto import Mosquitto

NAMED = ("-c", "import os, sys; os.execvp('unshare', ['unshare', '--uts', 'sh', '-c', *sys.argv[1:]])")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a host name of its own needs root")
def test_a_host_that_is_called_otherwise_gets_what_the_broker_kept_for_it(bundle: Path, tmp_path: Path) -> None:
    """Mutation: `with_kept_names` is not called: another client id and session, and what was queued is lost."""
    messages = cut(streams(1, 800)[0], lambda: 20)

    def answered() -> int:
        """Samples from the first answered window to the last one."""
        slots = [int(answer["id"].rpartition("@")[2]) for answer in predictions(tmp_path / "answers.jsonl")]
        return max(slots, default=0) - min(slots, default=0)

    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app = app_file(tmp_path, bundle, broker.url, cloud="http://127.0.0.1:9")
        app.write_text('name = "app"\n' + app.read_text().replace('client_id = "under-test"\n', ""))
        for host, least in (("box-1", 200), ("box-2", 700)):
            line = f'hostname {host}; exec "$0" -P -m edge_runtime run app.toml'
            with Process(tmp_path, line, sys.executable, name=host, program=NAMED) as process:
                process.says("as 'edge-box-1-app-b'")
                if host == "box-1":
                    process.subscribed(broker)
                    publisher.send(messages[:20])
                until(lambda least=least: answered() > least, lambda: f"{answered()} {process.err}")  # type: ignore[misc]
                process.send(signal.SIGHUP)
                assert process.wait() == 0, process.err
            if host == "box-1":  # while nothing runs
                publisher.send(messages[20:])
                publisher.flush()
