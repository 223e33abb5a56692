"""Kept state: the small files beside the outbox or the reading log, and the requests that commands lay beside them.

==================== ============== ====================================================================================
file (`AppConfig`)   holds          written
==================== ============== ====================================================================================
``saved_windows``    begun windows  at an orderly stop
``reading_log.path`` readings       before they are acknowledged, with ``durability = "reading"``; no begun windows
``counters_file``    totals         in place, within a second of a drop: a full disk cannot refuse them
``state_file``       what is learnt once a minute and at an orderly stop; examples of users with each change
==================== ============== ====================================================================================

Checking a configuration makes no file and touches none in use: they are built with the application and opened by `run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.store.durable.config import ReadingLogConfig

if TYPE_CHECKING:
    from edge_runtime.model.tasks.learnt_examples import LearntExamples
    from edge_runtime.store.durable.counters import LifetimeCounters
    from edge_runtime.store.durable.reading_log import ReadingLog
    from edge_runtime.store.durable.state_file import StateFile
    from edge_runtime.store.durable.window_state import SavedWindows

log = logging.getLogger(__name__)

_LOOK_S = 1.0

PublishStatus = Callable[[str, Mapping[str, object]], None]
"""Publishes the status of a part of the application, by its name."""


class LearntOfKeys(NamedTuple):
    """Parts that learn of each key on the device, by their names in the state file."""

    thresholds: KeyThresholds
    gate: AdaptiveGate
    drift: Drift
    """How the sensors of keys began."""


class KeptState:
    """Owner of the small files. It is opened in two steps, since a start may fail between them.

    Args:
        config: says what is kept, and where.
        loop: the application's loop.
        metrics: what the counters keep; receives everything that is counted.
        clock: wall and monotonic time.
        answers: states of events and of answers over time, kept with the windows.
        learnt: what is learnt of keys, on the device.
        examples: those that users add; None where there are none (`examples_of`).

    Raises:
        ConfigError: a path cannot be used.
    """

    def __init__(
        self,
        config: AppConfig,
        *,
        loop: Loop,
        metrics: Metrics,
        clock: Clock,
        answers: AnswerStates,
        learnt: LearntOfKeys,
        examples: LearntExamples | None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._metrics = metrics
        self._clock = clock
        self._answers = answers
        self._learnt = learnt
        self._examples = examples
        self._state: StateFile | None = None
        self._barrier = Barrier("control", metrics)
        self._resources = ExitStack()
        self._windows: SavedWindows | None = None
        self.reading_log = self._reading_log()
        """What the pipeline keeps its readings or begun windows with."""
        self.counters = self._counters()
        """Totals of all runs."""

    def open(self, pipeline: Pipeline, publish_status: PublishStatus, *, model_changes: bool) -> None:
        """Open all but the reading log, which `Pipeline.recover` opens, and look for requests from now on.

        Args:
            pipeline: uses what is restored, and does what is asked for.
            publish_status: told of the examples in use.
            model_changes: an update may bring a model with something to learn.

        Raises:
            StoreError: a file is in use, or others could have written it.
        """
        if self.counters is not None:
            self.counters.open()
        path = self._config.state_file
        if path is None:
            return
        from edge_runtime.store.durable.state_file import StateFile  # noqa: PLC0415 - SQLite, only where state is kept

        self._state = StateFile(path)
        self._resources.callback(self._state.close)
        self._state.open(self._loop)
        for name, part in self._learnt._asdict().items():
            if (part.active or model_changes) and not self._config.begins_again:
                self._state.add(name, part.save, part.restore)
        if self._examples is not None:
            self._open_examples(path, self._state, self._examples, pipeline, publish_status)

    def begin_windows(self) -> None:
        """Begin to keep windows: before the first reading, and after all that may keep this start from going on."""
        config = self._config
        if self._windows is not None:
            self._windows.begin()
        elif config.state_file is None and any(part.type != "recording" for part in config.source):
            log.info("windows that have begun are lost at a stop; to keep them, add [reading_log] with a path")

    def close(self) -> None:
        """Write once more what is opened, and close all. May be called twice."""
        self._resources.close()

    # -- windows and counters ------------------------------------------------------------------------------------------

    def _reading_log(self) -> ReadingLog | SavedWindows | None:
        path = self._config.saved_windows
        reading = self._config.reading_log is not None and self._config.durability == "reading"
        if path is None and not reading:
            return None
        from edge_runtime.store.durable.outbox import path_checks  # noqa: PLC0415
        from edge_runtime.store.durable.reading_log import ReadingLog  # noqa: PLC0415 - SQLite, only where state is kept
        from edge_runtime.store.durable.window_state import SavedWindows  # noqa: PLC0415

        config = self._config.reading_log or ReadingLogConfig(path=path or Path())
        path_checks.check(config.path, "outbox.path" if self._config.reading_log is None else "reading_log.path")
        if reading:
            reading_log = ReadingLog(
                config, loop=self._loop, metrics=self._metrics, clock=self._clock, events=self._answers
            )
            self._resources.callback(reading_log.close)
            return reading_log
        self._windows = SavedWindows(
            config.path, config.max_bytes, metrics=self._metrics, clock=self._clock, events=self._answers
        )
        self._resources.callback(self._windows.close)
        return self._windows

    def _counters(self) -> LifetimeCounters | None:
        path = self._config.counters_file
        if path is None:
            return None
        from edge_runtime.store.durable.counters import LifetimeCounters  # noqa: PLC0415 - only where state is kept

        counters = LifetimeCounters(path, self._metrics, self._clock)
        self._resources.callback(counters.close)
        return counters

    # -- what is learnt ------------------------------------------------------------------------------------------------

    def open_epochs(self, pipeline: Pipeline) -> None:
        """Take in the epochs of keys, once windows are recovered and what the outbox knows is claimed."""
        path, state = self._config.state_file, self._state
        if path is None or state is None or self._config.begins_again:
            return
        from edge_runtime.store.durable.kept_epochs import EPOCHS, KeptEpochs  # noqa: PLC0415 - as above

        kept = KeptEpochs(pipeline.epochs, pipeline.given, pipeline.marks)
        kept.begin(path, found=state.add(EPOCHS, kept.save, kept.restore))
        state.write_now()  # from now on epochs that are not there are lost

    def _open_examples(
        self, path: Path, state: StateFile, examples: LearntExamples, pipeline: Pipeline, publish_status: PublishStatus
    ) -> None:
        from edge_runtime.model.serving import example_requests  # noqa: PLC0415 - only where there may be examples

        def use() -> None:
            pipeline.teach()
            publish_status("examples", {"labels": examples.counts()})

        def restore(data: bytes) -> None:
            examples.restore(data)
            use()

        state.add("examples", examples.save, restore, erases=True)

        def changed() -> bool:
            use()
            return state.write_now()

        def look() -> None:
            self._barrier.call(lambda: example_requests.serve(path, examples, changed))

        self._loop.call_every(_LOOK_S, look)  # for requests of `edge-runtime examples`


def examples_of(config: AppConfig, manifest: Manifest, *, model_changes: bool) -> LearntExamples | None:
    """Build what holds the examples of users, where there may be some; an update may bring an embedding later."""
    embeds = isinstance(manifest.output, EmbeddingOutput)
    if config.state_file is None or not (embeds or model_changes):
        return None
    from edge_runtime.model.tasks.learnt_examples import LearntExamples  # noqa: PLC0415 - only where there may be some

    return LearntExamples()
