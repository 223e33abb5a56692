"""A bundle behind the protocol: whole windows always, shorter ones where the manifest says how they are filled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.errors import CloudRejected
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.operate.server.bundle_model import INPUT, served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.signal.windowing.batch import fill_first
from tests.models import tiny_bundle


@pytest.mark.parametrize("fill", ["", "first"])
def test_short_windows_are_filled_by_the_rule_of_the_manifest_or_refused(tmp_path: Path, fill: str) -> None:
    """From the outside: our own client, over HTTP. Mutation that this finds: filling at the wrong end."""
    bundle = tiny_bundle(tmp_path / "t.edge", name="t", variants=("onnx-fp32",), input_contract={"fill": fill})
    model = load_model(ModelConfig(bundle=bundle, unsigned="allow", failover="off"))
    contract = model.manifest.input
    rng = np.random.default_rng(3)
    whole = rng.normal(size=(2, len(contract.channels), contract.window)).astype(np.float32)
    short = whole[:, :, -5:].copy()
    with (
        Server({"t": served_model(model, 8)}, ServeConfig(port=0)) as server,
        connect(CloudConfig(url=server.url, model="t")) as client,
    ):
        (spec,) = client.metadata().inputs
        assert spec.shape == (-1, len(contract.channels), -1 if fill else contract.window)

        def ask(windows: np.ndarray) -> np.ndarray:
            return client.infer({INPUT: windows}, request_id="1")["probabilities"]

        assert ask(whole).shape == (2, len(model.manifest.output.labels))
        if fill:
            np.testing.assert_array_equal(ask(short), ask(fill_first(short, contract.window)))
            assert not np.array_equal(ask(short), ask(whole))
        else:
            with pytest.raises(CloudRejected, match="takes"):
                ask(short)
        for samples in (0, contract.window + 1):
            with pytest.raises(CloudRejected):
                ask(np.zeros((1, len(contract.channels), samples), np.float32))
        assert ask(whole).shape == (2, len(model.manifest.output.labels)), "it goes on after refusals"
    model.close()


def test_filling_repeats_the_first_sample_in_front_and_leaves_whole_windows_alone() -> None:
    samples = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert fill_first(samples, 4).tolist() == [[1.0, 1.0, 1.0, 2.0], [3.0, 3.0, 3.0, 4.0]]
    assert fill_first(samples, 2) is samples
