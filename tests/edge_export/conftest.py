"""Recordings that several tests build from, and models that are tried in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from edge_export.package import child
from edge_export.package.card import original

from edge_runtime.base.system.subprocess_job import memory_for
from edge_runtime.errors import ADVICE, ConfigError, one_line
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions
from tests.edge_export.waves import write_waves


@pytest.fixture(scope="session")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of `write_waves`."""
    folder = tmp_path_factory.mktemp("waves")
    write_waves(folder)
    return folder


@pytest.fixture
def models_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are packed without the child processes that try them: five a pack, half a second of CPU each.

    For tests of what is packed. package/card/test_bad_input.py and test_original.py are of the children.
    """

    def load(name: str, model: bytes, options: EngineOptions, **_: object) -> Engine:
        return engines.load(name, model, options)

    def ask(_: str, job: dict[str, Any], data: Sequence[bytes], **__: object) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = original._attempt(job, memoryview(b"".join(data)))
        except (ConfigError, MemoryError, ValueError, TypeError) as error:
            return {"reason": one_line(error, ADVICE)}
        return answer

    monkeypatch.setattr(child, "WorkerEngine", load)
    monkeypatch.setattr(original, "subprocess_job", SimpleNamespace(ask=ask, memory_for=memory_for))
