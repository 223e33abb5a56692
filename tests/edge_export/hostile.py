"""Model files that are made to do harm, and ``edge-export`` as a process of its own whose memory is watched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGE = (60_000, 60_000)


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        code: its exit code, negative for a signal.
        said: on standard error.
        peak_bytes: largest resident memory of it or of a child.
    """

    code: int
    said: str
    peak_bytes: int


def edge_export(*arguments: str) -> Ended:
    """Run the command until it ends."""
    program = "import sys; from edge_export.cli import main; sys.exit(main())"
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = [line for line in said.read().splitlines() if not line.startswith("INFO: Created TensorFlow Lite")]
    return Ended(process.returncode, "\n".join(lines), used.ru_maxrss * 1024)


def summed(nodes: Sequence[onnx.NodeProto], large: str, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model that adds the sum of a large constant, which its nodes make, to its input."""
    ends = [
        helper.make_node("ReduceSum", [large], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["float"], to=1),
        helper.make_node("Add", ["x", "float"], ["y"]),
    ]
    graph = helper.make_graph(
        [*nodes, *ends],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bombs() -> dict[str, onnx.ModelProto]:
    """Files of less than a kilobyte whose constants would take 14 GB or more, but for one of many nodes."""
    one, sizes = np.ones((2, 2), np.float32), np.array(LARGE, np.int64)

    def of(kind: str, inputs: list[str], more: dict[str, np.ndarray]) -> onnx.ModelProto:
        return summed([helper.make_node(kind, inputs, ["large"])], "large", more)

    doubled = [helper.make_node("Concat", [f"a{k}"] * 2, [f"a{k + 1}"], axis=0) for k in range(34)]
    ends = {"start": np.array(0, np.float32), "limit": np.array(4e9, np.float32), "delta": np.array(1, np.float32)}
    whole = np.array([1, 1, 30_000, 30_000], np.float32)
    made = {
        "Expand": of("Expand", ["one", "sizes"], {"one": one[:1, :1], "sizes": sizes}),
        "int64 overflow": of("Expand", ["one", "sizes"], {"one": one[:1, :1], "sizes": np.array([2**40, 2**40])}),
        "ConstantOfShape": of("ConstantOfShape", ["sizes"], {"sizes": sizes}),
        "Tile": of("Tile", ["one", "sizes"], {"one": one, "sizes": sizes}),
        "Range": of("Range", list(ends), dict(ends)),
        "Pad": of("Pad", ["one", "pads"], {"one": one, "pads": np.array([0, 0, *LARGE])}),
        "Resize": of("Resize", ["one", "", "scales"], {"one": one[None, None], "scales": whole}),
        "Concat doubled": summed(doubled, "a34", {"a0": np.array([1], np.int64)}),
        "a cycle": summed([helper.make_node("Add", ["x", "b"], ["b"])], "b", {}),
        "many nodes": summed(
            [helper.make_node("Identity", [f"a{k}"], [f"a{k + 1}"]) for k in range(150_000)], "a9", {"a0": one}
        ),
        "data elsewhere": summed([], "one", {"one": one}),
        "a huge axis": summed([], "one", {"one": one}),
    }
    made["a huge axis"].graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**62
    tensor = made["data elsewhere"].graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    return made
