"""One sink that fails stops no other: real processes, brokers, files and pipes, each failing in its own way.

Each kind of sink fails as the first one, which acknowledgements wait for, and as another. The healthy sink, over the
sensors' own broker, has every answer.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.failing_sinks import APP, KINDS, RATE_HZ, Kind, application, mqtt_stopped, run
from tests.integration.running import Publisher, cut, streams, subscribed, until
from tests.long_tier import some
from tests.mosquitto import Mosquitto, needs_mosquitto

pytestmark = [needs_mosquitto, pytest.mark.slow]


CASES = {f"{kind.__name__}-{place}": (kind, place == "first") for kind in KINDS for place in ("first", "second")}
PUSH = [name for number, name in enumerate(CASES) if number % 4 in (0, 3)]
"""Every kind, first and second by turns."""


@pytest.mark.parametrize("case", some(CASES, PUSH))
def test_one_sink_that_takes_nothing_stops_no_other(case: str, bundle: Path, tmp_path: Path) -> None:
    kind, first = CASES[case]
    run(kind, bundle, tmp_path, first, 400, paced=False)


def test_with_its_defaults_a_failing_sink_stops_no_other_for_a_minute(bundle: Path, tmp_path: Path) -> None:
    """Every kind side by side, first and second by turns. Ten minutes and both: faults/test_sinks_apart.py."""

    def minute(number: int, kind: Kind) -> None:
        (tmp_path / kind.__name__).mkdir()
        run(kind, bundle, tmp_path / kind.__name__, number % 2 == 0, 60 * RATE_HZ, paced=True)

    with ThreadPoolExecutor(len(KINDS)) as pool:
        list(pool.map(minute, range(len(KINDS)), KINDS))  # raises what the first one that failed did


def test_the_only_sink_holds_readings_back_and_the_log_names_it(bundle: Path, tmp_path: Path) -> None:
    (stream,) = streams(1, 800)
    with ExitStack() as stack:
        broker = Mosquitto().start()
        stack.callback(broker.close)
        failing = mqtt_stopped(tmp_path, stack)
        text = APP.format(bundle=bundle, port=broker.port, limit="receive_maximum = 20") + failing.table
        sensors = stack.enter_context(Publisher(broker.port))
        pid, said = stack.enter_context(application("silence_s = 8.0\n" + text, tmp_path, subprocess.DEVNULL))
        until(lambda: subscribed(broker, said()), said)
        failing.begin(pid)
        sensors.send(cut(stream, lambda: 8))
        until(lambda: "they wait for sink[0], which takes no answers" in said(), said)
        assert "nothing arrived" not in said()
        end, delivered = failing.end, failing.delivered
        assert end is not None
        assert delivered is not None
        end()
        until(lambda: delivered() >= 98, said)
