"""The main job, end to end, on real recordings: what ``edge-runtime demo`` does.

Started here, each in a process of its own: the embedded broker (unless one is named), the watches that play the
recordings, and the server with the large model. The application itself is the one that ``app.toml`` of the demo's
folder describes; only the addresses and the state folder are replaced.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from edge_runtime.app import config as configuration
from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError, ConnectionFailed
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.variants import arrange
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import Model, load_model
from edge_runtime.operate.observe.config import ObserveConfig
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.store.durable.outbox import Outbox
from edge_runtime.tools.demo.schedule import PAUSE_S, ExerciseSet, ScheduledSet, Truth, load_recordings, plan
from edge_runtime.tools.demo.tally import DemoTally
from edge_runtime.tools.demo.view import View

WATCHES = 8
SETTLE_S = 60.0
"""How long the last corrections may take after the last reading."""
VIEW_S, LINE_S = 0.2, 5.0
_PLAYED = "played-until"
"""File in the folder of state: last stamp that was played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Settings of a demo."""

    folder: Path
    """With ``app.toml``, ``watch.edge``, ``teacher.edge`` and ``recordings.npz``."""
    broker: str = ""
    """URL of a running broker; empty starts the embedded one."""
    speed: float = 5.0
    """Times real time."""
    outage: tuple[float, float] = (0.0, 0.0)
    """Stop the cloud's server this many seconds after the start, for that long."""
    state: Path
    """Folder for the outbox and the predictions; what an earlier run left there is taken up."""
    listen: str = ""
    """Address of the page and the metrics, ``127.0.0.1:9464``; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Figures of the demo's table."""

    people: list[int]
    windows: int
    network_accuracy: float
    device_accuracy: float
    cloud_accuracy: float
    teacher_accuracy: float
    hard: int
    forwarded: int
    corrected: int
    accepted: int
    delivered: int
    queued: int
    dropped: int
    dead: int
    balances: bool
    cloud_bytes: int
    sensor_bytes: int
    p50_ms: float
    p99_ms: float
    correction_p50_ms: float
    correction_p99_ms: float
    device_bundle_bytes: int
    device_model_bytes: int
    teacher_bundle_bytes: int
    variant: str
    engine: str
    seconds: float
    stopped: bool
    """By a signal, before everything was played: what is queued then waits for the next run."""

    @property
    def complete(self) -> bool:
        """The books balance and, unless it was stopped, every promised correction came."""
        return self.balances and (self.stopped or (self.corrected == self.forwarded and self.queued == 0))


def run(demo: Demo, out: TextIO = sys.stdout) -> _Outcome:
    """Run the demo and return its figures.

    Raises:
        EdgeError: something is missing or does not start; says what.
    """
    clock = SystemClock()
    began = clock.monotonic()
    recordings = load_recordings(demo.folder / "recordings.npz")
    config = _configured(demo)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminated_as_interrupted())
        url = demo.broker or stack.enter_context(_broker(out))
        cloud = stack.enter_context(_Server(demo.folder / "teacher.edge"))
        model = load_model(config.model)
        rate = model.manifest.input.rate_hz
        base = first_stamp(demo.state, clock.wall())
        turns = plan(recordings, WATCHES, base, rate)
        (demo.state / _PLAYED).write_text(f"{max(turn.end for turn in turns):.0f}\n", "utf-8")
        tally, metrics = DemoTally(Truth(turns)), Metrics()
        app = App(_addressed(config, url, cloud.url), metrics=metrics, clock=clock, model=model, sinks=[tally])
        view = View(tally, metrics, Truth(turns).watches, out=out)
        _say(
            out,
            f"{len(recordings)} recordings of people {_people(recordings)}, on {WATCHES} watches at once, "
            f"{demo.speed:g} times real time; no model was trained on these people",
        )
        player = stack.enter_context(_player(demo, url, base, rate))
        conductor = _Conductor(app, tally, view, player, cloud, turns, demo)
        if (observation := app.observation) is not None and demo.listen:
            app.loop.call_soon(lambda: _say(out, f"look at {observation.link}"))
        app.loop.call_soon(conductor.tick)
        with stopped_by_signals(conductor.stop):
            app.run()
        conductor.finish()
        return _outcome(app, tally, recordings, demo, conductor, clock.monotonic() - began)


