"""Load a model where it may die: in a child process, before this one touches it.

A malformed model can end the process that loads or runs it. So a child (`edge_runtime.base.system.subprocess_job`) is
given the verified bytes (it opens no file of the bundle) and told to load the variant and replay the golden vectors.
What became of it is classified here; the parent loads only what the child survived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from edge_runtime.base.system import subprocess_job
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import BundleError, EngineError
from edge_runtime.manifest.stages import state_numbers

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.engines.base import EngineOptions

TIMEOUT_S = 30.0
"""A Raspberry Pi 3 imports an engine in about two seconds; ten times that, and some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Report of a variant that was tried in a child process."""

    variant: str
    outcome: Literal["ok", "refused", "wrong", "died", "hung"]
    """``refused``: the engine would not have it. ``wrong``: its answers are not the golden ones. ``died``: it took the
    process with it. ``hung``: it did not end in time."""
    reason: str = ""
    """One line for people; empty when ok."""
    engine: str = ""
    """Library and version, once the model was loaded."""
    worst: float = 0.0
    """Largest difference from the golden vectors."""
    load_s: float = 0.0
    """Importing the engine and loading the model, in the child."""
    replay_s: float = 0.0
    """Running the golden vectors."""
    total_s: float = 0.0
    """Wall time of the whole probe, as the parent saw it."""

    @property
    def ok(self) -> bool:
        """Return whether the variant may be loaded."""
        return self.outcome == "ok"

    def require(self) -> None:
        """Do nothing if it is ok.

        Raises:
            BundleError: wrong answers.
            EngineError: refused, died or hung.
        """
        if self.outcome == "wrong":
            raise BundleError(self.reason)
        if not self.ok:
            raise EngineError(self.reason)


def probe(
    bundle: Bundle,
    variant: str,
    options: EngineOptions | None = None,
    *,
    engine: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int | None = None,
    clock: Clock | None = None,
) -> ProbeReport:
    """Load a variant in a child process and replay its golden vectors there.

    Args:
        bundle: an open bundle; its bytes are verified again before they are sent.
        variant: name of the variant.
        options: options of the real load.
        engine: name of an engine; None takes the best one installed.
        provider_options: accelerators by name with their settings.
        timeout_s: wall time after which the child is killed.
        memory_bytes: memory that the child may write to; None is `subprocess_job.memory_for` what is sent and the
            states on the processor, and any with accelerators.
        clock: measures `ProbeReport.total_s`.

    Raises:
        BundleError: no such variant, no engine for it, or the bundle changed on disk.
        EngineError: no child process can be started.
    """
    from edge_runtime.model.bundle.variants import engine_for  # noqa: PLC0415 - imports this module
    from edge_runtime.model.engines.base import EngineOptions  # noqa: PLC0415 - numpy, which the child imports under its limits

    clock = clock or SystemClock()
    started = clock.monotonic()
    chosen = bundle.variant(variant)
    inputs, expected = bundle.golden(variant)
    job = {
        "engine": engine or engine_for(chosen),
        "options": asdict(options or EngineOptions()),
        "provider_options": dict(provider_options or {}),
        "variant": asdict(chosen),
        "inputs": inputs.shape,
        "expected": expected.shape,
    }
    model = bundle.read_variant(variant)
    if memory_bytes is None and not provider_options:
        sent = inputs.nbytes + expected.nbytes + len(model)
        memory_bytes = subprocess_job.memory_for(sent, 8 * state_numbers(bundle.manifest.stages))
    try:
        outcome = subprocess_job.ask(
            f"from {__name__} import child; child()",
            job,
            (inputs.tobytes(), expected.tobytes(), model),
            what="loading it",
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
        )
    except EngineError as error:
        if error.how == "raised":  # nothing was tried
            raise
        hint = "; it is not loaded here" if error.how == "died" else ""
        outcome = {"outcome": error.how, "reason": f"{error}{hint}"}
    reason = outcome.get("reason", "")
    if reason and variant not in reason:
        outcome["reason"] = f"variant {variant}: {reason}"
    return ProbeReport(variant=variant, total_s=clock.monotonic() - started, **outcome)


def child() -> NoReturn:
    """Serve as the child process of `probe`."""
    subprocess_job.answer(_attempt)


def _attempt(job: dict[str, Any], data: memoryview) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - under the limits

    from edge_runtime.manifest import Variant  # noqa: PLC0415
    from edge_runtime.model import engines  # noqa: PLC0415
    from edge_runtime.model.bundle.golden import replay  # noqa: PLC0415
    from edge_runtime.model.engines.base import EngineOptions  # noqa: PLC0415

    arrays = []
    place = 0
    for key in ("inputs", "expected"):
        array = np.frombuffer(data, np.float32, int(np.prod(job[key])), place).reshape(job[key])
        place += array.nbytes
        arrays.append(array)
    clock = SystemClock()
    started = clock.monotonic()
    options = EngineOptions(**job["options"])
    engine = engines.load(job["engine"], bytes(data[place:]), options, job["provider_options"])
    loaded = clock.monotonic()
    worst = replay(engine, Variant(**job["variant"]), arrays[0], arrays[1])
    replayed = clock.monotonic()
    name = engine.name
    engine.close()
    return {
        "outcome": "ok", "engine": name, "worst": worst, "load_s": loaded - started, "replay_s": replayed - loaded,
    }  # fmt: skip
