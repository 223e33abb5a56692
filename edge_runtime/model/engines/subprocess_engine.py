"""An engine in a process of its own, so that it may hang or die: what a driver does to its process cannot be undone.

The process is given the verified bytes of the model over a socket, loads it, and answers batch after batch. When a call
is not back in time the process is killed; when the process ends, the caller hears of it at once. Either way it gets an
`EngineError` that says how, and still has its windows. A call costs a round trip more than in this process
(docs/decisions/0010-failover.md has figures).
"""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from edge_runtime.base.system import subprocess_job
from edge_runtime.base.system.subprocess_worker import Service, Worker, serve
from edge_runtime.errors import EngineError
from edge_runtime.model.engines.base import Array, Engine, EngineOptions, TensorSpec
from edge_runtime.model.engines.tensors import Inputs

if TYPE_CHECKING:
    from edge_runtime.model.engines.providers import Placement

_ARRAY: Final = struct.Struct("<4sB6q")
"""Element type as numpy writes it, number of axes, and up to six sizes."""


class WorkerEngine:
    """An engine that runs in a child process; see `edge_runtime.model.engines.base.Engine`.

    Args:
        engine: name in `edge_runtime.model.engines`.
        model: the bytes of a verified file.
        options: how it may use the machine.
        provider_options: accelerators by name with their settings.
        deadline_s: how long a call may take.
        load_timeout_s: how long loading may take.
        memory_bytes: memory that the process may write to (`subprocess_job.memory_for`); None is any.

    Raises:
        EngineError: no process can be started, or the engine refuses the model, or hangs or dies while it loads it.
    """

    def __init__(
        self,
        engine: str,
        model: bytes,
        options: EngineOptions,
        provider_options: Mapping[str, Any] | None = None,
        *,
        deadline_s: float,
        load_timeout_s: float,
        memory_bytes: int | None = None,
    ) -> None:
        self._worker = Worker(f"from {__name__} import child; child")
        job = {
            "engine": engine,
            "options": asdict(options),
            "provider_options": dict(provider_options or {}),
            "deadline_s": deadline_s,
            "load_timeout_s": load_timeout_s,
            "memory_bytes": memory_bytes,
        }
        head = json.dumps(job).encode()
        parts = [struct.pack("<I", len(head)), head, model]
        about = json.loads(bytes(self._worker.begin(parts, "loading the model", load_timeout_s)))
        self.name = f"{about['name']}, in a process of its own"
        self.inputs: tuple[TensorSpec, ...] = tuple(map(_spec, about["inputs"]))
        self.outputs: tuple[TensorSpec, ...] = tuple(map(_spec, about["outputs"]))
        self.placement = _placement(about.get("placement"))
        """See `edge_runtime.model.engines.onnx.OnnxEngine.placement`."""
        self._check = Inputs(self.inputs).check
        self._deadline_s = deadline_s

    @property
    def pid(self) -> int:
        """Of the process; 0 when there is none any more."""
        return self._worker.pid

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        if not self._worker.pid:
            raise EngineError("this engine is closed; load the model again")
        return _unpack(self._worker.ask(_pack(self._check(arrays)), "an answer", self._deadline_s))

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        self._worker.close()


def _spec(plain: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(plain["name"], np.dtype(plain["dtype"]), tuple(plain["shape"]))


def _placement(plain: Mapping[str, Any] | None) -> Placement | None:
    if plain is None:
        return None
    from edge_runtime.model.engines.providers import Placement  # noqa: PLC0415 - where there is an accelerator

    return Placement(nodes=dict(plain["nodes"]), on_cpu=tuple(plain["on_cpu"]))


def _pack(arrays: Sequence[Array]) -> list[Any]:
    parts: list[Any] = []
    for array in arrays:
        shape = array.shape
        parts.append(_ARRAY.pack(array.dtype.str.encode(), len(shape), *shape, *(0,) * (6 - len(shape))))
        parts.append(array.tobytes())
    return parts


def _unpack(message: memoryview) -> tuple[Array, ...]:
    arrays = []
    at = 0
    while at < len(message):
        dtype, axes, *sizes = _ARRAY.unpack_from(message, at)
        at += _ARRAY.size
        shape = sizes[:axes]
        count = 1
        for size in shape:
            count *= size
        array = np.frombuffer(message, dtype.rstrip(b"\0").decode(), count, at).reshape(shape)
        at += array.nbytes
        arrays.append(array)
    return tuple(arrays)


# -- the other side ----------------------------------------------------------------------------------------------------


def child(fd: int) -> NoReturn:
    """Load what the parent sends, and answer its calls."""
    serve(fd, _load)


def _load(body: bytes) -> Service:
    from edge_runtime.model import engines  # noqa: PLC0415 - the parent has its own

    (size,) = struct.unpack_from("<I", body)
    job = json.loads(body[4 : 4 + size])
    subprocess_job.limit_memory(job["memory_bytes"])
    signal.setitimer(signal.ITIMER_REAL, 2 * job["load_timeout_s"] + 1)
    engine = engines.load(job["engine"], body[4 + size :], EngineOptions(**job["options"]), job["provider_options"])
    signal.setitimer(signal.ITIMER_REAL, 0)
    about = json.dumps(_about(engine)).encode()
    return Service([about], lambda call: _pack(engine.run(*_unpack(memoryview(call)))), job["deadline_s"])


def _about(engine: Engine) -> dict[str, Any]:
    def plain(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": spec.name, "dtype": spec.dtype.str, "shape": spec.shape} for spec in specs]

    placement = getattr(engine, "placement", None)
    return {
        "name": engine.name,
        "inputs": plain(engine.inputs),
        "outputs": plain(engine.outputs),
        "placement": None if placement is None else asdict(placement),
    }
