"""What the tests of updates share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_runtime.model.bundle.sandbox import ProbeReport
from edge_runtime.model.serving import loading as model
from tests.edge_runtime.operate.update.devices import Factory


@pytest.fixture(scope="session")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Factory:
    return Factory(tmp_path_factory.mktemp("factory"))


@pytest.fixture
def folder(factory: Factory, tmp_path: Path) -> Path:
    """A fresh device that runs ``watch/1``."""
    return factory.device(tmp_path / "device")


@pytest.fixture(autouse=True)
def unprobed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No child process tries a model first: that costs a second each time. `proven` in a test's arguments: one does."""
    if "proven" not in request.fixturenames:

        def probe(_bundle: Any, variant: str, *_: Any, **__: Any) -> ProbeReport:
            return ProbeReport(variant=variant, outcome="ok")

        monkeypatch.setattr(model, "probe", probe)


@pytest.fixture
def proven() -> None:
    """See `unprobed`."""
