"""A model on the best that a profile offers, with the processor as the last resort, and every refusal said.

This is for who has a model and a machine. A running pipeline has `edge_runtime.model.serving.failover` besides, which
replaces an accelerator that fails later on; both take the same provider options.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import EngineChoice, Profile
from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model that has answered once.

    Attributes:
        engine: the loaded model.
        choice: how it runs.
        refused: the better choices that did not work, by name, and why.
    """

    engine: Engine
    choice: EngineChoice
    refused: Mapping[str, str]


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


def load_best(
    profile: Profile,
    model: bytes,
    *,
    model_format: str,
    precision: str = "fp32",
    scheme: str = "",
    options: EngineOptions | None = None,
    cache: Path | None = None,
) -> Loaded:
    """Load a model in the best way that works; each one that does not is an error in the log.

    Args:
        profile: the machine's profile.
        model: the bytes of a verified file.
        model_format: ``onnx`` or ``tflite``.
        precision: the manifest's name of the precision.
        scheme: the scheme of an int8 variant.
        options: how the engine may use the machine.
        cache: folder for what accelerators compile.

    Raises:
        EngineError: nothing works; says why for each.
    """
    refused: dict[str, str] = {}
    for choice in choices_for(profile, model_format, precision, scheme):
        try:
            engine = load(choice, model, options or EngineOptions(), cache)
        except EngineError as error:
            refused[choice.name] = str(error)
            if choice.accelerated:
                log.error("%s is not used, the next best is: %s", choice.name, error)  # noqa: TRY400 - one line
            continue
        return Loaded(engine=engine, choice=choice, refused=refused)
    if not refused:
        raise EngineError(f"nothing on this machine reads {model_format} of {precision} {scheme}".rstrip())
    raise EngineError(f"nothing on this machine runs the model ({' | '.join(refused.values())})")


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
