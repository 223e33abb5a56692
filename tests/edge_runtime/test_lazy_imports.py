"""Importing costs a board time and memory: nothing is loaded that was not asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINES = {"onnxruntime", "ai_edge_litert", "tflite_runtime"}

OBSERVED = (
    "import edge_runtime.app.application, edge_runtime.operate.observe.observation, edge_runtime.operate.observe.config"
)


def loaded_by(statement: str) -> set[str]:
    """Top-level modules, and ours in full, that a statement loads in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    names = done.stdout.split()
    return {name if name.startswith("edge_runtime") else name.split(".")[0] for name in names}


def test_the_package_itself_loads_nothing() -> None:
    assert not loaded_by("import edge_runtime") & {*ENGINES, "paho", "numpy", "orjson", "edge_runtime.app.application"}


@pytest.mark.parametrize("module", ["app.config", "app.application", "model.bundle", "answer.pipeline", "tools.cli"])
def test_no_module_of_ours_loads_an_engine_or_paho(module: str) -> None:
    assert not loaded_by(f"import edge_runtime.{module}") & {*ENGINES, "paho", "torch", "onnx", "edge_export"}


def test_an_application_loads_only_what_it_names() -> None:
    loaded = loaded_by("import edge_runtime.app.application")
    assert not loaded & {
        "sqlite3",
        "edge_runtime.store.durable.outbox",
        "edge_runtime.cloud.client",
        "edge_runtime.io.mqtt.client",
        "edge_runtime.io.sinks.webhook",
        "edge_runtime.io.codecs.cbor",
        "edge_runtime.io.recordings.reader",
    }


def test_an_application_without_an_accelerator_loads_nothing_of_devices_and_no_rarely_needed_library() -> None:
    loaded = loaded_by(
        "import edge_runtime.app.application, edge_runtime.model.engines.onnx, edge_runtime.model.engines.litert"
    )
    # Nearest names are for mistakes; temporary folders, with all compressors, for profiles of old libraries.
    assert not loaded & {"edge_runtime.base.hardware", "difflib", "tempfile", "lzma", "bz2"}


def test_an_application_that_is_looked_into_loads_nothing_of_opentelemetry() -> None:
    loaded = loaded_by(OBSERVED)
    assert not loaded & {"opentelemetry", "google", "edge_devices.integrations.otlp"}


def test_an_application_that_may_be_looked_into_loads_nothing_that_answers_before_the_first_caller() -> None:
    loaded = loaded_by(OBSERVED)
    assert not loaded & {
        "edge_runtime.operate.observe.inspection",
        "edge_runtime.operate.observe.page",
        "edge_runtime.operate.server.server",
        "edge_runtime.operate.serving.connection",
        "edge_runtime.base.hardware",
    }