def first_stamp(state: Path, wall: float) -> float:
    """Return the stamp at which the watches begin: now, or behind what an earlier run has played into this folder.

    Played faster than recorded, stamps run ahead of the clock; the next run would look like watches whose clocks went
    back. Whole seconds, so that the same recording has its windows at the same places in every run.
    """
    try:
        return float(math.ceil(max(wall, float((state / _PLAYED).read_text("utf-8")) + PAUSE_S)))
    except (OSError, ValueError):
        return float(int(wall))


class _Conductor:
    """Looks at everything a few times a second, on the application's own loop: draws, and stops at the end."""

    def __init__(
        self,
        app: App,
        tally: DemoTally,
        view: View,
        player: subprocess.Popen[str],
        cloud: _Server,
        turns: list[ScheduledSet],
        demo: Demo,
    ) -> None:
        self._app = app
        self._tally = tally
        self._view = view
        self._player = player
        self._cloud = cloud
        self._demo = demo
        self._seconds = (max(turn.end for turn in turns) - min(turn.start for turn in turns)) / demo.speed
        self._began = app.clock.monotonic()
        self._played_at: float | None = None
        self._drawn_at = -LINE_S
        self.counts = app.outbox.counts() if app.outbox is not None else None
        self.stopped = False

    def tick(self) -> None:
        """Look once, and come back."""
        now = self._app.clock.monotonic() - self._began
        if self._app.outbox is not None:
            self.counts = self._app.outbox.counts()
        begin, length = self._demo.outage
        self._cloud.should_be(up=not (length and begin <= now < begin + length))
        if self._played_at is None and self._player.poll() is not None:
            self._played_at = now
        if now - self._drawn_at >= (VIEW_S if self._view.live else LINE_S):
            self._drawn_at = now
            self._draw(now)
        if self._played_at is not None and (self._all_answered() or now - self._played_at > SETTLE_S):
            self._app.stop()
        else:
            self._app.loop.call_later(0.1, self.tick)

    def stop(self) -> None:
        """Stop before the end. Safe from a signal handler."""
        self.stopped = True
        self._app.stop()

    def finish(self) -> None:
        """Draw the last state, with what draining has still brought."""
        if self._app.config.outbox is not None:
            with Outbox(self._app.config.outbox, self._app.clock) as outbox:
                self.counts = outbox.counts()
        self._draw(self._app.clock.monotonic() - self._began)
        if self._player.poll() not in (0, None):
            raise ConnectionFailed("the watches could not play their recordings; is the broker reachable?")

    def _draw(self, now: float) -> None:
        queued = self.counts.queued if self.counts is not None else 0
        self._view.draw(min(1.0, now / self._seconds), queued, cloud_up=self._cloud.up)

    def _all_answered(self) -> bool:
        empty = self.counts is None or self.counts.queued == 0
        return empty and self._app.pipeline.idle and self._tally.corrected >= self._tally.provisional


# -- the processes around the application ----------------------------------------------------------------------------


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: dying of it at once would leave the other processes behind."""
    interrupt = signal.getsignal(signal.SIGINT)
    # In the background of a script SIGINT is ignored, which is no reason to ignore SIGTERM.
    before = signal.signal(signal.SIGTERM, interrupt if callable(interrupt) else signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _spawn(*arguments: str, quiet: bool = True) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own modules, by our own interpreter
        [sys.executable, "-m", "edge_runtime.tools.demo.child", str(os.getpid()), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # Ctrl-C is for the application, which then ends the others
    )


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _first_url(process: subprocess.Popen[str], what: str) -> str:
    """Find the URL in the first line that a process prints once it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    for word in line.split():
        if "://" in word:
            return word
    raise ConnectionFailed(f"{what} did not start; run the demo with -v, or see `edge-runtime doctor`")


