"""Text: the characters that a model reads in a window, from a row of scores for each place (CTC).

Greedy decoding. Source: Graves et al. 2006, Connectionist temporal classification, section 3.2 (best path).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from edge_runtime.base.oip import Array
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import TextOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import LABEL_AND_TRUST, WindowTask, floats
from edge_runtime.types import Float32

Floats = npt.NDArray[np.float64]


class Text(WindowTask):
    """The `Task` of a bundle whose model answers with scores of characters, place by place.

    1. The best class of each row counts; equal ones next to each other are one.
    2. The blank separates equal characters, and is no character.
    3. A character's probability is the highest of its rows. Trust is the least of the characters; of a text without
       any, the least of the blank's.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
    """

    kind = "text"

    def __init__(self, manifest: Manifest, output: TextOutput, threshold: float | None) -> None:
        super().__init__(manifest, threshold)
        self._output = output
        self._blank = len(output.characters) if output.blank == "last" else 0
        characters = list(output.characters)
        characters.insert(self._blank, "")
        self._characters = characters
        self.outputs = LABEL_AND_TRUST

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return [self._found(rows.reshape(self._output.rows, -1).astype(np.float64)) for rows in answers]

    def _found(self, rows: Floats) -> Finding:
        if self._output.values == "logits":
            weights = np.exp(rows - rows.max(axis=1, keepdims=True))
            rows = weights / weights.sum(axis=1, keepdims=True)
        best, highest = rows.argmax(axis=1).tolist(), rows.max(axis=1).clip(0, 1).tolist()
        runs = groupby(zip(best, highest, strict=True), key=itemgetter(0))
        given = [(self._characters[place], max(p for _, p in run)) for place, run in runs if place != self._blank]
        text = "".join(character for character, _ in given)
        scores = floats(p for _, p in given)
        return Finding(text, min(scores, default=min(floats(highest))), scores, {"text": text})

    def same(self, one: Finding, other: Finding) -> bool:
        """Both have the same text."""
        return bool(one.own["text"] == other.own["text"])

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        return self._offer_labels(answers)

    def read_reply(self, reply: Mapping[str, Array], n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`; any text will do, an empty one too. ``confidence`` may be left out."""
        pairs = self._read_labels(reply, n, empty=True)
        return [Finding(text, trust, [], {"text": text}) for text, trust in pairs]
