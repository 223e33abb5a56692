"""Loading of a variant: the engine, tried in a child process where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Bundle
from edge_runtime.model.bundle.golden import verify_golden
from edge_runtime.model.bundle.together import keep_rows_apart
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.engines.base import Engine, EngineOptions


def load_engine(
    bundle: Bundle,
    variant: str,
    options: EngineOptions | None = None,
    *,
    engine: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    probe_first: bool = True,
) -> Engine:
    """Load a variant, and let it prove itself on the golden vectors.

    Args:
        bundle: an open bundle.
        variant: name of the variant.
        options: how the engine may use the machine.
        engine: name of an engine (see `edge_runtime.model.engines`); None takes the best one installed. ``null``
            answers without the model, so nothing is proven.
        provider_options: accelerators by name with their settings.
        probe_first: load it in a child process before this one does, since a malformed model can kill the process
            that loads it. False for a caller that has just done so.

    Raises:
        IncompatibleError: no such variant, or no engine for it is installed.
        EngineError: the engine, here or in the child, refused the model or died of it.
        BundleError: its answers are not the golden ones.
    """
    chosen = bundle.variant(variant)
    options = options or EngineOptions()
    if engine == "null":
        from edge_runtime.model.engines import null  # noqa: PLC0415 - for tests only

        if bundle.manifest.stages:
            raise EngineError("the null engine stands in for one model, and this bundle has stages; name another one")
        shape = arrange(
            np.zeros((1, len(bundle.manifest.input.channels), bundle.manifest.input.window), "f4"), chosen
        ).shape
        return null.load(null.describe(shape[1:], bundle.manifest.output.shape[0]), options, {})
    name = engine or engine_for(chosen)
    if probe_first:
        from edge_runtime.model.bundle import sandbox  # noqa: PLC0415 - imports this module

        sandbox.probe(bundle, variant, options, engine=name, provider_options=provider_options).require()
    loaded = engines.load(name, bundle.read_variant(variant), options, provider_options)
    try:
        verify_golden(loaded, bundle, variant)
        return keep_rows_apart(loaded, bundle, variant, options.max_batch)
    except BaseException:
        loaded.close()
        raise