@contextlib.contextmanager
def _broker(out: TextIO) -> Iterator[str]:
    with _ended(_spawn("edge_runtime.tools.demo.broker.broker", "--port", "0")) as process:
        url = _first_url(process, "the embedded broker")
        _say(out, f"embedded broker on {url} (for demo and tests; a real one: BROKER=mqtt://host:1883 make demo)")
        yield url


class _Server:
    """The cloud: ``edge-runtime serve`` with the large model, on one port through stops and starts."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._port = 0
        self._stack = contextlib.ExitStack()
        self.up = False
        self.url = ""

    def __enter__(self) -> _Server:
        self.should_be(up=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def should_be(self, *, up: bool) -> None:
        """Start or stop it, if it is not so already."""
        if up == self.up:
            return
        if not up:
            self._stack.close()
        else:
            arguments = ("edge_runtime", "serve", str(self._bundle), "--allow-unsigned", "--port", str(self._port))
            process = self._stack.enter_context(_ended(_spawn(*arguments)))
            if not self.url:
                self.url = _first_url(process, "the server")
                self._port = int(self.url.rsplit(":", 1)[1])
        self.up = up


@contextlib.contextmanager
def _player(demo: Demo, url: str, base: float, rate_hz: float) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--url", url, "--watches", str(WATCHES), "--base", str(base), "--speed", str(demo.speed)]
    process = _spawn(
        "edge_runtime.tools.demo.play", str(demo.folder / "recordings.npz"), *arguments, "--rate", str(rate_hz)
    )
    with _ended(process):
        yield process


# -- figures ---------------------------------------------------------------------------------------------------------


def _configured(demo: Demo) -> AppConfig:
    """Put what was asked for into the demo's own configuration, before anything starts."""
    config = configuration.load_config(demo.folder / "app.toml")
    if config.cloud is None or config.outbox is None:
        raise ConfigError("the demo's app.toml has no [cloud] or no [outbox]")
    try:
        demo.state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise ConfigError(f"demo: --state {demo.state}: cannot be made: {why}; name another folder") from None
    try:
        return replace(
            _at(config, demo.broker) if demo.broker else config,
            outbox=replace(config.outbox, path=demo.state / config.outbox.path.name),
            observe=ObserveConfig(listen=demo.listen),
        )
    except ValueError as error:
        raise ConfigError(f"demo: {error}") from None


def _at(config: AppConfig, broker: str) -> AppConfig:
    return replace(config, broker={name: replace(one, url=broker) for name, one in config.broker.items()})


def _addressed(config: AppConfig, broker: str, cloud: str) -> AppConfig:
    """Put the addresses of this run in."""
    assert config.cloud is not None
    return replace(_at(config, broker), cloud=replace(config.cloud, url=cloud))


def _people(recordings: list[ExerciseSet]) -> str:
    return " and ".join(map(str, sorted({recording.person for recording in recordings})))


def _say(out: TextIO, text: str) -> None:
    out.write(text + "\n")
    out.flush()


def accuracy_of(bundle: Path, contract: InputContract, recordings: list[ExerciseSet]) -> float:
    """Compute a model's accuracy on every window of the device, each answered alone.

    Args:
        bundle: the device's own, or the teacher's, which sees more of each window's history.
        contract: the contract of the device's windows.
        recordings: recordings with a label each.
    """
    with load_model(ModelConfig(bundle=bundle, unsigned="allow")) as model:
        return _accuracy(model, contract, recordings)


def _accuracy(model: Model, contract: InputContract, recordings: list[ExerciseSet]) -> float:
    task, seen = model.task(), model.manifest.input.window
    right = total = 0
    for i, recording in enumerate(recordings):
        windows = cut_recording(contract, str(i), 0.0, recording.values)
        if not windows:
            continue
        tensors = np.stack([with_context(window, contract.history)[:, -seen:] for window in windows])
        (answers, *_) = model.engine.run(arrange(tensors, model.variant))
        found = task.read_reply(task.offer(answers), len(windows), "probabilities")
        right += sum(one.label == recording.label for one in found)
        total += len(windows)
    return right / max(1, total)


