"""Operator sets of years ago, raised to one that every tool here reads."""

from __future__ import annotations

import onnx_ir as ir
from onnx import helper

from edge_export.graph.onnx_graph.model import STANDARD, UnsuitableModelError, constant, name_of, shapes_of

OLDEST_OPSET = 13
"""What older operator sets are raised to: the first with Softmax over one axis, with steps per channel, and with the
axes of Squeeze, Unsqueeze and Split as inputs."""

_OLDEST_IR = 8
"""That of operator set 14; engines of the last five years read it."""


class RaiseIrVersion(ir.passes.InPlacePass):
    """Raise the IR version to 8 at least, and to what the operator set came with."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Set the version."""
        known = [helper.make_opsetid(STANDARD, version) for version in [model.opset_imports.get(STANDARD)] if version]
        least = helper.find_min_ir_version_for(known, ignore_unknown=True) if known else _OLDEST_IR
        before, model.ir_version = model.ir_version, max(model.ir_version, least, _OLDEST_IR)
        return ir.passes.PassResult(model, modified=model.ir_version != before)


class AlignSlopes(ir.passes.InPlacePass):
    """Give the slopes of each PRelu the axes behind the channels.

    Before operator set 7 they ran along the channels; since, sizes are counted from the back. ONNX's converter passes
    them on as they are.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Add axes of size 1 behind the slopes."""
        nodes = [node for node in model.graph if node.op_type == "PRelu"] if model.opset_imports[STANDARD] < 7 else []
        sizes = shapes_of(model) if nodes else {}
        modified = False
        for data, value in (node.inputs[:2] for node in nodes):
            slopes = constant(value)
            if data is None or value is None or slopes is None or slopes.ndim != 1 or slopes.size < 2:
                continue
            if (axes := sizes.get(name_of(data))) is None:
                raise UnsuitableModelError(f"the axes of {data.name!r}, which a PRelu reads, are not known")
            wide = slopes.reshape(-1, *[1] * (len(axes) - 2))
            value.const_value, value.shape = ir.tensor(wide, name=value.name), ir.Shape(wide.shape)
            modified = True
        return ir.passes.PassResult(model, modified=modified)
