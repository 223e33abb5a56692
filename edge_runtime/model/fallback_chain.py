"""The rungs of a bundle: which there are on this machine, in which order, and how one is proven and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.bundle.bundle import Bundle, Floats
from edge_runtime.bundle.golden import replay, verify_golden
from edge_runtime.bundle.load import load_engine
from edge_runtime.bundle.sandbox import probe
from edge_runtime.bundle.variants import engine_for, refusals
from edge_runtime.clock import Clock
from edge_runtime.engines.base import Engine, EngineOptions
from edge_runtime.engines.subprocess_engine import WorkerEngine
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.accelerator_choice import automatic
from edge_runtime.model.failover import Lineup, Loaded, Rung
from edge_runtime.model.loading import LoadedVariant, Model, load_model

if TYPE_CHECKING:
    from edge_runtime.model.config import ModelConfig
    from edge_runtime.tuning.results import Setting, Tuning

_CHECKED: Final = 8
"""Golden vectors that one check replays: a few milliseconds. The next check takes the next ones."""


class ProvenVariant(LoadedVariant):
    """A loaded variant that can be asked for its golden vectors again.

    Args:
        manifest: of the bundle.
        variant: which file of it.
        engine: the loaded model.
        golden: inputs (n, channels, samples) and expected probabilities (n, labels).
        max_batch: windows in one call.
    """

    def __init__(
        self, manifest: Manifest, variant: Variant, engine: Engine, golden: tuple[Floats, Floats], max_batch: int = 32
    ) -> None:
        super().__init__(manifest, variant, engine, max_batch)
        self._inputs, self._expected = golden
        self._next = 0

    def check(self) -> None:
        """See `edge_runtime.model.failover.Loaded`."""
        at, self._next = self._next, self._next + _CHECKED
        if self._next >= len(self._inputs):
            self._next = 0
        replay(self.engine, self.variant, self._inputs[at : at + _CHECKED], self._expected[at : at + _CHECKED])


def rungs_of(
    bundle: Bundle, first: Variant, config: ModelConfig, failed: Mapping[str, str], tuning: Tuning | None = None
) -> list[Rung]:
    """The line-up of a bundle on this machine.

    The accelerators that are configured with the first variant, or the one that has won here with the variant that it
    won with (`edge_runtime.model.accelerator_choice`); then the first variant on the CPU; then the others that run
    here, in the order that this machine's own figures give. What failed when they were taken comes last, and not never:
    it has to prove itself again before it answers, and an answer that is late is better than none. Where nothing was
    measured, the ones that cost no more than the first come in the manifest's order of preference, the rest by cost.

    Args:
        bundle: an open bundle.
        first: the variant to answer as long as it can.
        config: accelerators, what may stand in, and what runs in a process of its own.
        failed: reasons by the name of the rung; one that hung in this process's place comes back in its own.
        tuning: what was measured of the bundle on this machine.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    variants = {variant.name: variant for variant in bundle.manifest.variants}
    for name in config.fallbacks:
        if name not in variants:
            raise ConfigError(f"fallbacks: {bundle.path.name} has no variant '{name}'; it has {', '.join(variants)}")
    settings = tuning.settings(config.threads) if tuning else {}
    cost = _costs(bundle.manifest, tuning, config.threads)
    if config.fallbacks:
        others = [variants[name] for name in dict.fromkeys(config.fallbacks) if name != first.name]
    else:
        places = {name: place for place, name in enumerate(settings)}
        others = [variant for variant in variants.values() if variant.name != first.name and not refusals(variant)]
        others.sort(key=lambda one: (places.get(one.name, len(places)), max(cost[one.name], cost[first.name])))

    def rung(variant: Variant, accelerators: Mapping[str, Mapping[str, Any]], setting: Setting | None) -> Rung:
        name = f"{variant.name} on {', '.join(accelerators)}" if accelerators else variant.name
        apart = config.isolate == "all" or (config.isolate == "accelerators" and bool(accelerators))
        return Rung(
            name=name,
            variant=variant,
            cost=cost[variant.name],
            engine=setting.engine if setting else "",
            threads=setting.threads if setting else 0,
            accelerators=accelerators,
            apart=apart or failed.get(name, "").startswith("hung"),
        )

    accelerated = [rung(first, config.accelerators, None)] if config.accelerators else []
    if (won := automatic(bundle, tuning, config)) is not None:
        accelerated = [rung(won.variant, won.providers, won.setting)]
    return [*accelerated, *(rung(variant, {}, settings.get(variant.name)) for variant in (first, *others))]