def _outcome(
    app: App, tally: DemoTally, recordings: list[ExerciseSet], demo: Demo, conductor: _Conductor, seconds: float
) -> _Outcome:
    counts = conductor.counts
    if counts is None:
        raise ConfigError("the demo's app.toml has no [cloud] or no [outbox]")
    alone, teacher = (
        accuracy_of(demo.folder / name, app.model.manifest.input, recordings) for name in ("watch.edge", "teacher.edge")
    )
    total, cloud = app.metrics.stages["total"], app.metrics.stages["cloud"]
    return _Outcome(
        people=sorted({recording.person for recording in recordings}),
        windows=len(tally.windows),
        network_accuracy=alone,
        device_accuracy=tally.accuracy(with_cloud=False),
        cloud_accuracy=tally.accuracy(with_cloud=True),
        teacher_accuracy=teacher,
        hard=app.metrics.counts["hard_total"],
        forwarded=tally.provisional,
        corrected=tally.corrected,
        accepted=counts.accepted,
        delivered=counts.delivered,
        queued=counts.queued,
        dropped=sum(counts.dropped.values()),
        dead=counts.dead,
        balances=counts.balances(),
        cloud_bytes=app.metrics.counts["cloud_bytes_total"],
        sensor_bytes=app.metrics.counts["message_bytes_total"],
        p50_ms=total.quantile(0.5) * 1e3,
        p99_ms=total.quantile(0.99) * 1e3,
        correction_p50_ms=cloud.quantile(0.5) * 1e3,
        correction_p99_ms=cloud.quantile(0.99) * 1e3,
        device_bundle_bytes=(demo.folder / "watch.edge").stat().st_size,
        device_model_bytes=app.model.variant.size,
        teacher_bundle_bytes=(demo.folder / "teacher.edge").stat().st_size,
        variant=app.model.variant.name,
        engine=app.model.engine.name,
        seconds=seconds,
        stopped=conductor.stopped,
    )


def table(o: _Outcome) -> str:
    """Render the figures for people."""
    rows = [
        ("people in the recordings", f"{', '.join(map(str, o.people))} (not among those trained on)"),
        ("windows", f"{o.windows}"),
        ("accuracy, each window alone", f"{o.network_accuracy:.1%}"),
        ("accuracy, device over time", f"{o.device_accuracy:.1%}"),
        ("accuracy, with the cloud", f"{o.cloud_accuracy:.1%}"),
        ("accuracy, teacher alone", f"{o.teacher_accuracy:.1%}"),
        ("forwarded to the cloud", f"{o.forwarded} of {o.windows} windows ({o.forwarded / max(1, o.windows):.1%})"),
        ("corrections received", f"{o.corrected} of {o.forwarded}"),
        ("bytes sent to the cloud", f"{o.cloud_bytes:,} of tensors, for {o.sensor_bytes:,} of sensor messages"),
        ("latency of an answer", f"p50 {o.p50_ms:.2f} ms, p99 {o.p99_ms:.2f} ms"),
        ("latency of a correction", f"p50 {o.correction_p50_ms:.0f} ms, p99 {o.correction_p99_ms:.0f} ms"),
        ("model on the device", f"{o.device_model_bytes:,} bytes ({o.variant} on {o.engine})"),
        ("bundle and teacher", f"{o.device_bundle_bytes:,} and {o.teacher_bundle_bytes:,} bytes"),
        (
            "hard cases, all runs",
            f"{o.accepted} accepted = {o.delivered} delivered + {o.queued} queued + {o.dropped} dropped + {o.dead} dead"
            + (" (balances)" if o.balances else " (DOES NOT BALANCE)"),
        ),
        ("time", f"{o.seconds:.0f} s" + (", stopped before the end" if o.stopped else "")),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)
