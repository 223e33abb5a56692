"""Small int8 models on live sensor streams, with a cloud for the hard cases.

These names are the public API (docs/embedding.md). Each is imported when it is first used: on a board, ``import
edge_runtime`` alone costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from edge_runtime._version import __version__

if TYPE_CHECKING:
    from edge_runtime.app.application import App
    from edge_runtime.app.config import AppConfig, load_config
    from edge_runtime.app.python_api import open_model, replay
    from edge_runtime.base.system.loop import Loop
    from edge_runtime.errors import BundleError, ConfigError, EdgeError
    from edge_runtime.io.sinks import Sink
    from edge_runtime.io.sources import Deliver, Source
    from edge_runtime.metrics import Metrics
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.serving.loading import Model
    from edge_runtime.types import Answer, Correction, Event, FinalAnswer, Prediction, Reading

__all__ = [
    "Answer",
    "App",
    "AppConfig",
    "BundleError",
    "ConfigError",
    "Correction",
    "Deliver",
    "EdgeError",
    "Event",
    "FinalAnswer",
    "Loop",
    "Metrics",
    "Model",
    "ModelConfig",
    "Prediction",
    "Reading",
    "Sink",
    "Source",
    "__version__",
    "load_config",
    "open_model",
    "replay",
]

_HOMES: Final = {
    "app.application": ("App",),
    "app.config": ("AppConfig", "load_config"),
    "app.python_api": ("open_model", "replay"),
    "base.system.loop": ("Loop",),
    "errors": ("BundleError", "ConfigError", "EdgeError"),
    "io.sinks": ("Sink",),
    "io.sources": ("Deliver", "Source"),
    "metrics": ("Metrics",),
    "model.serving.config": ("ModelConfig",),
    "model.serving.loading": ("Model",),
    "types": ("Answer", "Correction", "Event", "FinalAnswer", "Prediction", "Reading"),
}
_HOME: Final = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
