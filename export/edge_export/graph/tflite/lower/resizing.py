"""Resize and Upsample as matrices, one for each axis that changes.

Every mode but ``tf_crop_and_resize`` with places outside is linear, and works on one axis after the other. The weights
are found by applying the operator's own definition to unit vectors, so that each attribute counts for what it means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from edge_export.graph.tflite.lower.draft import Array, Draft

_CROP = b"tf_crop_and_resize"


def resize(draft: Draft) -> bool:
    """Select where each new place is an old one (nearest neighbours, integer factors), else multiply.

    1. A crop needs its region; sizes that an aspect ratio is to decide have no form.
    2. An axis is passed over where neither its size, its scale nor a crop changes: a scale moves places at one size.
    """
    before, after = draft.shape(draft.input(0)), draft.shape(draft.node.output[0])
    if before is None or after is None:
        return False
    rank = len(before)
    axes = [int(axis) % rank for axis in draft.settings.get("axes", range(rank))]
    crop = draft.settings.get("coordinate_transformation_mode") == _CROP
    region = draft.parameter(1, "region of interest") if draft.node.op_type == "Resize" else None
    if crop and region is None:  # rule 1
        raise draft.refuse("tf_crop_and_resize needs a region of interest")
    policy = draft.settings.get("keep_aspect_ratio_policy", b"stretch")
    if policy != b"stretch":  # rule 1
        raise draft.refuse(f"keep_aspect_ratio_policy {policy.decode()!r} has no form; export with sizes that fit")
    scales = draft.parameter(2 if draft.node.op_type == "Resize" else 1, "scales")
    draft.parameter(3, "sizes")  # they are those of the result
    result = draft.input(0)
    for axis in range(rank):
        place = axes.index(axis) if axis in axes else None
        span = None if region is None or place is None else region.reshape(2, -1)[:, place]
        scale = None if scales is None or not scales.size or place is None else float(scales[place])
        whole = span is None or not crop or tuple(span) == (0, 1)
        if place is None or (before[axis] == after[axis] and whole and scale in (None, 1.0)):  # rule 2
            continue
        matrix, offset = _matrix(draft, before[axis], after[axis], scale, span if crop else None)
        result = _applied(draft, result, matrix, offset, axis=axis, rank=rank)
    draft.done(result)
    return True


def _applied(draft: Draft, source: str, matrix: Array, offset: Array, *, axis: int, rank: int) -> str:
    """Multiply an axis by a matrix (new places, old places); select where it holds one 1 a row."""
    chosen = matrix.argmax(axis=1)
    if not offset.any() and np.array_equal(matrix, np.eye(matrix.shape[1])[chosen]):
        return draft.add("Gather", source, draft.constant(chosen), axis=axis)
    kind = draft.dtype()
    if kind != np.float32:
        raise draft.refuse(f"an average of {kind} has no form; cast to float32 before it")
    moved, back = draft.moved_last(source, axis, rank)
    moved = draft.add("MatMul", moved, draft.constant(matrix.T.astype(kind)))
    if offset.any():
        moved = draft.add("Add", moved, draft.constant(offset.astype(kind)))
    return back(moved)


def _matrix(draft: Draft, size: int, wanted: int, scale: float | None, span: Array | None) -> tuple[Array, Array]:
    """Compute the share of each old place in each new one, and a constant to add.

    Args:
        draft: the node's draft.
        size: old places.
        wanted: new places.
        scale: factor that the node gives; None for the one between the sizes.
        span: (begin, end) of a crop.

    Returns:
        (new places, old places) and (new places,).
    """
    known = (
        "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value",
        "mode", "nearest_mode",
    )  # fmt: skip
    settings: dict[str, Any] = {key: draft.settings[key] for key in known if key in draft.settings}
    if draft.node.op_type == "Upsample":
        settings |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    names = ["x", "", "", ""]
    # A second axis of size 1 carries the unit vectors.
    feed: dict[str, Array] = {"x": np.concatenate([np.eye(size), np.zeros((1, size))]).astype(np.float32)}
    if span is not None:
        names[1], feed["roi"] = "roi", np.array([0, span[0], 1, span[1]], np.float32)
    if scale is not None:
        names[2], feed["scales"] = "scales", np.array([1, scale], np.float32)
    else:
        names[3], feed["sizes"] = "sizes", np.array([size + 1, wanted], np.int64)
    node = helper.make_node("Resize", names, ["y"], **settings)
    inputs = [helper.make_empty_tensor_value_info(name) for name in feed]
    graph = helper.make_graph([node], "resize", inputs, [helper.make_empty_tensor_value_info("y")])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    answer: Array = ReferenceEvaluator(model).run(None, feed)[0]
    return (answer[:-1] - answer[-1]).T, answer[-1]
