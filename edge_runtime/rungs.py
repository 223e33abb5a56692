"""The rungs of a bundle: which there are on this machine, in which order, and how one is proven and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.bundle import Bundle, Floats, load_engine, refusals, replay
from edge_runtime.clock import Clock
from edge_runtime.engine import Engine, EngineOptions
from edge_runtime.errors import ConfigError
from edge_runtime.lineup import Lineup, Loaded, Rung
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model import LoadedVariant, Model
from edge_runtime.probe import probe

if TYPE_CHECKING:
    from edge_runtime.config import ModelConfig

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
        """See `edge_runtime.lineup.Loaded`."""
        at, self._next = self._next, self._next + _CHECKED
        if self._next >= len(self._inputs):
            self._next = 0
        replay(self.engine, self.variant, self._inputs[at : at + _CHECKED], self._expected[at : at + _CHECKED])


def rungs_of(
    bundle: Bundle,
    first: Variant,
    *,
    fallbacks: Sequence[str] = (),
    accelerators: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Rung]:
    """The line-up of a bundle on this machine.

    The first variant on the accelerators, if there are any, then on the CPU; then the others that run here. Of those,
    the ones that cost no more than the first come in the manifest's order of preference, the rest by cost: an answer
    that is late is better than none.

    Args:
        bundle: an open bundle.
        first: the variant to answer as long as it can.
        fallbacks: names of the variants that may stand in for it, in this order; empty takes all that run here.
        accelerators: execution providers or delegates by name, with their options, for the first variant.

    Raises:
        ConfigError: the bundle has no variant of such a name.
    """
    variants = {variant.name: variant for variant in bundle.manifest.variants}
    for name in fallbacks:
        if name not in variants:
            raise ConfigError(f"fallbacks: {bundle.path.name} has no variant '{name}'; it has {', '.join(variants)}")
    cost = _costs(bundle.manifest)
    if fallbacks:
        others = [variants[name] for name in dict.fromkeys(fallbacks) if name != first.name]
    else:
        others = [variant for variant in variants.values() if variant.name != first.name and not refusals(variant)]
        others.sort(key=lambda variant: max(cost[variant.name], cost[first.name]))
    rungs = [Rung(name=variant.name, variant=variant, cost=cost[variant.name]) for variant in (first, *others)]
    if accelerators:
        name = f"{first.name} on {', '.join(accelerators)}"
        rungs.insert(0, Rung(name=name, variant=first, cost=cost[first.name], accelerators=accelerators))
    return rungs


def _costs(manifest: Manifest) -> dict[str, float]:
    """Measured latency where every variant has one, else the size of the file."""
    if all("latency_us" in variant.cost for variant in manifest.variants):
        return {variant.name: variant.cost["latency_us"] for variant in manifest.variants}
    return {variant.name: float(variant.size) for variant in manifest.variants}


def lineup_of(model: Model, config: ModelConfig, *, clock: Clock, metrics: Metrics) -> Lineup:
    """A line-up that begins with a model that is loaded already.

    Args:
        model: loaded on the CPU; stays the owner of the bundle, and is closed after the line-up.
        config: what may stand in for it.
        clock: monotonic time.
        metrics: receives what the line-up counts.

    Raises:
        ConfigError: the bundle has no variant of a name that `config` gives.
    """
    bundle = model.bundle
    options = EngineOptions(threads=config.threads, max_batch=config.max_batch)

    def load(rung: Rung) -> Loaded:
        name, accelerators = rung.variant.name, rung.accelerators
        probe(bundle, name, options, provider_options=accelerators, timeout_s=config.load_timeout_s).require()
        engine = load_engine(bundle, name, options, provider_options=accelerators, probe_first=False)
        return proven(rung.variant, engine)

    def proven(variant: Variant, engine: Engine) -> ProvenVariant:
        return ProvenVariant(bundle.manifest, variant, engine, bundle.golden(variant.name), config.max_batch)

    rungs = rungs_of(bundle, model.variant, fallbacks=config.fallbacks, accelerators=config.accelerators)
    on_cpu = next(i for i, rung in enumerate(rungs) if not rung.accelerators)
    return Lineup(
        bundle.manifest,
        rungs,
        load,
        clock=clock,
        metrics=metrics,
        loaded={on_cpu: proven(model.variant, model.engine)},
        max_batch=config.max_batch,
        check_interval_s=config.check_interval_s,
    )
