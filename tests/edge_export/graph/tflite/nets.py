"""Random networks of the kind that small devices run, with answers of onnxruntime for several batches."""

from __future__ import annotations

import numpy as np
import onnx
from edge_export.graph.tflite.lower.patterns import replace
from onnx import helper, numpy_helper

from tests.edge_export.graph.tflite.compare import Net, on_onnx
from tests.edge_export.graph.tflite.suite import Trial

Array = np.ndarray


def random_net(seed: int) -> list[Trial]:
    """A network of three to eight layers, in a batch of 1, 2 and 5: one trial each."""
    random = np.random.default_rng(seed)
    channels, samples = int(random.integers(1, 7)), int(random.integers(6, 20))
    b = Net(channels, samples, seed=seed, opset=int(random.choice([14, 17, 18, 20, 21])))
    t, shape = "window", (channels, samples)
    for _ in range(int(random.integers(3, 9))):
        name = str(random.choice(sorted(_LAYERS)))
        t, shape = _LAYERS[name](b, t, shape, random)
    head = b.node("Flatten", t if random.random() < 0.5 else b.node("GlobalMaxPool", t))
    # Sizes do not pass through GroupNormalization by ONNX's own rules.
    model = b.finish(b.node("Softmax", head, axis=1) if random.random() < 0.5 else head, strict=False)
    made = []
    for batch in (1, 2, 5):
        inputs = {"window": random.standard_normal((batch, channels, samples)).astype(np.float32)}
        outputs = tuple(on_onnx(in_two_passes(model), inputs))
        made.append(Trial(name=f"net {seed} in a batch of {batch}", model=model, inputs=inputs, outputs=outputs))
    return made


def in_two_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each GroupNormalization of operator set 21, on (N, C, L), by way of InstanceNormalization.

    Onnxruntime has no kernel for the former and runs ONNX's body of it: the mean of the squares less the square of the
    mean, which is noise in float32 where a group differs little beside its size. Its kernel of the latter takes
    differences to the mean, and stays within 1e-3 of float64 where the body is 0.25 off.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "GroupNormalization":
            nodes.append(node)
            continue
        name, settings = node.name, {attribute.name: attribute for attribute in node.attribute}
        groups, epsilon = settings["num_groups"].i, settings["epsilon"].f if "epsilon" in settings else 1e-5
        scale, shift = (weights[each].reshape(-1, 1) for each in node.input[1:])
        constants = {
            "rows": np.array([0, groups, -1]), "back": np.array([0, len(scale), -1]), "scale": scale, "shift": shift,
            "ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32),
        }  # fmt: skip
        made.graph.initializer.extend(numpy_helper.from_array(array, f"{name}:{k}") for k, array in constants.items())
        rows, even, whole, scaled = (f"{name}:{step}" for step in range(4))
        nodes += [
            helper.make_node("Reshape", [node.input[0], f"{name}:rows"], [rows]),
            helper.make_node("InstanceNormalization", [rows, f"{name}:ones", f"{name}:zeros"], [even], epsilon=epsilon),
            helper.make_node("Reshape", [even, f"{name}:back"], [whole]),
            helper.make_node("Mul", [whole, f"{name}:scale"], [scaled]),
            helper.make_node("Add", [scaled, f"{name}:shift"], list(node.output)),
        ]
    replace(made.graph.node, nodes)
    return made


Shape = tuple[int, int]
Made = tuple[str, Shape]


def _convolution(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    outputs, kernel = int(random.integers(1, 8)), int(random.integers(1, 5))
    pads = [int(each) for each in random.integers(0, 3, 2)]
    stride = int(random.integers(1, 3))
    length = (shape[1] + sum(pads) - kernel) // stride + 1
    if length < 1:
        return t, shape
    weights = b.weights(outputs, shape[0], kernel)
    return b.node("Conv", t, weights, b.weights(outputs), pads=pads, strides=[stride]), (outputs, length)


def _pool(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    if shape[1] < 2:
        return t, shape
    kind, stride = str(random.choice(["MaxPool", "AveragePool", "LpPool"])), int(random.integers(1, 3))
    return b.node(kind, t, kernel_shape=[2], strides=[stride]), (shape[0], (shape[1] - 2) // stride + 1)


def _activation(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    kinds = ["Relu", "HardSwish", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "Softplus", "Atan", "Asinh", "Neg"]
    return b.node(str(random.choice(kinds)), t), shape


def _slopes(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    return b.node("PRelu", t, b.weights(*((1,) if random.random() < 0.5 else (shape[0], 1)))), shape


def _norm(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    if random.random() < 0.5 and b.opset >= 17:
        return b.node("LayerNormalization", t, b.weights(shape[1]), b.weights(shape[1])), shape
    return b.node("LpNormalization", t, axis=int(random.choice([1, -1])), p=int(random.integers(1, 3))), shape


def _groups(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    if b.opset < 21:
        # onnxruntime knows it of two spatial axes alone.
        return b.node("Squeeze", b.node("LRN", b.node("Unsqueeze", t, b.ints(2)), size=3), b.ints(2)), shape
    scale, shift = b.weights(shape[0]), b.weights(shape[0])
    # A group a channel: where a convolution gives one a small weight, its numbers differ little beside its bias.
    return b.node("GroupNormalization", t, scale, shift, num_groups=shape[0]), shape


def _gate(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    pooled = b.node("GlobalAveragePool", t)
    return b.node("Mul", t, b.node("HardSigmoid", b.node("Conv", pooled, b.weights(shape[0], shape[0], 1)))), shape


def _attention(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    scores = b.node("MatMul", b.node("Transpose", t, perm=[0, 2, 1]), t)
    return b.node("MatMul", t, b.node("Softmax", b.node("Mul", scores, b.number(0.1)), axis=-1)), shape


def _slice(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    if shape[1] < 3:
        return t, shape
    return b.node("Slice", t, b.ints(1), b.ints(shape[1] - 1), b.ints(2)), (shape[0], shape[1] - 2)


def _turned(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    return b.node("Transpose", t, perm=[0, 2, 1]), (shape[1], shape[0])


def _resized(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    mode = str(random.choice(["nearest", "linear", "cubic"]))
    # A second spatial axis: onnxruntime interpolates cubically over two.
    square = b.node("Unsqueeze", t, b.ints(1))
    scales = b.constant(np.array([1, 1, 1, 2], np.float32))
    wide = b.node("Resize", square, "", scales, mode=mode)
    return b.node("Squeeze", wide, b.ints(1)), (shape[0], shape[1] * 2)


def _shifted(b: Net, t: str, shape: Shape, random: np.random.Generator) -> Made:
    return b.node("Concat", t, b.node("Clip", t, b.number(-0.5), b.number(0.5)), axis=1), (shape[0] * 2, shape[1])


_LAYERS = {
    "activation": _activation,
    "attention": _attention,
    "convolution": _convolution,
    "gate": _gate,
    "groups": _groups,
    "norm": _norm,
    "pool": _pool,
    "resized": _resized,
    "shifted": _shifted,
    "slice": _slice,
    "slopes": _slopes,
    "turned": _turned,
}
