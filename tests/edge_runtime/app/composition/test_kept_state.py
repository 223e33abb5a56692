"""Small files beside the reading log: none is made before the application runs, and each is closed with it."""

from __future__ import annotations

from pathlib import Path

from edge_runtime.app.application import App
from edge_runtime.app.composition.kept_state import examples_of
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from tests.edge_runtime.manifests import manifest
from tests.models import tiny_bundle

APP = """
[model]
bundle = "watch.edge"
unsigned = "allow"
failover = "off"
[reading_log]
path = "log.db"
"""


class Ended:
    """A source that has nothing to give."""

    name = "ended"
    finished = True

    def open(self, loop: Loop, deliver: Deliver) -> None: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_building_makes_no_file_and_running_makes_those_beside_the_reading_log(tmp_path: Path) -> None:
    tiny_bundle(tmp_path / "watch.edge")
    for runs in (False, True):
        app = App(parse(APP, tmp_path / "app.toml"), sources=[Ended()], sinks=[MemorySink()])
        assert files(tmp_path) == {"watch.edge"}
        if runs:
            assert app.run()
        app.close()
    assert {"log.db", "log.counters"} <= files(tmp_path)


def test_only_an_embedding_or_an_update_that_may_bring_one_has_examples(tmp_path: Path) -> None:
    kept = parse(APP, tmp_path / "app.toml")
    assert examples_of(kept, manifest(), model_changes=False) is None
    assert examples_of(kept, manifest(), model_changes=True) is not None
    nowhere = parse(APP.partition("[reading_log]")[0], tmp_path / "app.toml")
    assert examples_of(nowhere, manifest(), model_changes=True) is None
