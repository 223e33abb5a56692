"""Host: the model that answers in an application, what stands in for it, and how others are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving import fallback_chain as fallback_chains
from edge_runtime.model.serving.cache import CachedModel
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.model.serving.loading import Model, Predictor, load_model


class Host:
    """Owner of the choice which model answers; fits `edge_runtime.operate.update.boot.ModelHost`.

    Args:
        config: how models are loaded, and whether a fallback chain stands behind them.
        max_keys: keys whose states are held at a time.
        metrics: receives what models and fallback chains count.
        clock: wall and monotonic time.
        handed_over: what the process before this one said when it was replaced.
    """

    def __init__(
        self,
        config: ModelConfig,
        max_keys: int,
        *,
        metrics: Metrics,
        clock: Clock,
        handed_over: Mapping[str, object] | None = None,
    ) -> None:
        self._config = config
        self._max_keys = max_keys
        self._metrics = metrics
        self._clock = clock
        self._handed_over = handed_over
        self._open: Callable[[FallbackChain], None] | None = None
        self._watchers: list[Callable[[Model, FallbackChain | None], None]] = []
        self.model: Model
        """The one that answers. There is none before `serves` is called."""
        self.fallback_chain: FallbackChain | None = None

    @property
    def predictor(self) -> Predictor:
        """Return the fallback chain where there is one, else the model."""
        return self.fallback_chain or self.model

    def cached(self, predictor: Predictor) -> Predictor:
        """Return a predictor that keeps answers, where the configuration says so and the model has no states.

        Raises:
            ConfigError: its bundle does not state what `ModelConfig.cache_distance` is a share of.
        """
        windows = self._config.cache_windows
        if not windows or predictor.states is not None:
            return predictor
        return CachedModel(predictor, windows, self._config.cache_distance, self._metrics)

    def open(self, loop: Loop, publish_status: Callable[[Mapping[str, object]], None]) -> None:
        """Open the fallback chain of the model that answers first, and those of others as they come.

        Args:
            loop: the application's loop.
            publish_status: told what answers now.
        """
        self._open = lambda chain: chain.open(loop, publish_status)
        if self.fallback_chain is not None:
            self.attend(self.fallback_chain)

    def on_change(self, callback: Callable[[Model, FallbackChain | None], None]) -> None:
        """Have a function told of each model that answers from now on, and of its fallback chain."""
        self._watchers.append(callback)

    def adopt(self, model: Model) -> tuple[Model, FallbackChain | None]:
        """Take a model that was loaded elsewhere, as `start` would have loaded it."""
        return model, self.fallback_chain_of(self._bounded(model))

    def named(self) -> dict[str, Any]:
        """Name what answers; an update may bring another model."""
        chain = self.fallback_chain
        named = {"variant": self.model.variant.name, "engine": self.model.engine.name}
        return named if chain is None else named | chain.status()

    # -- models that come and go (`edge_runtime.operate.update.boot.ModelHost`) ----------------------------------------

    def load(self, config: ModelConfig) -> Model:
        """Verify a bundle, try it in a child process, load it: this variant or none."""
        return self._bounded(load_model(config, self._clock))

    def start(self, config: ModelConfig) -> tuple[Model, FallbackChain | None]:
        """Load as `load` does, with a fallback chain where failover is on."""
        if config.failover == "off":
            return self.load(config), None
        model, chain = fallback_chains.start(
            config, clock=self._clock, metrics=self._metrics, handed_over=self._handed_over
        )
        try:
            return self._bounded(model), chain
        except BaseException:
            chain.close()
            raise

    def fallback_chain_of(self, model: Model) -> FallbackChain | None:
        """Build the fallback chain of a model that was loaded; None where failover is off."""
        if self._config.failover == "off":
            return None
        return fallback_chains.build_fallback_chain(model, self._config, clock=self._clock, metrics=self._metrics)

    def attend(self, fallback_chain: FallbackChain) -> None:
        """Open a fallback chain that came later."""
        if self._open is not None:
            self._open(fallback_chain)

    def serves(self, model: Model, fallback_chain: FallbackChain | None) -> None:
        """Note the model that answers now."""
        self.model, self.fallback_chain = model, fallback_chain
        for callback in self._watchers:
            callback(model, fallback_chain)

    def _bounded(self, model: Model) -> Model:
        """Bound the states of keys, where it has some; a model that breaks the bounds is closed."""
        try:
            if model.states is not None:
                model.states.bound(self._max_keys, self._metrics, self._config.max_state_mb * 2**20)
        except BaseException:
            model.close()
            raise
        return model
