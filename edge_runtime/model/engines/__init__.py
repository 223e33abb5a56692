"""Registry of engines: their names, whether they can be imported here, and how to load one.

One file per engine. None imports its library before a model is loaded, and asking what is available imports nothing
either.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge_runtime.errors import EngineError
from edge_runtime.model.engines.base import Engine, EngineFactory, EngineOptions


@dataclass(frozen=True, slots=True)
class EngineKind:
    """One engine that this package knows how to drive."""

    name: str
    formats: tuple[str, ...]
    """Model file formats it reads; empty for the null engine, which is only ever asked for by name."""
    package: str
    """Import name of the library it needs, empty for none."""
    install: str
    """Command that installs the library."""
    factory: str
    """``module:function`` of an `EngineFactory`."""

    def importable(self) -> bool:
        """Return whether the library is installed; looks for it without importing it."""
        return not self.package or importlib.util.find_spec(self.package) is not None


ENGINES: tuple[EngineKind, ...] = (
    EngineKind("onnxruntime", ("onnx",), "onnxruntime", 'pip install "edge-runtime[onnx]"',
               "edge_runtime.model.engines.onnx:load"),
    EngineKind("litert", ("tflite",), "ai_edge_litert", 'pip install "edge-runtime[tflite]"',
               "edge_runtime.model.engines.litert:load_litert"),
    EngineKind("tflite-runtime", ("tflite",), "tflite_runtime", 'pip install "edge-runtime[tflite-runtime]"',
               "edge_runtime.model.engines.litert:load_tflite_runtime"),
    EngineKind("null", (), "", "", "edge_runtime.model.engines.null:load"),
)  # fmt: skip
"""In the order in which they are tried for a format: LiteRT before the retired package whose place it took."""

CHAIN_MAGIC = b"EDGE\0chain\0\1"
"""First bytes of a chain: stages and the files of their models (`edge_runtime.model.chain.load`)."""
_CHAIN = "edge_runtime.model.chain.load"


def engines_for(model_format: str) -> tuple[EngineKind, ...]:
    """Engines that read this format, best first, installed or not."""
    return tuple(kind for kind in ENGINES if model_format in kind.formats)


def available(model_format: str) -> tuple[EngineKind, ...]:
    """Engines that read this format and can be imported here, best first."""
    return tuple(kind for kind in engines_for(model_format) if kind.importable())


def find(name: str) -> EngineKind:
    """Find the engine of this name.

    Raises:
        EngineError: no engine is called so.
    """
    for kind in ENGINES:
        if kind.name == name:
            return kind
    raise EngineError(f"no engine is called '{name}'; known: {', '.join(kind.name for kind in ENGINES)}")


def load(
    name: str,
    model: bytes,
    options: EngineOptions,
    provider_options: Mapping[str, Any] | None = None,
) -> Engine:
    """Load a model into the engine of this name.

    Args:
        name: one of `ENGINES`.
        model: the bytes of a verified model file, or of a chain of some.
        options: how it may use the machine.
        provider_options: accelerators by name with their settings, in order of preference; see the engine's module.

    Raises:
        EngineError: unknown or missing engine (the message has the line that installs it), or a model it refuses.
    """
    kind = find(name)
    if not kind.importable():
        raise EngineError(f"the engine {kind.name} is not installed; run: {kind.install}")
    if model.startswith(CHAIN_MAGIC):
        chain: Engine = importlib.import_module(_CHAIN).load(name, model, options, provider_options or {})
        return chain
    module, _, function = kind.factory.partition(":")
    factory: EngineFactory = getattr(importlib.import_module(module), function)
    return factory(model, options, provider_options or {})
