"""Starter: chooses the bundle that a start loads, by the state file, and writes it there before loading.

A candidate that takes the process with it can do so `max_failed_starts` times: each start is counted on disk before the
model is touched, and forgotten when the process ends in order, the candidate has answered for an hour, or it proves
healthy. (ESPHome's safe mode and Mender's boot counter work the same way.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ADVICE, BundleError, EdgeError, StoreError, one_line
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.serving.loading import Model, Predictor
from edge_runtime.operate.update.inbox import requests
from edge_runtime.operate.update.keys import KeyChain
from edge_runtime.operate.update.shadow import Steady
from edge_runtime.operate.update.state import Installed, UpdateState, configured, rolled_back, started_again
from edge_runtime.operate.update.update_store import UpdateStore

if TYPE_CHECKING:
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.serving.failover import FallbackChain

log = logging.getLogger(__name__)


class ModelHost(Protocol):
    """The application, as far as loading a model concerns it."""

    def load(self, config: ModelConfig) -> Model:
        """Verify a bundle, try it in a child process, load it: this variant or none. Called on any thread."""
        ...

    def start(self, config: ModelConfig) -> tuple[Model, FallbackChain | None]:
        """Load what ran before, with a fallback chain where configured. Called on any thread."""
        ...

    def fallback_chain_of(self, model: Model) -> FallbackChain | None:
        """Build the fallback chain of a model that was loaded, where the configuration wants one."""
        ...

    def attend(self, fallback_chain: FallbackChain) -> None:
        """Open a fallback chain; once for each but the first one of the application."""
        ...

    def cached(self, predictor: Predictor) -> Predictor:
        """Return a predictor that keeps answers, where the configuration says so."""
        ...

    def serves(self, model: Model, fallback_chain: FallbackChain | None) -> None:
        """Take note of the model that answers now. The caller closes the one before."""
        ...


@dataclass(slots=True)
class Served:
    """A model, and what stands in for it when it fails."""

    model: Model
    fallback_chain: FallbackChain | None = None

    @property
    def predictor(self) -> Predictor:
        """Return the fallback chain where there is one, else the model."""
        return self.fallback_chain or self.model

    @property
    def tried(self) -> Predictor:
        """Return the predictor for a trial: a failure shows, although the chain answers."""
        return self.model if self.fallback_chain is None else Steady(self.fallback_chain)

    def close(self) -> None:
        """Free all of it. May be called twice."""
        if self.fallback_chain is not None:
            self.fallback_chain.close()
        self.model.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Models that a start has loaded."""

    served: Served | None
    """The proven model; None where it could not be loaded beside the candidate."""
    on_trial: Served | None = None
    """The candidate, where there is one on trial."""


