"""The host of models knows which one answers, and tells who asked to be told."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from edge_runtime.clock import SystemClock
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.host import Host
from tests.models import tiny_bundle


def test_the_model_that_answers_is_the_one_last_served(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "watch.edge")
    config = ModelConfig(bundle=bundle, unsigned="allow", failover="off")
    host = Host(config, 10, metrics=Metrics(), clock=SystemClock())
    changed = Mock()
    host.on_change(changed)
    first, chain = host.start(config)
    with first:
        assert chain is None
        host.serves(first, None)
        assert host.predictor is first
        assert host.named() == {"variant": first.variant.name, "engine": first.engine.name}
        stand_in = Mock(**{"status.return_value": {"variants": 2}})
        opened = Mock()
        host.open(opened, changed)
        host.serves(first, stand_in)
        host.attend(stand_in)
        assert host.predictor is stand_in
        assert host.named()["variants"] == 2
        stand_in.open.assert_called_once_with(opened, changed)
    assert [one.args for one in changed.call_args_list] == [(first, None), (first, stand_in)]
