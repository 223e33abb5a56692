"""A whole application whose bundle has device and cloud answer together, and the switch that turns it off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.app.python_api import open_model
from edge_runtime.manifest.surround import Fusion, Surround, SurroundGate
from edge_runtime.model.tasks.answers import FusedCorrection
from edge_runtime.model.tasks.fusion import fuse
from edge_runtime.operate.server.bundle_model import served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.types import Correction, Prediction
from tests.edge_runtime.app.task_apps import APP, CLOUD, Fed, N, Until
from tests.models import tiny_bundle
from tests.task_bundles import CHANNELS, RATE_HZ, WINDOW

FUSION = Fusion(device=0.7, cloud=0.6)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A cloud of the same contract, whose answers are another network's."""
    other = tiny_bundle(tmp_path / "cloud.edge", channels=CHANNELS, window=WINDOW, rate_hz=RATE_HZ, seed=5)
    with (
        open_model(other) as model,
        Server({"linear": served_model(model, 8)}, ServeConfig(port=0, drain_s=0.5)) as server,
    ):
        yield server.url


def corrected(folder: Path, url: str, *, alone: bool) -> list[tuple[Prediction, Correction]]:
    surround = Surround(gate=SurroundGate(threshold=1.1), fusion=FUSION)
    tiny_bundle(folder / "task.edge", channels=CHANNELS, window=WINDOW, rate_hz=RATE_HZ, surround=surround)
    sink = Until(Correction, N)
    settings = APP.replace("[gate]", f"alone = {str(alone).lower()}\n[gate]") + CLOUD.format(url=url)
    app = App(parse(settings, folder / "app.toml"), sources=[Fed()], sinks=[sink])
    sink.app = app
    assert app.run()
    said = {one.id: one for one in sink.of(Prediction)}
    return [(said[one.id], one) for one in sink.of(Correction)]


@pytest.mark.slow
def test_both_answers_count_and_alone_the_cloud_replaces_what_the_device_said(tmp_path: Path, url: str) -> None:
    (tmp_path / "alone").mkdir()
    replaced = {answer.id: answer for _, answer in corrected(tmp_path / "alone", url, alone=True)}
    (tmp_path / "both").mkdir()
    pairs = corrected(tmp_path / "both", url, alone=False)
    assert len(pairs) == len(replaced) == N
    assert {type(one) for one in replaced.values()} == {Correction}
    for mine, fused in pairs:
        theirs = replaced[mine.id]
        assert isinstance(fused, FusedCorrection)
        assert (fused.cloud_label, fused.cloud_confidence) == (theirs.label, theirs.confidence)
        assert fused.upheld == (theirs.label == mine.label)
        rows = (np.array([one.scores], np.float32) for one in (mine, theirs))
        assert fused.scores == pytest.approx(fuse(FUSION, *rows)[0].tolist(), abs=1e-6)
        assert fused.confidence == max(fused.scores)
