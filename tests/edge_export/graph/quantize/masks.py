"""Attention whose mask has extreme constants."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STEPS, WIDTH = 8, 16


def attention(masked: float, *, by: str = "Add", weight: float | None = None) -> onnx.ModelProto:
    """Return one head of attention over past steps alone, as torch exports its mask; in `by` the mask's operator."""
    random = np.random.default_rng(0)
    future = np.triu(np.ones((STEPS, STEPS), bool), 1)
    arrays = {
        "w": random.normal(size=(WIDTH, STEPS)),
        "w2": random.normal(size=(STEPS, 4)),
        "mask": np.where(future, masked, 0.0),
        "future": future,
        "masked": np.array(masked),
    }
    if weight is not None:
        arrays["w"][3, 2] = weight
    constants = [
        numpy_helper.from_array(array if array.dtype == bool else array.astype(np.float32), name)
        for name, array in arrays.items()
    ]
    inputs = ["q", "mask"] if by == "Add" else ["future", "masked", "q"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], name="query"),
        helper.make_node(by, inputs, ["s"], name="masked"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "w2"], ["y"], name="values"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", STEPS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", STEPS, 4])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
