"""Requests of ``edge-runtime examples`` to a running application: add and remove examples of an embedding.

They lie beside the state file, as ``outbox.examples.request`` (`edge_runtime.base.system.control_spool`), and are
looked for once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from edge_runtime.base.system.control_spool import Spool
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError
from edge_runtime.model.tasks.learnt_examples import LearntExamples, pack_numbers, unpack_numbers
from edge_runtime.types import Float32

log = logging.getLogger(__name__)

MAX_NUMBERS_BYTES: Final = 2 * 2**20
"""Of the numbers in one request, so that it fits the spool as text."""


class Done(NamedTuple):
    """Result of a request."""

    changed: int
    """Examples that were added or removed."""
    counts: dict[str, int]
    """Examples in use, by label."""
    kept: bool
    """They are on the disk; else a restart would lose the change."""


class Asked:
    """The running application, asked by a command.

    Args:
        state_file: see `edge_runtime.app.config.AppConfig.state_file`.
        clock: monotonic time of the time-out.
        timeout_s: longest time that the application may take.
    """

    def __init__(self, state_file: Path, clock: Clock, timeout_s: float) -> None:
        self._spool = _spool(state_file)
        self._clock = clock
        self._timeout_s = timeout_s

    def add_windows(self, label: str, ids: Sequence[str]) -> Done:
        """Add recent windows by the ids of their predictions.

        Raises:
            StoreError: they cannot be added, or the application does not answer.
        """
        return self._ask({"action": "add", "label": label, "windows": list(ids)})

    def add(self, label: str, vectors: Sequence[tuple[str, Float32]], made_by: str) -> Done:
        """Add numbers that a command has computed; see `LearntExamples.add`.

        Raises:
            StoreError: they cannot be added, or the application does not answer.
        """
        if sum(numbers.nbytes for _, numbers in vectors) > MAX_NUMBERS_BYTES:
            raise StoreError(
                f"{len(vectors)} windows are more than {MAX_NUMBERS_BYTES // 2**20} MiB of numbers; add fewer at a time"
            )
        rows = [[window, pack_numbers(numbers)] for window, numbers in vectors]
        return self._ask({"action": "add", "label": label, "vectors": rows, "made_by": made_by})

    def remove(self, ids: Sequence[str], labels: Sequence[str], *, other_models: bool) -> Done:
        """Remove examples; see `LearntExamples.remove`.

        Raises:
            StoreError: the application does not answer.
        """
        return self._ask({"action": "remove", "ids": list(ids), "labels": list(labels), "other_models": other_models})

    def _ask(self, document: dict[str, Any]) -> Done:
        answer = self._spool.ask_running(document, self._clock, self._timeout_s, ", and is its model an embedding")
        return Done(int(answer["changed"]), dict(answer["counts"]), bool(answer["kept"]))


def serve(state_file: Path, examples: LearntExamples, changed: Callable[[], bool]) -> bool:
    """Do what is asked for, if anything is; to be called by the application now and then, behind a `Barrier`.

    Args:
        state_file: the same file as in `Asked`.
        examples: the application's examples.
        changed: takes them into use and writes them; returns whether the disk has them.

    Returns:
        Whether there was a request.
    """

    def handle(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            number = _do(asked, examples)
        except StoreError as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError):
            return {"error": "the request is malformed; use the command of the same version"}
        kept = changed()
        log.info("examples: changed: action=%s examples=%d in_use=%s", asked["action"], number, examples.counts())
        return {"changed": number, "counts": examples.counts(), "kept": kept}

    return _spool(state_file).serve(handle)


def _do(asked: dict[str, Any], examples: LearntExamples) -> int:
    action = asked["action"]
    if action == "add" and "windows" in asked:
        return examples.add_windows(str(asked["label"]), [str(one) for one in asked["windows"]])
    if action == "add":
        vectors = [(str(window), unpack_numbers(numbers)) for window, numbers in asked["vectors"]]
        return examples.add(str(asked["label"]), vectors, str(asked["made_by"]))
    if action == "remove":
        other_models = bool(asked["other_models"])
        return examples.remove(set(asked["ids"]), set(asked["labels"]), other_models=other_models)
    raise StoreError(f"the running application does not know {str(action)[:40]!r}; update it")


def _spool(state_file: Path) -> Spool:
    return Spool(state_file.with_suffix("").with_suffix(".examples.request"))