def _costs(manifest: Manifest, tuning: Tuning | None, threads: int) -> dict[str, float]:
    """What a window costs on the processor, by variant: also for a rung on an accelerator, whose draw nobody measures.

    Processor time where this machine has measured it, which is what warms a board, and infinite for what it could not
    measure. Else the latency that the manifest states for every variant, else the size of the file.
    """
    if tuning is not None:
        measured = {one.variant: one.cpu_us for one in tuning.ranked(threads)}
        return {variant.name: measured.get(variant.name, math.inf) for variant in manifest.variants}
    if all("latency_us" in variant.cost for variant in manifest.variants):
        return {variant.name: variant.cost["latency_us"] for variant in manifest.variants}
    return {variant.name: float(variant.size) for variant in manifest.variants}


def _tell_placement(metrics: Metrics, rung: Rung, engine: Engine) -> None:
    """What an accelerator took of the model: an engine puts the rest on the CPU by itself."""
    placement = getattr(engine, "placement", None)
    if placement is not None:
        taken = placement.taken(tuple(rung.accelerators))
        metrics.gauges["model_nodes_accelerated"] = float(taken)
        metrics.gauges["model_nodes_on_cpu"] = float(placement.total - taken)


def start(
    config: ModelConfig, *, clock: Clock, metrics: Metrics, handed_over: Mapping[str, Any] | None = None
) -> tuple[Model, Lineup]:
    """Load what a configuration names; where that fails, what may stand in for it.

    Args:
        config: which bundle, and what of it.
        clock: says whether it has expired; monotonic time for the line-up.
        metrics: receives what the line-up counts.
        handed_over: what `Lineup.hand_over` of the process before this one said.

    Raises:
        ConfigError, BundleError, EngineError: as `edge_runtime.model.loading.load_model`.
    """
    handed_over = handed_over or {}
    failed = dict(handed_over.get("failed", {}))
    before = set(failed)
    model = load_model(config, clock, failed)
    new = [name for name in failed if name not in before]
    first = handed_over.get("first") or next(iter(new), model.variant.name)
    try:
        return model, lineup_of(model, config, clock=clock, metrics=metrics, first=first, failed=failed)
    except BaseException:
        model.close()
        raise


def lineup_of(
    model: Model,
    config: ModelConfig,
    *,
    clock: Clock,
    metrics: Metrics,
    first: str = "",
    failed: Mapping[str, str] | None = None,
) -> Lineup:
    """A line-up around a model that is loaded already.

    Args:
        model: loaded on the CPU; stays the owner of the bundle, and is closed after the line-up.
        config: what may stand in for it, and how long it may take.
        clock: monotonic time.
        metrics: receives what the line-up counts, and the gauges ``model_nodes_accelerated`` and ``model_nodes_on_cpu``
            of a rung on accelerators, where the engine can say.
        first: variant to answer as long as it can; empty is the model's.
        failed: reasons by the name of the rung.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    bundle, failed = model.bundle, failed or {}

    def load(rung: Rung) -> Loaded:
        name, accelerators, engine = rung.variant.name, rung.accelerators, rung.engine or engine_for(rung.variant)
        options = EngineOptions(threads=rung.threads or config.threads, max_batch=config.max_batch)
        probe(
            bundle, name, options, engine=engine, provider_options=accelerators, timeout_s=config.load_timeout_s
        ).require()
        if not rung.apart:
            loaded = load_engine(bundle, name, options, engine=engine, provider_options=accelerators, probe_first=False)
            _tell_placement(metrics, rung, loaded)
            return proven(rung.variant, loaded)
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
        except BaseException:
            worker.close()
            raise
        _tell_placement(metrics, rung, worker)
        return proven(rung.variant, worker)

    def proven(variant: Variant, engine: Engine) -> ProvenVariant:
        return ProvenVariant(bundle.manifest, variant, engine, bundle.golden(variant.name), config.max_batch)

    rungs = rungs_of(bundle, bundle.variant(first or model.variant.name), config, failed, model.tuning)
    names = [rung.name for rung in rungs]
    here = names.index(model.variant.name)
    if rungs[here].apart:
        model.engine.close()  # a process of its own takes its place
    return Lineup(
        bundle.manifest,
        rungs,
        load,
        clock=clock,
        metrics=metrics,
        loaded={} if rungs[here].apart else {here: proven(model.variant, model.engine)},
        failed={names.index(name): reason for name, reason in failed.items() if name in names},
        max_batch=config.max_batch,
        check_interval_s=config.check_interval_s,
    )
