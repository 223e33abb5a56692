"""Construction of a fallback chain: a bundle's backends on this machine, their order, and how each is proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.clock import Clock
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import Bundle, Floats
from edge_runtime.model.bundle.golden import replay, verify_golden
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.bundle.sandbox import probe
from edge_runtime.model.bundle.together import in_calls_of, keep_rows_apart
from edge_runtime.model.bundle.variants import engine_for
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from edge_runtime.model.serving.backend import Backend, BackendState, Loaded
from edge_runtime.model.serving.choice import Way, ways
from edge_runtime.model.serving.failover import ChainCare, FallbackChain
from edge_runtime.model.serving.loading import LoadedVariant, Model, load_model
from edge_runtime.model.serving.states import StateStore

if TYPE_CHECKING:
    from edge_runtime.model.engines.config import Isolate
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.tuning.results import Tuning

_CHECKED: Final = 8
"""Golden vectors that one check replays: a few milliseconds. The next check takes the next ones."""


class ProvenVariant(LoadedVariant):
    """A loaded variant that can be asked for its golden vectors again.

    Args:
        manifest: the bundle's manifest.
        variant: the bundle's variant that `engine` runs.
        engine: the loaded model.
        golden: inputs (n, channels, samples) and expected answers (n, ...).
        max_batch: windows in one call.
        states: see `LoadedVariant`.
    """

    def __init__(
        self,
        manifest: Manifest,
        variant: Variant,
        engine: Engine,
        golden: tuple[Floats, Floats],
        max_batch: int = 32,
        states: StateStore | None = None,
    ) -> None:
        super().__init__(manifest, variant, engine, max_batch, states)
        self._inputs, self._expected = golden
        self._next = 0

    def check(self) -> None:
        """See `edge_runtime.model.serving.backend.Loaded`."""
        at, self._next = self._next, self._next + _CHECKED
        if self._next >= len(self._inputs):
            self._next = 0
        replay(self.engine, self.variant, self._inputs[at : at + _CHECKED], self._expected[at : at + _CHECKED])


def backends_of(
    bundle: Bundle, first: Variant, config: ModelConfig, failed: Mapping[str, str], tuning: Tuning | None = None
) -> list[Backend]:
    """List the backends of a bundle on this machine, in the order of `edge_runtime.model.serving.choice.ways`.

    One that has failed keeps its place: it has to prove itself again before it answers.

    Args:
        bundle: an open bundle.
        first: the variant to answer as long as it can.
        config: accelerators, what may stand in, and what runs in a process of its own.
        failed: reasons by the name of the backend; one that hung in this process's place comes back in its own.
        tuning: what was measured of the bundle on this machine.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    return [_backend(way, config.isolate, failed) for way in ways(bundle, first, config, tuning)]


def _backend(way: Way, isolate: Isolate, failed: Mapping[str, str]) -> Backend:
    variant, accelerators, setting, cost = way
    name = f"{variant.name} on {', '.join(accelerators)}" if accelerators else variant.name
    return Backend(
        name=name,
        variant=variant,
        cost=cost,
        engine=setting.engine if setting else "",
        threads=setting.threads if setting else 0,
        batch=setting.batch if setting else 0,
        accelerators=accelerators,
        apart=isolate == "all"
        or (isolate == "accelerators" and bool(accelerators))
        or failed.get(name, "").startswith("hung"),
    )


def _record_placement(metrics: Metrics, backend: Backend, engine: Engine) -> None:
    """Record what an accelerator took of the model: an engine puts the rest on the CPU unasked."""
    placement = getattr(engine, "placement", None)
    if placement is not None:
        taken = placement.taken(tuple(backend.accelerators))
        metrics.gauges["model_nodes_accelerated"] = float(taken)
        metrics.gauges["model_nodes_on_cpu"] = float(placement.total - taken)


def start(
    config: ModelConfig, *, clock: Clock, metrics: Metrics, handed_over: Mapping[str, Any] | None = None
) -> tuple[Model, FallbackChain]:
    """Load the model that a configuration names, or where that fails, one that may stand in for it.

    Args:
        config: settings of the model: the bundle, and what of it.
        clock: says whether it has expired; monotonic time for the fallback chain.
        metrics: receives what the fallback chain counts.
        handed_over: what `FallbackChain.hand_over` of the process before this one said.

    Raises:
        ConfigError, BundleError, EngineError: as `edge_runtime.model.serving.loading.load_model`.
    """
    handed_over = handed_over or {}
    failed = dict(handed_over.get("failed", {}))
    before = set(failed)
    model = load_model(config, clock, failed)
    new = [name for name in failed if name not in before]
    first = handed_over.get("first") or next(iter(new), model.variant.name)
    try:
        return model, build_fallback_chain(model, config, clock=clock, metrics=metrics, first=first, failed=failed)
    except BaseException:
        model.close()
        raise


def build_fallback_chain(
    model: Model,
    config: ModelConfig,
    *,
    clock: Clock,
    metrics: Metrics,
    first: str = "",
    failed: Mapping[str, str] | None = None,
) -> FallbackChain:
    """Build a fallback chain around a model that is loaded already.

    Args:
        model: loaded on the CPU; stays the owner of the bundle, and is closed after the fallback chain.
        config: what may stand in for it, and how long it may take.
        clock: monotonic time.
        metrics: receives what the fallback chain counts, and the gauges ``model_nodes_accelerated`` and
            ``model_nodes_on_cpu`` of a backend on accelerators, where the engine can say.
        first: variant to answer as long as it can; empty is the model's.
        failed: reasons by the name of the backend.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    bundle, failed = model.bundle, failed or {}

    def load(backend: Backend) -> Loaded:
        name, accelerators, engine = (
            backend.variant.name,
            backend.accelerators,
            backend.engine or engine_for(backend.variant),
        )
        options = EngineOptions(threads=backend.threads or config.threads, max_batch=config.max_batch)
        probe(
            bundle, name, options, engine=engine, provider_options=accelerators, timeout_s=config.load_timeout_s
        ).require()
        if not backend.apart:
            loaded = load_engine(bundle, name, options, engine=engine, provider_options=accelerators, probe_first=False)
            _record_placement(metrics, backend, loaded)
            return proven(backend.variant, in_calls_of(loaded, backend.batch))
        worker = WorkerEngine(
            engine,
            bundle.read_variant(name),
            options,
            accelerators,
            deadline_s=config.deadline_ms / 1e3,
            load_timeout_s=config.load_timeout_s,
        )
        try:
            verify_golden(worker, bundle, name)
            apart = keep_rows_apart(worker, bundle, name, config.max_batch)
        except BaseException:
            worker.close()
            raise
        _record_placement(metrics, backend, worker)
        return proven(backend.variant, in_calls_of(apart, backend.batch))

    def proven(variant: Variant, engine: Engine) -> ProvenVariant:
        golden = bundle.golden(variant.name)
        return ProvenVariant(bundle.manifest, variant, engine, golden, config.max_batch, model.states)

    backends = backends_of(bundle, bundle.variant(first or model.variant.name), config, failed, model.tuning)
    states = [BackendState(backend, failure_reason=failed.get(backend.name, "")) for backend in backends]
    here = next(state for state in states if state.backend.name == model.variant.name)
    if here.backend.apart:
        model.engine.close()  # a process of its own takes its place
    else:
        here.loaded = proven(model.variant, model.engine)
    return FallbackChain(
        bundle.manifest,
        states,
        load,
        clock=clock,
        metrics=metrics,
        max_batch=config.max_batch,
        states=model.states,
        care=ChainCare(check_interval_s=config.check_interval_s),
    )
