"""A chain as one run of bytes, which `edge_runtime.model.engines.load` takes as it takes a model file.

Layout: `MAGIC`, the length of the head as uint32 (little endian), the head as JSON, the model files one after another.
The head holds stages, answer and window as in the manifest, and for each model stage its file's format, size, tensor
names and batch. It is written and read in one process or passed to a child of it, never kept.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import orjson

from edge_runtime import schema
from edge_runtime.errors import EngineError
from edge_runtime.manifest import InputContract, ModelStage, Stage, Variant
from edge_runtime.model import engines
from edge_runtime.model.chain.engine import ChainEngine, LoadedStage
from edge_runtime.model.engines import CHAIN_MAGIC
from edge_runtime.model.engines.base import EngineOptions

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """A model file of a chain."""

    stage: str
    format: str
    tensors: dict[str, str]
    together: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    stages: tuple[Stage, ...]
    answer: tuple[str, ...]
    window: tuple[int, int]
    hop: int
    models: tuple[ModelPart, ...]


def join(
    stages: Sequence[Stage],
    answer: Sequence[str],
    window: tuple[int, int],
    models: Sequence[tuple[ModelPart, bytes]],
    hop: int = 0,
) -> bytes:
    """Join stages and model files.

    Args:
        stages: the manifest's stages.
        answer: the manifest's tracks of the answer.
        window: samples and channels.
        models: part and file of each model stage, in order.
        hop: samples from one window to the next; 0: those of a window.
    """
    parts = tuple(part for part, _ in models)
    head = _Head(stages=tuple(stages), answer=tuple(answer), window=window, hop=hop, models=parts)
    text = orjson.dumps(dataclasses.asdict(head))
    return b"".join([CHAIN_MAGIC, _LENGTH.pack(len(text)), text, *(data for _, data in models)])


def join_variant(
    stages: Sequence[Stage],
    answer: Sequence[str],
    contract: InputContract,
    variant: Variant,
    files: Sequence[bytes],
) -> bytes:
    """Join the chain of a variant.

    Args:
        stages: the manifest's stages.
        answer: the manifest's tracks of the answer.
        contract: the manifest's contract.
        variant: says what its files are.
        files: contents of `Variant.models`.
    """
    names = [stage.name for stage in stages if isinstance(stage, ModelStage)]
    parts = [
        (ModelPart(stage=stage, format=model.format, tensors=model.tensors, together=model.batch, size=len(data)), data)
        for stage, model, data in zip(names, variant.models, files, strict=True)
    ]
    return join(stages, answer, (contract.window, len(contract.channels)), parts, contract.hop)


def load(name: str, data: bytes, options: EngineOptions, provider_options: Mapping[str, Any]) -> ChainEngine:
    """Load what `join` made.

    Args:
        name: engine of the files whose format it reads; the others get the best one installed.
        data: the bytes.
        options: options of each engine.
        provider_options: accelerators for the files that `name` reads.

    Raises:
        EngineError: an engine refuses a file, is missing, or the stages do not fit.
    """
    at = len(CHAIN_MAGIC) + _LENGTH.size
    (size,) = _LENGTH.unpack_from(data, len(CHAIN_MAGIC))
    head = schema.load(_Head, orjson.loads(data[at : at + size]))
    at += size
    models: dict[str, LoadedStage] = {}
    with ExitStack() as on_failure:
        for part in head.models:
            own = part.format in engines.find(name).formats
            engine = engines.load(
                name if own else _best(part.format),
                data[at : at + part.size],
                options,
                provider_options if own else None,
            )
            on_failure.callback(engine.close)
            models[part.stage] = LoadedStage(engine, part.tensors, part.together)
            at += part.size
        chain = ChainEngine(head.stages, head.answer, head.window, models, head.hop)
        on_failure.pop_all()
    return chain


def _best(model_format: str) -> str:
    installed = engines.available(model_format)
    if not installed:
        wanted = engines.engines_for(model_format)[0]
        raise EngineError(f"no engine for {model_format} is installed; run: {wanted.install}")
    return installed[0].name
