"""ZipMap taken off an ONNX file: scikit-learn's converter makes a map of each row of probabilities, not a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper

_KEYS = ("classlabels_strings", "classlabels_int64s")


def without_zip_map(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Put an identity in place of each ZipMap that makes an output, whose name stays.

    Args:
        model: changed in place.

    Returns:
        The labels by output; empty where the file has no ZipMap.
    """
    found = dict[str, tuple[str, ...]]()
    for node in model.graph.node:
        if node.op_type != "ZipMap" or node.output[0] not in {one.name for one in model.graph.output}:
            continue
        found[node.output[0]] = _labels({one.name: one for one in node.attribute})
        node.CopyFrom(helper.make_node("Identity", list(node.input), list(node.output)))
    for output in model.graph.output:
        if output.name in found:
            shape = ["batch", len(found[output.name])]
            output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, shape))
    if found and not any(one.domain in ("", "ai.onnx") for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 13))
    return found


def _labels(attributes: Mapping[str, onnx.AttributeProto]) -> tuple[str, ...]:
    given = next((attributes[key] for key in _KEYS if key in attributes), onnx.AttributeProto())
    return tuple(one.decode("utf-8", "replace") for one in given.strings) or tuple(map(str, given.ints))
