"""Loading what a configuration names, and the answers of what was loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.manifest.surround import Fusion, Surround, SurroundGate
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.signal.windowing.window import Window
from tests.models import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge")


def test_a_bundle_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_model(ModelConfig(bundle=tmp_path / "missing.edge"))


def test_a_variant_that_the_bundle_does_not_have_is_the_users_mistake(bundle: Path) -> None:
    with pytest.raises(ConfigError, match="no variant 'tflite-int4'; it has "):
        load_model(ModelConfig(bundle=bundle, unsigned="allow", variant="tflite-int4"))


@pytest.mark.slow
def test_alone_a_bundle_says_nothing_of_what_surrounds_its_network(tmp_path: Path) -> None:
    surround = Surround(gate=SurroundGate(threshold=0.5), fusion=Fusion(device=0.5, cloud=0.5))
    path = tiny_bundle(tmp_path / "watch.edge", surround=surround)
    for alone, said in ((False, surround), (True, None)):
        model = load_model(ModelConfig(bundle=path, unsigned="allow", alone=alone))
        assert model.manifest.surround == said
        assert model.manifest is model.bundle.manifest
        model.close()


def test_a_model_that_takes_too_long_to_load_is_given_up(bundle: Path) -> None:
    with pytest.raises(EngineError, match=r"0\.01 s"):
        load_model(ModelConfig(bundle=bundle, unsigned="allow", load_timeout_s=0.01))


def test_windows_are_answered_in_the_layout_of_the_variant(bundle: Path) -> None:
    model = load_model(ModelConfig(bundle=bundle, unsigned="allow", max_batch=4))
    rng = np.random.default_rng(0)
    contract = model.manifest.input
    samples = rng.normal(size=(3, contract.window, len(contract.channels))).astype(np.float32)
    windows = [Window("k", i, 0.0, one, one, 0.0) for i, one in enumerate(samples)]
    assert model.max_batch == 4
    together = model.predict(windows).rows.copy()
    assert together.shape == (3, len(model.manifest.output.labels))
    turned = samples.transpose(0, 2, 1) if model.variant.layout == "NCW" else samples
    (expected, *_) = model.engine.run(np.ascontiguousarray(turned))
    np.testing.assert_array_equal(together, expected)
    model.close()
    model.close()
    with pytest.raises(EngineError):
        model.predict(windows)
