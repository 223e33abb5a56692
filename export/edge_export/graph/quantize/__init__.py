"""Int8 by calibration: an ONNX file with float weights to one whose convolutions and dense layers compute in integers.

Only the operators that gain are quantised. What surrounds them (channel scaling in front, temperature and softmax at
the end) stays float: physical channels differ too much in range for one int8 step, and an int8 softmax knows only 256
confidences, too few for a threshold.

`quantize` is the plain way. Its parts are there for a search: `write.prepare` once, `ranges.collect` once, then
`ranges.choose` and `write.write` per candidate. In between a model can be made easier to quantise (`equalize`) and its
weights rounded (`adaround`) or biases corrected (`bias`) for the least damage; `mixed` finds which layers stay in
float; `qat` trains (the only part that needs torch).
"""

from __future__ import annotations

from edge_export.graph.quantize.scheme import OPERATORS, Method, Scheme
from edge_export.graph.quantize.write import quantize

__all__ = ["OPERATORS", "Method", "Scheme", "quantize"]
