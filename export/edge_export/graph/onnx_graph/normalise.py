"""The one form in which every tool of this package reads an ONNX model.

Files come in forms that all mean the same: weights listed as inputs (IR version 3: keras2onnx, paddle2onnx, and what
``onnx.version_converter`` makes), operator sets of years ago, local functions, constants that are nodes, choices that
are settled before the model runs. `normalise` brings them to one form; nothing behind it has to know the others.

Rules, in this order:

1. The IR version is at least 8, and what the operator set came with.
2. What has a value in the file is no input. A caller could have overridden it; nothing here does.
3. Local functions are written out where they are called.
4. Constants are computed: nodes whose inputs all are, and sizes that the shapes already say. What nothing reads goes.
5. An ``If`` whose condition is a constant is replaced by the branch that it takes; then rule 4 again.
6. An operator set below 13 is raised to 13, and rules 1 to 5 again; 13 and newer stay as they are: each version
   passed is a chance for the converter to be wrong.
7. Shapes are inferred, and noted where the file does not say them.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import inliner, version_converter
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from edge_export.graph.onnx_graph.model import drop_unread, inferred, transform
from edge_export.graph.onnx_graph.passes.decide import DecideChoices
from edge_export.graph.onnx_graph.passes.fold import FoldConstants, has_subgraph
from edge_export.graph.onnx_graph.passes.raise_opset import OLDEST_OPSET, AlignSlopes, RaiseIrVersion
from edge_runtime.errors import ConfigError

_ROUNDS = 50
"""Nested choices each take one."""


class _DropUnread(ir.passes.InPlacePass):
    """Remove nodes and constants that nothing reads."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove them, from the end backwards."""
        return ir.passes.PassResult(model, modified=drop_unread(model.graph))


_PASSES = (
    RaiseIrVersion(),  # rule 1
    RemoveInitializersFromInputsPass(),  # rule 2
    ir.passes.PassManager([FoldConstants(), DecideChoices(), _DropUnread()], steps=_ROUNDS),  # rules 4 and 5
)


def normalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """Bring a model to the form described above.

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A model with the same answers, the given one where it has this form; normalising it again changes nothing.

    Raises:
        ConfigError: its operator set is older than 13 and cannot be raised, or a local function cannot be written out.
    """
    form = transform(_inlined(model), *_PASSES)
    if 0 < opset_of(form) < OLDEST_OPSET:
        form = transform(_raised(form), *_PASSES)
    # onnx-ir leaves out what repeats the info of an output; shape inference notes it for outputs without a type.
    lost = {info.name for info in form.graph.output} - {info.name for info in form.graph.value_info}
    form.graph.value_info.extend(info for info in model.graph.value_info if info.name in lost)
    return inferred(form)  # rule 7


def opset_of(model: onnx.ModelProto) -> int:
    """Version of ONNX's own operator set that a model is written in; 0 where it names none."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write local functions out (rule 3)."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the library's own type, of C++
        raise ConfigError(f"the model's local functions cannot be written out: {_first_line(error)}") from error


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raise the operator set to `OLDEST_OPSET` (rule 6)."""
    # The converter works on one graph; nodes inside a choice or a loop would be left as they are.
    inside = next(filter(has_subgraph, model.graph.node), None)
    why = f"node {inside.name or inside.output[0]!r} ({inside.op_type}) holds a graph of its own" if inside else ""
    if not why:
        aligned = transform(model, AlignSlopes())
        try:
            return version_converter.convert_version(aligned, OLDEST_OPSET)
        except Exception as error:  # noqa: BLE001 - the library's own type, of C++
            why = _first_line(error)
    raise ConfigError(
        f"the model uses operator set {opset_of(model)}, which cannot be raised to {OLDEST_OPSET} ({why}); export it "
        f"again with {OLDEST_OPSET} or newer (best 17 or 20)"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
