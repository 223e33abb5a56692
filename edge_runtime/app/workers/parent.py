"""Parent process of workers: the supervisor, the status topic and the site, put together."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from edge_runtime.app.config import AppConfig
from edge_runtime.app.workers.child import Child
from edge_runtime.app.workers.status import StatusTopic, facts_of, parts_of
from edge_runtime.app.workers.supervisor import Supervisor
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.sd_notify import SystemdNotifier
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.metrics import Metrics

if TYPE_CHECKING:
    from edge_runtime.app.workers.site import WorkersSite

_SILENT_S: Final = 60.0
"""Longest time without a sign of life of a worker, where the service manager states none."""
_FAREWELL_S: Final = 2.0


def run(
    config: AppConfig,
    command: Callable[[int, Path], Sequence[str]],
    notifier: SystemdNotifier,
    *,
    as_json: bool = False,
    clock: Clock | None = None,
) -> int:
    """Run the workers of an application until a signal comes, and return the exit code.

    Args:
        config: this machine's configuration, checked (`edge_runtime.app.workers.plan.check`).
        command: starts a worker, by its number, with a folder for its socket.
        notifier: the service manager's notifier; closed here.
        as_json: print the figures of all workers at the end, as one JSON object.
        clock: wall and monotonic time.

    Raises:
        EdgeError: an address cannot be listened on, or a file not be read.
    """
    clock = clock or SystemClock()
    metrics = Metrics()
    with ExitStack() as stack:
        stack.callback(notifier.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-runtime-")))
        loop = Loop(clock=clock)
        stack.callback(loop.close)
        status = StatusTopic(config, metrics)

        def changed() -> None:
            status.show(facts_of(children, supervisor.restarts), parts_of(children))
            if site is not None:
                site.changed()

        children = [
            Child(
                worker,
                command(worker, folder),
                folder,
                loop=loop,
                clock=clock,
                watchdog_s=notifier.watchdog_s or _SILENT_S,
                on_change=lambda: supervisor.changed(),  # noqa: PLW0108 - made below
                out=folder / f"worker-{worker}.out" if as_json else None,
            )
            for worker in range(1, config.workers + 1)
        ]
        supervisor = Supervisor(loop, clock, children, notifier, drain_s=config.drain_timeout_s, on_change=changed)
        site = _site(config, children, supervisor, clock=clock, metrics=metrics)
        if site is not None:
            stack.callback(site.close)
        stack.callback(status.close, _FAREWELL_S)
        status.open(loop)
        changed()
        with stopped_by_signals(supervisor.stop):
            code = supervisor.run()
        if as_json:
            sys.stdout.write(f"{orjson.dumps(final_figures(children)).decode()}\n")
    return code


def _site(
    config: AppConfig,
    children: Sequence[Child],
    supervisor: Supervisor,
    *,
    clock: Clock,
    metrics: Metrics,
) -> WorkersSite | None:
    if config.observe is None and config.socket_file is None:
        return None
    from edge_runtime.app.workers.site import WorkersSite  # noqa: PLC0415
    from edge_runtime.operate.observe.config import ObserveConfig  # noqa: PLC0415 - only where it can be looked into

    return WorkersSite(
        config.observe or ObserveConfig(),
        config.socket_file,
        children,
        supervisor.restarts,
        clock=clock,
        metrics=metrics,
        name=config.name,
    )


def final_figures(children: Sequence[Child]) -> dict[str, Any]:
    """Add up what the workers printed at their end; that of one that was killed is missing, and ``null``."""
    each = {str(child.worker): _printed(child.out) for child in children}
    found = [one for one in each.values() if one is not None]

    def total(name: str) -> Mapping[str, int]:
        return {
            key: sum(one[name].get(key, 0) for one in found)
            for key in sorted({key for one in found for key in one[name]})
        }

    return {"counts": total("counts"), "dropped": total("dropped"), "workers": each}


def _printed(path: Path | None) -> dict[str, Any] | None:
    try:
        lines = path.read_bytes().splitlines() if path is not None else []
        return dict(orjson.loads(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None
