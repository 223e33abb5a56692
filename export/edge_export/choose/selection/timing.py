"""Timing of candidates, and their answers, on the device's own engines.

The timing is that of a device (`edge_runtime.model.tuning.timing`): children try each candidate before anything else in
this process touches it, so one that kills its process costs only itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import spread
from edge_export.metrics import REFERENCE
from edge_export.package.pack import VariantSource
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.tuning.timing import Measurement, TimedModel, TimingPlan, measure

Floats = npt.NDArray[np.float32]

WINDOWS = 64
"""Windows that a candidate is timed on, in turn."""


def measure_candidates(
    candidates: Sequence[VariantSource],
    windows: Floats,
    *,
    reference: str = REFERENCE,
    threads: Sequence[int] | None = None,
    plan: TimingPlan | None = None,
    chosen_engines: Mapping[str, str] | None = None,
) -> Measurement:
    """Time every candidate on this machine, in turns, whatever machine it is meant for.

    Args:
        candidates: candidates of different names.
        windows: (n, channels, samples); up to 64 of them are used.
        reference: name of the candidate that the others are compared with.
        threads: numbers of threads; None takes one, and all cores where there are more.
        plan: how long.
        chosen_engines: name of the engine by candidate; the best one installed for those not named.

    Raises:
        ConfigError: no reference among the candidates, a name twice, or no windows.
        EngineError: the reference cannot run here.
        IncompatibleError: no engine for a candidate is installed here.
    """
    names = [candidate.name for candidate in candidates]
    if reference not in names:
        raise ConfigError(f"'{reference}' must be among the candidates, as the one to compare with: {', '.join(names)}")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two candidates are called {repeated[0]}")
    if not len(windows):
        raise ConfigError("candidates need windows to be timed on")
    few = windows[spread(len(windows), WINDOWS)]
    jobs = [
        TimedModel(
            name=candidate.name,
            engine=(chosen_engines or {}).get(candidate.name) or engine_for(candidate),
            model=candidate.model,
            inputs=(arrange(few, candidate),),
        )
        for candidate in candidates
    ]
    return measure(jobs, reference=reference, threads=threads, plan=plan)


def answers(candidate: VariantSource, windows: Floats, *, engine: str | None = None, batch: int = 32) -> Floats:
    """Ask a candidate on the device's own engine.

    Args:
        candidate: a model file.
        windows: (n, channels, samples).
        engine: name of an engine; None takes the best one installed.
        batch: windows in a call.

    Returns:
        (n, classes) probabilities.

    Raises:
        EngineError: the engine refuses the model or its windows.
        IncompatibleError: no engine for it is installed here.
    """
    loaded = engines.load(engine or engine_for(candidate), candidate.model, EngineOptions(max_batch=batch))
    try:
        parts = [
            np.array(loaded.run(arrange(windows[i : i + batch], candidate))[0], np.float32)
            for i in range(0, len(windows), batch)
        ]
    except InputError as error:
        raise EngineError(f"{candidate.name} does not take these windows: {error}") from error
    finally:
        loaded.close()
    if not parts:
        raise ConfigError(f"no windows to ask {candidate.name} about")
    return np.concatenate(parts)
