"""Examples that users add on the device: labels of an embedding without training.

Rules:

1. An example is the model's numbers of one window, and a label. It counts from the next window on.
2. Numbers of one model say nothing of another's. An example counts under the model that made it, told by its files and
   golden answers (`vectors_of`); those of other models are kept, are not used, and that is logged once for each model.
3. There are at most `MAX_EXAMPLES`, of `MAX_BYTES` in all. More are refused; nothing is pushed out.
4. The same numbers stand there once. To give them another label, the example is removed first.
5. Numbers of the last `RECENT` windows are remembered, so that a window can be named by the id of its prediction.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from edge_runtime.errors import StoreError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.embedding import EmbeddingTask, StoredExamples
from edge_runtime.signal.stage import LearningStage, WindowBatch
from edge_runtime.types import Float32

log = logging.getLogger(__name__)

MAX_EXAMPLES: Final = 500
MAX_BYTES: Final = 4 * 2**20
"""Of the numbers of all examples."""
MAX_LABEL: Final = 64
"""Characters of a label."""
RECENT: Final = 256
"""Windows whose numbers are remembered, as far as `MAX_BYTES` hold them."""
_VERSION: Final = 1
_MANY: Final = f"keep the best of each label; {MAX_EXAMPLES} in all is the most, and five a label are often enough"


class Example(NamedTuple):
    """One window that a user has labelled."""

    id: str
    """Made of its model and numbers."""
    label: str
    window: str
    """Id of its prediction."""
    vectors: str
    """What made the numbers; see `vectors_of`."""
    model: str
    """Name and version of the bundle, for people."""
    numbers: Float32
    """(numbers of an answer,)."""

    def plain(self) -> dict[str, Any]:
        """Return all but the numbers, for people and programs."""
        return {"id": self.id, "label": self.label, "window": self.window, "model": self.model}


def vectors_of(manifest: Manifest) -> str:
    """Return a text that is the same for bundles whose numbers compare: made of model files and golden answers.

    The first variant stands for all, since the others were held against it when the bundle was packed.
    """
    first = manifest.variants[0]
    golden = next(file.sha256 for file in manifest.files if file.file == first.golden)
    parts = [*(part.sha256 for part in first.models), golden]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def as_examples(found: Sequence[Example]) -> StoredExamples:
    """Return examples, one or more and of one model, as a task takes them."""
    labels = tuple(dict.fromkeys(one.label for one in found))
    places = tuple(labels.index(one.label) for one in found)
    return StoredExamples(labels, places, np.stack([one.numbers for one in found]))


def check_label(label: str) -> None:
    """Refuse a label that would not print, or is longer than `MAX_LABEL`.

    Raises:
        StoreError: it is such a one.
    """
    if not label or len(label) > MAX_LABEL or not label.isprintable() or label != label.strip():
        raise StoreError(
            f"label {label[:20]!r}: write 1 to {MAX_LABEL} printable characters, without spaces at its ends and "
            "without line ends or other control characters"
        )


def pack_numbers(numbers: Float32) -> str:
    """Return numbers as base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(numbers.reshape(-1), "<f4").tobytes()).decode()


def unpack_numbers(text: str) -> Float32:
    """Return what `pack_numbers` was given, flat.

    Raises:
        ValueError: it is something else.
    """
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(np.float32)
    except binascii.Error as error:
        raise ValueError("numbers are no base64") from error


