"""Judge of graphs while variants are made: files of them, on calls that set no range and are not held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from edge_export.choose.variants.data import CallSequence
from edge_export.choose.variants.decide import Rule
from edge_export.choose.variants.graph import file_of
from edge_export.choose.variants.measured import answers_of, classes, labels_of, worst_db
from edge_export.choose.variants.source import FloatModel, Flow, Format
from edge_export.graph.onnx_graph.model import Array
from edge_runtime.errors import EdgeError

MARGIN_DB = 3.0
"""Recordings that chose nothing answered up to 3 dB worse than those that did, on the networks of docs/quantize.md."""


@dataclass(frozen=True, kw_only=True)
class RecordedJudge:
    """Judge by the answers to some recordings (`edge_export.choose.variants.make.Judge`).

    Attributes:
        source: the float model.
        format: of the files that are written of a graph.
        flow: of its calls.
        recordings: calls to compare on.
        expected: the float file's answers to them.
        rule: what loss is allowed.
    """

    source: FloatModel
    format: Format
    flow: Flow
    recordings: Sequence[CallSequence]
    expected: Sequence[Array] = field(repr=False)
    rule: Rule

    def decibels(self, graph: onnx.ModelProto) -> float:
        """See `edge_export.choose.variants.make.Judge.decibels`."""
        given = self._given(graph)
        return -math.inf if given is None else worst_db(self.expected, given)

    def within(self, graph: onnx.ModelProto) -> bool:
        """See `choose.variants.make.Judge.within`. Without labels, `MARGIN_DB` more than the limit is asked."""
        given = self._given(graph)
        if given is None:
            return False
        labels = labels_of(self.recordings)
        if labels is None:
            return worst_db(self.expected, given) >= self.rule.min_snr + MARGIN_DB
        before, after = (float(np.mean(classes(each[0]) == labels)) for each in (self.expected, given))
        return 100 * (before - after) <= self.rule.max_loss

    def _given(self, graph: onnx.ModelProto) -> list[Array] | None:
        try:
            model = file_of(graph, self.format, self.source)
            return answers_of(self.format, model, self.recordings, self.flow)[0]
        except EdgeError:
            return None
