"""Signals that stop a command: SIGINT, SIGTERM, and SIGHUP unless it is ignored, as under nohup."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have these signals call `stop` once; a second one, of any, ends the process as usual."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, before[number])
        stop()

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