class Starter:
    """Loads what the state says, or the next best.

    Args:
        configured: the configuration's own; its bundle is the last resort.
        store: the update folder.
        keys: keys of those whose bundles may run.
        host: loads bundles.
        max_failed_starts: most failed starts of a candidate.
        rehearsal: write nothing, for ``run --check``.
    """

    def __init__(
        self,
        configured: ModelConfig,
        store: UpdateStore,
        keys: KeyChain,
        host: ModelHost,
        max_failed_starts: int,
        *,
        rehearsal: bool,
    ) -> None:
        self._configured = configured
        self._store = store
        self._keys = keys
        self._host = host
        self._max_failed_starts = max_failed_starts
        self._rehearsal = rehearsal

    def start(self) -> Started:
        """Load what is to run.

        Raises:
            EdgeError: nothing can be loaded, not even the configured bundle.
        """
        if self._store.damaged:
            self._rebuild()
        self._prefer_configured()
        self._obey()
        state = self._store.state
        if state.candidate is None or self._rehearsal:
            return Started(served=self.load_running())
        counted = self._count(state)
        if counted and state.phase == "trial" and (on_trial := self._load_candidate(state.candidate)) is not None:
            served = None
            with suppress(EdgeError):
                served = self.load_running()
            return Started(served=served, on_trial=on_trial)
        return Started(served=self.load_running())

    def load_running(self) -> Served:
        """Load what last proved itself, or what ran before it, or the configured bundle.

        Raises:
            EdgeError: not even that one.
        """
        for installed in self._in_order():
            try:
                return self._start(installed)
            except EdgeError as error:
                log.error("update: could not start a bundle, going back: model=%s error=%s", installed.model, error)  # noqa: TRY400
        return Served(*self._host.start(self._config(self._configured.bundle)))

    def load(self, candidate: Installed) -> Served:
        """Load an installed bundle that has to prove itself.

        Raises:
            EdgeError: it is damaged, has expired, or its first choice does not run here.
        """
        model = self._host.load(self._config(self._store.path(candidate.sha256)))
        try:
            _check(model, candidate)
            return Served(model, self._host.fallback_chain_of(model))
        except EdgeError:
            model.close()
            raise

    def _start(self, installed: Installed) -> Served:
        served = Served(*self._host.start(self._config(self._store.path(installed.sha256))))
        try:
            _check(served.model, installed)
        except BundleError:
            served.close()
            raise
        return served

    def _config(self, path: Path) -> ModelConfig:
        return replace(self._configured, bundle=path, trusted_keys=self._keys.files)

    def _in_order(self) -> Iterator[Installed]:
        state = self._store.state
        yield from (one for one in (state.running, state.previous) if one is not None)

    def _count(self, state: UpdateState) -> bool:
        """Count a start of the candidate on disk; False if it must not be started."""
        try:
            if state.starts >= self._max_failed_starts:
                reason = f"{state.starts} starts in a row ended within an hour, and not in order"
                log.error("update: rolled back: %s", self._store.change(lambda now: rolled_back(now, reason)).last)
                return False
            self._store.change(started_again)
        except StoreError as error:
            log.error("update: could not count a start, so the old bundle runs: error=%s", error)  # noqa: TRY400
            return False
        return True

    def _load_candidate(self, candidate: Installed) -> Served | None:
        try:
            return self.load(candidate)
        except EdgeError as raised:
            reason = one_line(raised, ADVICE)
        try:
            log.error("update: rolled back: %s", self._store.change(lambda now: rolled_back(now, reason)).last)
        except StoreError as error:
            log.error("update: could not write that it was rolled back: error=%s", error)  # noqa: TRY400 - one line
        return None

    def _obey(self) -> None:
        """Obey what an operator asked for while nothing ran: also the way out of an installed bundle that kills us."""
        for path, request in [] if self._rehearsal else requests(self._store):
            try:
                log.info("update: obeyed a request: %s", self._store.change(request.obey).last)
                durable_file.remove(path)
            except (StoreError, OSError) as error:
                log.error("update: could not obey a request: action=%s error=%s", request.action, error)  # noqa: TRY400

    def _prefer_configured(self) -> None:
        """Prefer a configured bundle that is newer than the installed one: the operator chose it."""
        state = self._store.state
        if state.running is None or self._rehearsal:
            return
        with suppress(EdgeError):  # one that is broken is no reason not to start the installed one
            with open_bundle(self._configured.bundle, trusted=self._keys.ever) as bundle:
                manifest = bundle.manifest
            if manifest.name != state.running.name or manifest.version > state.running.version:
                log.info("update: chose the configured bundle, which is newer: model=%s", manifest.model)
                self._store.change(lambda now: configured(now, manifest.model))

    def _rebuild(self) -> None:
        """Rebuild a state that was lost: forbid versions older than the installed bundles."""
        highest: dict[str, int] = {}
        for path in sorted(self._store.bundles.glob("*.edge")):
            with suppress(EdgeError), open_bundle(path, trusted=self._keys.ever) as bundle:
                name, version = bundle.manifest.name, bundle.manifest.version
                highest[name] = max(version, highest.get(name, 0))
        with suppress(StoreError):
            self._store.change(
                lambda _: UpdateState(highest=highest, last="the state of updates was lost and recreated")
            )


def _check(model: Model, installed: Installed) -> None:
    if model.bundle.digest != installed.sha256:
        raise BundleError(f"{installed.model}: the file is not the one that was installed")
