"""Pinning, in a thread of its own, since that is what it changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from edge_runtime.errors import EngineError
from edge_runtime.hardware import Cluster, Evidence, Profile
from edge_runtime.hardware.pinning import pin, strong_cores


def profile(*clusters: tuple[int, ...], allowed: tuple[int, ...]) -> Profile:
    evidence = Evidence(tier="simulated", detail="made for this test")
    return Profile(
        family="test", model="test", evidence=evidence, clusters=tuple(Cluster(cpus=cpus) for cpus in clusters),
        allowed=allowed,
    )  # fmt: skip


def apart(call: Callable[[], Any]) -> Any:
    """Call in a thread that ends afterwards."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(call())
        except EngineError as error:
            answer.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return answer[0]


def test_strong_cores_are_named_only_where_there_are_weak_ones() -> None:
    assert strong_cores(profile((4, 5), (0, 1, 2, 3), allowed=(0, 1, 2, 3, 4, 5))) == (4, 5)
    assert strong_cores(profile((4, 5), (0, 1, 2, 3), allowed=(0, 1, 5))) == (5,)
    assert strong_cores(profile((4, 5), (0, 1, 2, 3), allowed=(0, 1))) == (0, 1)
    assert strong_cores(profile((0, 1, 2, 3), allowed=(0, 1, 2, 3))) == ()


def test_a_thread_is_pinned_and_the_others_are_not() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    assert apart(lambda: pin((one,))) == (one,)
    assert os.sched_getaffinity(0) == before
    assert apart(lambda: pin(())) == tuple(sorted(before))


@pytest.mark.parametrize("cpus", [(100_000,), (-1,), (2**70,)])
def test_processors_that_are_not_there_are_refused_and_the_real_ones_named(cpus: tuple[int, ...]) -> None:
    error = apart(lambda: pin(cpus))
    assert isinstance(error, EngineError)
    assert "this process may use" in str(error)


def test_a_system_that_cannot_pin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    assert pin(()) == ()
    with pytest.raises(EngineError, match="leave the setting out"):
        pin((0,))
