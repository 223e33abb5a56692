"""Epochs over a restart: never newer than what is safe, and not at all where the file is lost or damaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import StoreError
from edge_runtime.signal.windowing.epochs import NEVER, Epochs, Given
from edge_runtime.store.durable.kept_epochs import EPOCHS, KeptEpochs
from edge_runtime.store.durable.state_file import StateFile


class Run:
    """A run that holds some keys."""

    def __init__(self, path: Path, *claims: tuple[str, int | None]) -> None:
        self.epochs = Epochs(10)
        self.epochs.claim(claims)
        self.keys: dict[str, Given] = {}
        self.marks = (0, 0)
        kept = KeptEpochs(self.epochs, lambda: [*self.epochs.kept(), *self.keys.items()], lambda: self.marks)
        self.state = StateFile(path)
        with closing(Loop()) as loop:
            self.state.open(loop)
        kept.begin(path, found=self.state.add(EPOCHS, kept.save, kept.restore))


def test_what_is_written_is_as_of_a_moment_at_which_all_was_safe(tmp_path: Path) -> None:
    path = tmp_path / "outbox.state.db"
    run = Run(path)
    run.keys = {"k": Given(0, 8)}
    run.state.write_now()
    for marks, number in (((5, 4), 16), ((9, 5), 24), ((9, 8), 32)):
        run.marks, run.keys = marks, {"k": Given(0, number)}
        run.state.write_now()
    assert Run(path).epochs.pop("k") == Given(0, 16)
    run.marks = (9, 9)
    run.state.write_now()
    assert Run(path).epochs.pop("k") == Given(0, 32)
    assert Run(path).epochs.pop("new") == Given(0, NEVER)


def test_where_the_file_is_damaged_or_lost_keys_begin_at_an_epoch_that_none_had(tmp_path: Path) -> None:
    path = tmp_path / "outbox.state.db"
    lost = Run(path, ("k@8", 77))
    assert lost.epochs.pop("k").epoch > 0
    for text in (b"", b"[]", b'{"floor":0,"keys":[1]}', b'{"keys":{}}'):
        epochs = Epochs(10)
        with pytest.raises(StoreError):
            KeptEpochs(epochs, list, lambda: (0, 0)).restore(text)
        assert epochs.pop("k").epoch > 0


def test_an_outbox_of_an_earlier_release_is_no_sign_that_a_file_is_lost(tmp_path: Path) -> None:
    assert Run(tmp_path / "outbox.state.db", ("k@8", None)).epochs.pop("k") == Given(0, NEVER)


def test_a_key_that_another_worker_had_goes_on(tmp_path: Path) -> None:
    (tmp_path / "worker-1").mkdir()
    first = Run(tmp_path / "outbox.state.db")
    first.keys = {"k": Given(2, 80)}
    first.state.write_now()
    assert Run(tmp_path / "worker-1" / "outbox.state.db").epochs.pop("k") == Given(2, 80)
