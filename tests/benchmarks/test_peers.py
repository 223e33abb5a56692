"""The comparison with other clients: its tables, its picture, and what it says of a program that loses answers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from benchmarks.load import Outcome, Row
from benchmarks.peers import picture, system_calls
from benchmarks.peers.__main__ import Phase, ratio, table
from benchmarks.peers.catalogue import BASE, ENVIRONMENTS
from benchmarks.peers.environments import ENVIRONMENTS as INSTALLED

SUMMARY = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.001200           6       200           sendto
 40.00    0.000800           8       100         3 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.002000           6       300         3 total
"""


def outcome(rows: dict[str, float], missing: int = 0) -> Outcome:
    answers = {name: Row("rest", (score, 1 - score)) for name, score in rows.items()}
    latencies_s = np.full(len(rows), 0.001)
    return Outcome(4, len(rows), 1.0, 0.001, answers, latencies_s, missing=missing)


def test_system_calls_are_the_total_of_the_summary() -> None:
    assert system_calls.total_calls(SUMMARY) == 300


def test_answers_that_are_missing_or_differ_are_counted_as_wrong() -> None:
    phase = Phase()
    first = outcome({"a@0": 0.5, "a@64": 0.25})
    phase.add(first, first, 10**6)
    assert (phase.answers, phase.wrong) == (2, 0)
    phase.add(outcome({"a@0": 0.75}, missing=1), first, 10**6)
    assert (phase.answers, phase.wrong) == (3, 2)


def test_a_ratio_is_of_the_same_turn_and_the_median_of_all() -> None:
    ours, loop = Phase(us=[10.0, 30.0, 9.0]), Phase(us=[10.0, 20.0, 10.0])
    assert ratio({"edge-runtime": [ours], BASE: [loop]}, "edge-runtime", 0) == pytest.approx(1.0)


def test_a_table_has_a_row_of_each_program() -> None:
    figures = {name: [Phase([1.0], [2.0], [3.0], [4.0], 0, 5)] for name in ("edge-runtime", BASE, "C++")}
    assert [row[0] for row in table(figures, 0).rows] == ["edge-runtime", BASE, "C++"]


def test_the_bars_stand_in_order_and_name_every_program() -> None:
    drawn = picture.bars({"edge-runtime": [1.2, 0.3], BASE: [1.0, 1.0], "slow": [9.0, 2.0]}, ["slow", "fast"])
    texts = [each.text for each in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.index("edge-runtime") > texts.index(BASE)
    assert texts[texts.index("fast") :].index("edge-runtime") < texts[texts.index("fast") :].index(BASE)
    assert "9.00" in texts


def test_every_peer_has_an_environment_that_can_be_made() -> None:
    assert {environment for environment, _ in ENVIRONMENTS.values()} <= INSTALLED.keys()
