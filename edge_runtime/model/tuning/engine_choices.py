"""Choices of engine that a machine's profile offers a model: in order, loaded one by one, and what each lacks.

Data for `edge_runtime.model.serving.choice`, which decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import EngineChoice, Profile
from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions


def choices_for(profile: Profile, model_format: str, precision: str, scheme: str = "") -> Iterator[EngineChoice]:
    """List the ways to run a variant on a machine, best first: engines that read it and take its precision.

    Args:
        profile: the machine's profile.
        model_format: ``onnx`` or ``tflite``.
        precision: the manifest's name of the precision.
        scheme: the scheme of an int8 variant.
    """
    for choice in profile.choices:
        if model_format in engines.find(choice.engine).formats and choice.takes(precision, scheme):
            yield choice


def load(choice: EngineChoice, model: bytes, options: EngineOptions, cache: Path | None = None) -> Engine:
    """Load a model in one way.

    1. A cache that cannot be made, on a read-only disk, is done without: the model is compiled at every start.
    2. It answers once, where its shapes are fixed: some providers load, and fail at the first run.
    3. A refusal says what installs the thing that may be missing, unless the engine has said so.

    Args:
        choice: how.
        model: the bytes of a verified file.
        options: how the engine may use the machine.
        cache: folder for what accelerators compile; see `EngineChoice.options`.

    Raises:
        EngineError: it does not work; the message ends with the line that installs what may be missing.
    """
    if cache is not None and choice.accelerated:  # rule 1
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            cache = None
    engine = None
    try:
        engine = engines.load(choice.engine, model, options, choice.options(cache))
        if all(n > 0 for spec in engine.inputs for n in spec.shape[1:]):  # rule 2
            engine.run(*(np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in engine.inputs))
    except (EngineError, InputError) as error:
        if engine is not None:
            engine.close()
        told = str(error)
        lines = [line for line in (choice.install, choice.driver) if line and line not in told]  # rule 3
        hint = f"; to install: {'; and '.join(lines)}" if lines else ""
        raise EngineError(f"{choice.name}: {told}{hint}") from error
    return engine


def missing(choice: EngineChoice, root: Path = files.ROOT) -> str:
    """Name what this machine's files lack for a choice: the vendor's driver or library; empty if nothing.

    Args:
        choice: how a model would run.
        root: folder of the machine's files.
    """
    if not choice.requires or any(files.entries(root, pattern) for pattern in choice.requires):
        return ""
    names = {pattern.rpartition("/")[2] for pattern in choice.requires}
    wanted = names.pop().rstrip("*") if len(names) == 1 < len(choice.requires) else " or ".join(choice.requires)
    return f"there is no {wanted}"
