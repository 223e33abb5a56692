"""Processes of a Ray cluster that answer groups of recordings: an actor pool of Ray Data (extra ``[ray]``).

Every machine of the cluster needs edge-runtime with the engine of the bundle, and sees bundle and recordings under the
same paths. Answers come back to the machine that asked, which writes the same files as without a cluster.

Ray Data gives each free actor the next group, starts another for one that died, and gives its group to another:
https://docs.ray.io/en/latest/data/data.html
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.batch.answering import Answerer, NotWritten
from edge_runtime.tools.batch.job import Group, GroupFigures, Job
from edge_runtime.tools.batch.workers import GroupDone

LOCAL: Final = "local"
"""Address of a cluster that is started here, and ends with this process."""

_CONNECT_S: Final = 10.0


class RayWorkers:
    """Answers groups on a cluster; a context manager, so that the cluster is left.

    Args:
        job: what is done with the groups.
        address: ``HOST:PORT``, ``auto`` for the cluster that this machine is part of, or ``local``.
        stopped: asked whether to stop, whenever a group is done.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
    """

    def __init__(self, job: Job, address: str, *, stopped: Callable[[], bool]) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # unless a person wants them
        try:
            import ray  # noqa: PLC0415 - 200 MB that only clusters need
            import ray.data  # noqa: PLC0415
        except ImportError:
            raise ConfigError('--ray needs Ray: pip install "edge-runtime[ray]"') from None
        self._ray: Any = ray
        self._job = job
        self._stopped = stopped
        alone: dict[str, Any] = (
            {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address == LOCAL else {}
        )
        _require_answer(address)
        try:
            ray.init(address, log_to_driver=False, logging_level="error", **alone)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"--ray {address}: no cluster there: {' '.join(str(error).split())[:300]}") from None

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ray.shutdown()

    def answer(self, tasks: Sequence[tuple[Group, Path]]) -> Iterator[GroupDone]:
        """See `edge_runtime.tools.batch.batch.Pool`."""
        if not tasks:
            return
        data = self._ray.data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False  # ours is drawn
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        rows = [
            {"number": group.number, "files": [[str(path), key] for path, key in group.files]} for group, _ in tasks
        ]
        answered = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            _Actor,
            fn_constructor_args=(self._job,),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
            compute=data.ActorPoolStrategy(min_size=1, max_size=min(cores, len(rows))),
        )
        by_number = {group.number: (group, out) for group, out in tasks}
        try:
            for row in answered.iter_rows():
                group, out = by_number[row["number"]]
                figures = GroupFigures.from_json(row["figures"])
                _write(out, row["lines"])
                yield GroupDone(group, figures)
                if self._stopped():
                    return
        except self._ray.exceptions.RayError as error:
            raise EdgeError(f"the cluster could not answer: {' '.join(str(error).split())[-300:]}") from None


def _require_answer(address: str) -> None:
    """Connect once: Ray itself tries for many minutes.

    Raises:
        ConfigError: there is no answer.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # `auto`, `local`
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--ray {address}: no cluster there: {error}") from None


def _write(out: Path, lines: bytes) -> None:
    try:
        durable_file.write(out, lines)  # before it counts as done
    except OSError as error:
        raise NotWritten.because(out.parent, error) from None


class _Actor:
    """A process of the cluster, with a model of its own."""

    def __init__(self, job: Job) -> None:
        self._answerer = Answerer(job)

    def __call__(self, batch: Any) -> Mapping[str, Any]:
        """Answer one group: a row with its number and files."""
        import pyarrow as pa  # noqa: PLC0415 - Ray's own

        (row,) = batch.to_pylist()
        group = Group(row["number"], tuple((Path(path), key) for path, key in row["files"]))
        with tempfile.TemporaryDirectory(prefix="edge-runtime-") as folder:
            out = Path(folder) / "lines"
            figures = self._answerer.answer(group, out)
            lines = out.read_bytes()
        table: Mapping[str, Any] = pa.table(
            {
                "number": pa.array([group.number], pa.int64()),
                "figures": pa.array([figures.to_json()], pa.large_binary()),
                "lines": pa.array([lines], pa.large_binary()),
            }
        )
        return table
