"""What the integration tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.base.system.retry import Retry
from edge_runtime.cloud import escalator as escalate
from edge_runtime.cloud import forwarder, outbox_writer
from edge_runtime.io.mqtt import client as broker_client
from edge_runtime.manifest import GateSpec
from tests.models import tiny_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 16 samples at 50 Hz, 8 apart, 3 channels; a third of the answers is hard; a variant per engine."""
    path = tmp_path_factory.mktemp("bundle") / "watch.edge"
    return tiny_bundle(
        path,
        hop=8,
        name="watch",
        variants=("onnx-fp32", "tflite-int8"),
        gate=GateSpec(threshold=0.6),
        input_contract={"context": 32},
    )


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between attempts that a test can sit out; the code that waits is the same."""

    short = Retry(base_s=0.01, cap_s=0.08)
    monkeypatch.setattr(escalate, "RECONNECT", short)
    for module in (outbox_writer, forwarder):
        monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(broker_client, "RECONNECT", short)
