"""Processes of this machine that answer groups of recordings, a model in each."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError, EdgeError, EngineError
from edge_runtime.tools.batch.answering import Answerer
from edge_runtime.tools.batch.job import Group, GroupFigures, Job

_NEWS_S: Final = 0.5
"""Time between two words of a worker about a group."""
_LOOK_S: Final = 0.2
"""Time between two looks at whether the job was stopped."""
_ATTEMPTS: Final = 2
"""Workers that may die over a group."""


class _Ready(NamedTuple):
    """The model of a worker is loaded."""


class _Went(NamedTuple):
    windows: int


class _Failed(NamedTuple):
    """The worker cannot go on, nor could any other."""

    why: str
    misused: bool
    """A person has to mend the command line."""


_Task: TypeAlias = tuple[Group, Path]
"""A group, and the file that its answers are to stand in."""
_Word: TypeAlias = _Ready | _Went | _Failed | GroupFigures


@dataclass(slots=True)
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    told: bool = False
    """To load the model."""
    task: _Task | None = None
    windows: int = 0
    """Of the task, so far."""


class GroupDone(NamedTuple):
    """A group that is done."""

    group: Group
    figures: GroupFigures


class Workers:
    """Answers groups on several processes; a context manager, so that none of them outlives it.

    1. All start at once; the first tries the model in a child process, as every start does, and the others load it
       when that went well.
    2. A group is given to a free process, the largest first, so that the last ones end at about the same time.
    3. A worker that dies is replaced, and its group is tried once more; then the group counts as broken.
    4. A worker ends when this process does: it finds its pipe closed.

    Args:
        job: what is done with the groups.
        count: processes.
        stopped: asked whether to stop.
        news: told windows answered so far of the groups under way.
    """

    def __init__(self, job: Job, count: int, *, stopped: Callable[[], bool], news: Callable[[int], None]) -> None:
        self._job = job
        self._count = count
        self._stopped = stopped
        self._news = news
        # Not forked from here: a library may have begun threads.
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._free: list[_Worker] = []
        self._proven = False
        self._left: deque[_Task] = deque()
        self._died: Counter[int] = Counter()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_exception: object) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()

    def answer(self, tasks: Sequence[_Task]) -> Iterator[GroupDone]:
        """Answer groups, each into a file (`Answerer.answer`); ends early when stopped.

        Raises:
            EdgeError: the model cannot be loaded, or the disk takes no more.
        """
        self._left = deque(sorted(tasks, key=lambda task: task[0].size, reverse=True))  # rule 2
        self._died.clear()
        while self._left or any(worker.task for worker in self._workers):
            if self._stopped():
                return
            self._employ()
            while self._left and self._free:
                self._give(self._free.pop(), self._left.popleft())
            yield from self._answered()

    def _employ(self) -> None:
        """Start workers for what is left to do."""
        busy = sum(worker.task is not None for worker in self._workers)
        while len(self._workers) < min(self._count, busy + len(self._left)):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs, self._job), daemon=True)
            process.start()
            theirs.close()
            worker = _Worker(process, ours)
            if self._proven or not self._workers:  # rule 1
                self._load(worker)
            self._workers.append(worker)

    def _load(self, worker: _Worker) -> None:
        worker.told = True
        with suppress(OSError):  # it died, which is heard of next
            worker.pipe.send(self._proven)

    def _give(self, worker: _Worker, task: _Task) -> None:
        worker.task, worker.windows = task, 0
        with suppress(OSError):  # it died, which is heard of next
            worker.pipe.send(task)

    def _answered(self) -> Iterator[GroupDone]:
        """Hear what workers say for a while."""
        for worker in self._heard():
            word = _next_word(worker)
            figures = self._lost(worker) if word is None else self._take(worker, word)
            if figures is not None and worker.task is not None:
                yield GroupDone(worker.task[0], figures)
                worker.task = None

    def _heard(self) -> list[_Worker]:
        """Wait for words of workers."""
        by_pipe = {worker.pipe: worker for worker in self._workers}
        return [by_pipe[pipe] for pipe in wait(list(by_pipe), _LOOK_S) if isinstance(pipe, Connection)]

    def _take(self, worker: _Worker, word: _Word) -> GroupFigures | None:
        if isinstance(word, GroupFigures):
            worker.windows = 0
            self._free.append(worker)
            return word
        if isinstance(word, _Failed):
            raise (ConfigError if word.misused else EdgeError)(word.why)
        if isinstance(word, _Ready):
            self._proven = True
            self._free.append(worker)
            for other in self._workers:
                if not other.told:
                    self._load(other)
        else:
            worker.windows = word.windows
            self._news(sum(other.windows for other in self._workers))
        return None

    def _lost(self, worker: _Worker) -> GroupFigures | None:
        """Let a worker go that has died (rule 3); the figures of its group, once no other is to try it.

        Raises:
            EngineError: it died of the model.
        """
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        if worker in self._free:
            self._free.remove(worker)
            return None
        if worker.task is None:
            raise EngineError(f"a worker {_end(worker)} while it loaded the model", how="died")
        group, _ = worker.task
        self._died[group.number] += 1
        if self._died[group.number] < _ATTEMPTS:
            self._left.appendleft(worker.task)
            return None
        return GroupFigures.none(group.because(f"the process that answered it {_end(worker)}"))


def _next_word(worker: _Worker) -> _Word | None:
    """Return what a worker says; None if it has died."""
    try:
        word: _Word = worker.pipe.recv()
    except (EOFError, OSError):
        return None
    return word


def _end(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    if code >= 0:
        return f"ended with code {code}"
    memory = ", as when memory runs out: try fewer jobs" if -code == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{memory}"


def _work(pipe: Connection, job: Job) -> None:
    """Answer groups until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all; the parent decides
    clock = SystemClock()
    said = 0.0

    def went(windows: int) -> None:
        nonlocal said
        if (now := clock.monotonic()) - said >= _NEWS_S:
            said = now
            pipe.send(_Went(windows))

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # rule 4
        try:
            answerer = Answerer(job, proven=pipe.recv())
            pipe.send(_Ready())
            while True:
                group, out = pipe.recv()
                pipe.send(answerer.answer(group, out, went))
        except EdgeError as error:
            pipe.send(_Failed(str(error), isinstance(error, ConfigError)))