class LearntExamples(LearningStage):
    """Examples of users. All methods belong to the loop's thread."""

    def __init__(self) -> None:
        self._examples: dict[str, Example] = {}
        self._recent: KeyTable[str, Float32] = KeyTable()
        self._vectors = ""
        self._model = ""
        self._size = 0
        self._warned: set[str] = set()

    # -- with the model --------------------------------------------------------------------------------------------

    def use(self, manifest: Manifest) -> None:
        """Follow the numbers of this bundle from now on."""
        output = manifest.output
        self.active = isinstance(output, EmbeddingOutput)
        vectors = vectors_of(manifest) if self.active else ""
        if vectors != self._vectors:
            self._recent.clear()
        self._vectors, self._model, self._size = vectors, manifest.model, prod(output.shape)
        self._warn()

    def _warn(self) -> None:
        """Log examples of other models (rule 2)."""
        others = [one for one in self._examples.values() if one.vectors != self._vectors]
        if not self.active or not others or self._vectors in self._warned:
            return
        self._warned.add(self._vectors)
        log.warning(
            "examples: %d are not used, since another model made them (%s): add them again, and remove them with "
            "edge-runtime examples remove --other-models",
            *(len(others), ", ".join(sorted({one.model for one in others}))),
        )

    def taught(self, task: Task) -> Task:
        """Return the task with the examples of its model; another task as it is."""
        own = self._own()
        if not own or not isinstance(task, EmbeddingTask):
            return task
        return task.taught(as_examples(own))

    def run(self, batch: WindowBatch) -> None:
        """Remember the numbers of windows for a while (rule 5), not of suspect ones."""
        self._recent.limit = min(RECENT, max(1, MAX_BYTES // (4 * self._size)))
        for window, row in zip(batch.windows, batch.numbers, strict=True):
            if window.place not in batch.suspects and np.isfinite(row).all():
                self._recent[window.id] = row.reshape(-1).copy()

    # -- by request --------------------------------------------------------------------------------------------------

    def add_windows(self, label: str, ids: Sequence[str]) -> int:
        """Add recent windows by the ids of their predictions; all of them or none. Returns how many are new.

        Raises:
            StoreError: see `add`; or one of them is not remembered.
        """
        self._require_active()
        for one in ids:
            if one not in self._recent:
                raise StoreError(
                    f"window {one[:80]!r} is none of the last {len(self._recent)} that were answered, or its readings "
                    "were suspect; name one of the last predictions, or add a recording"
                )
        return self.add(label, [(one, self._recent[one]) for one in ids], self._vectors)

    def add(self, label: str, vectors: Sequence[tuple[str, Float32]], made_by: str) -> int:
        """Add examples of a label; all of them or none.

        Args:
            label: the label of all examples.
            vectors: id of the window, and its numbers.
            made_by: see `vectors_of`.

        Returns:
            How many were not there before.

        Raises:
            StoreError: they are too many, do not fit the model, or one has another label already.
        """
        self._require_active()
        check_label(label)
        if made_by != self._vectors:
            raise StoreError(
                f"the numbers were made by another model than the one that answers now, {self._model}; run the command "
                "with the bundle that the application runs (edge-runtime update status)"
            )
        fresh = {one.id: one for one in (self._example(label, *given) for given in vectors)}
        for one in fresh.values():
            known = self._examples.get(one.id)
            if known is not None and known.label != label:
                raise StoreError(
                    f"window {one.window!r} is an example of {known.label!r} already; remove {known.id} first"
                )
        new = {name: one for name, one in fresh.items() if name not in self._examples}
        self._require_room(new.values())
        self._examples |= new
        return len(new)

    def _require_active(self) -> None:
        if not self.active:
            raise StoreError(
                f"{self._model} is no embedding, and its labels come from training; examples are for bundles whose "
                "task is embedding (docs/tasks.md)"
            )

    def _require_room(self, new: Iterable[Example]) -> None:
        """Keep to rule 3."""
        kept = [*self._examples.values(), *new]
        if len(kept) > MAX_EXAMPLES or sum(one.numbers.nbytes for one in kept) > MAX_BYTES:
            raise StoreError(
                f"{len(kept)} examples of {sum(one.numbers.nbytes for one in kept) / 2**20:.1f} MiB are too many "
                f"({MAX_BYTES / 2**20:g} MiB is the most): remove some, or those of other models; {_MANY}"
            )

    def _example(self, label: str, window: str, numbers: Float32) -> Example:
        if numbers.shape != (self._size,):
            raise StoreError(
                f"window {window[:80]!r} has {numbers.size} numbers, and {self._model} answers with {self._size}; run "
                "the command with the bundle that the application runs"
            )
        if not np.isfinite(numbers).all():
            raise StoreError(f"window {window[:80]!r} has numbers that are not finite; take another one")
        name = hashlib.sha256(self._vectors.encode() + numbers.astype("<f4").tobytes()).hexdigest()[:12]
        return Example(name, label, window[:256], self._vectors, self._model, numbers)

    def remove(self, ids: Collection[str] = (), labels: Collection[str] = (), *, other_models: bool = False) -> int:
        """Remove examples by id or label, or those of other models. Returns how many there were."""
        gone = [
            one.id for one in self._examples.values()
            if one.id in ids or one.label in labels or (other_models and one.vectors != self._vectors)
        ]  # fmt: skip
        for name in gone:
            del self._examples[name]
        return len(gone)

    def _own(self) -> list[Example]:
        return [one for one in self._examples.values() if one.vectors == self._vectors]

    def counts(self) -> dict[str, int]:
        """Count the examples in use, by label."""
        return dict(Counter(one.label for one in self._own()))

    # -- over a restart ----------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Encode all examples; nothing where there are none."""
        if not self._examples:
            return b""
        rows = [
            one.plain() | {"vectors": one.vectors, "numbers": pack_numbers(one.numbers)}
            for one in self._examples.values()
        ]
        return orjson.dumps({"version": _VERSION, "answers": self._vectors, "examples": rows})

    def restore(self, data: bytes) -> bool:
        """Take what the run before has left.

        Raises:
            StoreError: the bytes are something else.
        """
        _, found = read_examples(data)
        if wrong := [one.id for one in found if one.vectors == self._vectors and one.numbers.shape != (self._size,)]:
            raise StoreError(f"example {wrong[0]} does not have the {self._size} numbers of {self._model}")
        self._examples = {one.id: one for one in found}
        self._warn()
        if counts := self.counts():
            log.info("examples: in use: %s", ", ".join(f"{label} {n}" for label, n in counts.items()))
        return True


def read_examples(data: bytes) -> tuple[str, list[Example]]:
    """Read a file of examples; it may lie beside a running application.

    Returns:
        What made the numbers that the application uses (`vectors_of`), and all examples.

    Raises:
        StoreError: it is something else.
    """
    if not data:
        return "", []
    try:
        plain = orjson.loads(data)
        if plain["version"] != _VERSION:
            raise StoreError(
                f"examples are of version {plain['version']}, and this program reads {_VERSION}; update it"
            )
        found = [_read(row) for row in plain["examples"]]
        uses = str(plain["answers"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"examples cannot be read: {error}") from error
    if len(found) > MAX_EXAMPLES or sum(one.numbers.nbytes for one in found) > MAX_BYTES:
        raise StoreError(f"{len(found)} examples are too many; {_MANY}")
    return uses, found


def _read(row: Mapping[str, Any]) -> Example:
    numbers = unpack_numbers(row["numbers"])
    check_label(row["label"])
    if not numbers.size or not np.isfinite(numbers).all():
        raise ValueError("numbers must be finite")
    names = {name: str(row[name]) for name in ("id", "label", "window", "vectors", "model")}
    return Example(**names, numbers=numbers)
