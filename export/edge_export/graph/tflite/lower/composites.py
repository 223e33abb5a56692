"""Composite ONNX operators as simpler ONNX operators, where TensorFlow Lite has no operator of the kind.

The result is still a graph of ONNX nodes, so that sizes are inferred and constants folded as everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edge_export.graph.tflite.lower import formulas, recurrent, resizing, selections, spectra
from edge_export.graph.tflite.lower.draft import Draft


def lower(draft: Draft) -> bool:
    """Take a node apart if it is a composite.

    Returns:
        Whether it was; the draft then holds its nodes. False also while sizes that it needs are not known yet.
    """
    if draft.node.domain not in ("", "ai.onnx"):
        return False
    rule = _RULES.get(draft.node.op_type)
    return rule is not None and rule(draft)


def _erf(draft: Draft) -> bool:
    """Within 1.5e-7 of erf; Source: Abramowitz and Stegun 1964, 7.1.26."""
    x = draft.input(0)
    size = draft.add("Abs", x)
    t = draft.add(
        "Div", draft.number(1), draft.add("Add", draft.add("Mul", size, draft.number(0.3275911)), draft.number(1))
    )
    polynomial = draft.number(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial = draft.add("Add", draft.add("Mul", polynomial, t), draft.number(coefficient))
    fall = draft.add("Exp", draft.add("Neg", draft.add("Mul", x, x)))
    half = draft.add("Sub", draft.number(1), draft.add("Mul", draft.add("Mul", polynomial, t), fall))
    draft.done(draft.add("Mul", draft.add("Sign", x), half))
    return True


def _softplus(draft: Draft) -> bool:
    draft.done(_soft_plus(draft, draft.input(0)))
    return True


def _soft_plus(draft: Draft, x: str) -> str:
    """log(1 + exp(x)), written so that exp cannot overflow."""
    fall = draft.add("Exp", draft.add("Neg", draft.add("Abs", x)))
    return draft.add("Add", draft.add("Relu", x), draft.add("Log", draft.add("Add", fall, draft.number(1))))


def _mish(draft: Draft) -> bool:
    x = draft.input(0)
    draft.done(draft.add("Mul", x, draft.add("Tanh", _soft_plus(draft, x))))
    return True


def _softsign(draft: Draft) -> bool:
    x = draft.input(0)
    draft.done(draft.add("Div", x, draft.add("Add", draft.add("Abs", x), draft.number(1))))
    return True


def _exponential_unit(draft: Draft, alpha: float, gamma: float) -> bool:
    """Gamma * (max(x, 0) + alpha * elu(min(x, 0)))."""
    x = draft.input(0)
    fall = draft.add("Elu", draft.add("Min", x, draft.number(0)))
    total = draft.add("Add", draft.add("Relu", x), draft.add("Mul", fall, draft.number(alpha)))
    draft.done(total if gamma == 1 else draft.add("Mul", total, draft.number(gamma)))
    return True


def _elu(draft: Draft) -> bool:
    alpha = float(draft.settings.get("alpha", 1.0))
    return alpha != 1 and _exponential_unit(draft, alpha, 1)


def _selu(draft: Draft) -> bool:
    # The defaults are those of the operator's definition.
    alpha = float(draft.settings.get("alpha", 1.67326319217681884765625))
    return _exponential_unit(draft, alpha, float(draft.settings.get("gamma", 1.05070102214813232421875)))


def _celu(draft: Draft) -> bool:
    alpha, x = float(draft.settings.get("alpha", 1.0)), draft.input(0)
    fall = draft.add("Elu", draft.add("Div", draft.add("Min", x, draft.number(0)), draft.number(alpha)))
    draft.done(draft.add("Add", draft.add("Relu", x), draft.add("Mul", fall, draft.number(alpha))))
    return True


def _hard_sigmoid(draft: Draft) -> bool:
    alpha, beta = float(draft.settings.get("alpha", 0.2)), float(draft.settings.get("beta", 0.5))
    line = draft.add("Add", draft.add("Mul", draft.input(0), draft.number(alpha)), draft.number(beta))
    draft.done(draft.add("Clip", line, draft.number(0), draft.number(1)))
    return True


def _chained(draft: Draft, op_type: str) -> bool:
    """Replace an operator over many inputs by a chain of the same over two."""
    names = draft.inputs()
    if draft.node.op_type == op_type and len(names) == 2:
        return False
    total = names[0]
    for name in names[1:]:
        total = draft.add(op_type, total, name)
    draft.done(total)
    return True


def _average(draft: Draft) -> bool:
    names = draft.inputs()
    total = names[0]
    for name in names[1:]:
        total = draft.add("Add", total, name)
    draft.done(draft.add("Mul", total, draft.number(1 / len(names))))
    return True


def _reduce_axes(draft: Draft) -> list[int] | None:
    """Read the axes of a reduction, counted from the front; None while the rank is not known."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return None
    axes = draft.settings.get("axes", draft.parameter(1, "axes"))
    nothing = draft.settings.get("noop_with_empty_axes", 0)
    if axes is None or not len(axes):
        return [] if nothing else list(range(len(shape)))
    return [int(axis) % len(shape) for axis in axes]


def _composite_reduction(draft: Draft) -> bool:
    axes = _reduce_axes(draft)
    if axes is None:
        return False
    x, keep, kind = draft.input(0), bool(draft.settings.get("keepdims", 1)), draft.node.op_type
    if kind == "ReduceL1":
        result = draft.reduce("ReduceSum", draft.add("Abs", x), axes, keep=keep)
    elif kind == "ReduceLogSum":
        result = draft.add("Log", draft.reduce("ReduceSum", x, axes, keep=keep))
    elif kind == "ReduceLogSumExp":
        peak = draft.reduce("ReduceMax", x, axes)
        total = draft.reduce("ReduceSum", draft.add("Exp", draft.add("Sub", x, peak)), axes)
        result = draft.add("Add", draft.add("Log", total), peak)
        if not keep:
            # The maximum over axes of size 1 only removes them.
            result = draft.reduce("ReduceMax", result, axes, keep=False)
    else:
        result = draft.reduce("ReduceSum", draft.add("Mul", x, x), axes, keep=keep)
        result = draft.add("Sqrt", result) if kind == "ReduceL2" else result
    draft.done(result)
    return True


def _standardised(draft: Draft, x: str, axes: Sequence[int], epsilon: float) -> tuple[str, str, str]:
    """Compute the standardised numbers, their mean, and one over their standard deviation."""
    mean = draft.reduce("ReduceMean", x, axes)
    centred = draft.add("Sub", x, mean)
    variance = draft.reduce("ReduceMean", draft.add("Mul", centred, centred), axes)
    inverse = draft.add("Reciprocal", draft.add("Sqrt", draft.add("Add", variance, draft.number(epsilon))))
    return draft.add("Mul", centred, inverse), mean, inverse


def _layer_norm(draft: Draft) -> bool:
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    first = int(draft.settings.get("axis", -1)) % len(shape)
    axes = list(range(first, len(shape)))
    epsilon = float(draft.settings.get("epsilon", 1e-5))
    result, mean, inverse = _standardised(draft, draft.input(0), axes, epsilon)
    result = draft.add("Mul", result, draft.input(1))
    draft.done(draft.add("Add", result, draft.input(2)) if draft.input(2) else result)
    draft.done(mean, 1)
    draft.done(inverse, 2)
    return True


def _rms_norm(draft: Draft) -> bool:
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    x, axes = draft.input(0), list(range(int(draft.settings.get("axis", -1)) % len(shape), len(shape)))
    power = draft.reduce("ReduceMean", draft.add("Mul", x, x), axes)
    epsilon = draft.number(float(draft.settings.get("epsilon", 1e-5)))
    spread = draft.add("Sqrt", draft.add("Add", power, epsilon))
    draft.done(draft.add("Mul", draft.add("Mul", x, draft.add("Reciprocal", spread)), draft.input(1)))
    return True


def _per_channel(draft: Draft, name: str, rank: int) -> str | None:
    """Reshape a constant of one number per channel to meet (N, C, ...)."""
    array = draft.fixed(name)
    return None if array is None else draft.constant(array.reshape(-1, *[1] * (rank - 2)))


def _instance_norm(draft: Draft) -> bool:
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    scale, shift = (_per_channel(draft, draft.input(i), len(shape)) for i in (1, 2))
    if scale is None or shift is None:
        raise draft.refuse("its scale and shift must be constant")
    epsilon = float(draft.settings.get("epsilon", 1e-5))
    result, _, _ = _standardised(draft, draft.input(0), list(range(2, len(shape))), epsilon)
    draft.done(draft.add("Add", draft.add("Mul", result, scale), shift))
    return True


def _batch_norm(draft: Draft) -> bool:
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    fixed = [draft.fixed(draft.input(i)) for i in range(1, 5)]
    if any(array is None for array in fixed) or draft.settings.get("training_mode", 0):
        raise draft.refuse("its statistics must be constant; export in evaluation mode")
    scale, shift, mean, variance = (np.asarray(array, np.float64) for array in fixed)
    factor = scale / np.sqrt(variance + float(draft.settings.get("epsilon", 1e-5)))
    sizes = (-1, *[1] * (len(shape) - 2))
    kind = draft.dtype()
    scaled = draft.add("Mul", draft.input(0), draft.constant(factor.reshape(sizes).astype(kind)))
    offset = (shift - mean * factor).reshape(sizes).astype(kind)
    draft.done(draft.add("Add", scaled, draft.constant(offset)))
    return True


def _dropout(draft: Draft) -> bool:
    """Nothing, where it does not train; its mask then drops nothing either."""
    training, ratio = draft.parameter(2, "training_mode"), draft.parameter(1, "ratio")
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    if training is not None and training.item() and (ratio is None or ratio.item()):
        raise draft.refuse("it drops numbers at random; export in evaluation mode")
    draft.done(draft.input(0))
    if len(draft.node.output) > 1:
        draft.done(draft.constant(np.ones(shape, np.bool_)), 1)
    return True


def _lp_norm(draft: Draft) -> bool:
    x, axis = draft.input(0), int(draft.settings.get("axis", -1))
    kind = {1: "ReduceL1", 2: "ReduceL2"}[int(draft.settings.get("p", 2))]
    norm = draft.reduce(kind, x, [axis])
    # Of a vector of zeros ONNX wants zeros: its norm counts as 1.
    norm = draft.add("Add", norm, draft.cast(draft.add("Equal", norm, draft.number(0)), draft.dtype()))
    draft.done(draft.add("Div", x, norm))
    return True


def _log_softmax(draft: Draft) -> bool:
    """Over another axis than the last, which alone has an operator."""
    shape = draft.shape(draft.input(0))
    axis = int(draft.settings.get("axis", -1))
    if shape is None or axis % len(shape) == len(shape) - 1:
        return False
    x = draft.input(0)
    lowered = draft.add("Sub", x, draft.reduce("ReduceMax", x, [axis]))
    total = draft.reduce("ReduceSum", draft.add("Exp", lowered), [axis])
    draft.done(draft.add("Sub", lowered, draft.add("Log", total)))
    return True


def _gemm(draft: Draft) -> bool:
    """Multiply two activations; with constant weights it is a dense layer, which has an operator."""
    first, second = draft.input(0), draft.input(1)
    if draft.settings.get("alpha", 1.0) == 1 and draft.settings.get("beta", 1.0) == 1:
        dense = not draft.settings.get("transA", 0) and draft.is_parameter(second)
        if dense and (not draft.input(2) or _is_bias(draft, draft.input(2))):
            return False
    first = draft.add("Transpose", first, perm=[1, 0]) if draft.settings.get("transA", 0) else first
    second = draft.add("Transpose", second, perm=[1, 0]) if draft.settings.get("transB", 0) else second
    result = draft.add("MatMul", first, second)
    if (alpha := float(draft.settings.get("alpha", 1.0))) != 1:
        result = draft.add("Mul", result, draft.number(alpha))
    if addend := draft.input(2):
        if (beta := float(draft.settings.get("beta", 1.0))) != 1:
            addend = draft.add("Mul", addend, draft.number(beta))
        result = draft.add("Add", result, addend)
    draft.done(result)
    return True


def _is_bias(draft: Draft, name: str) -> bool:
    """Report that an addend is a constant per output, or one for all."""
    shape = draft.shape(name)
    return draft.is_parameter(name) and shape is not None and all(size == 1 for size in shape[:-1])


_RULES: dict[str, Callable[[Draft], bool]] = {
    **formulas.RULES,
    "ArgMax": selections.last_extreme,
    "ArgMin": selections.last_extreme,
    "BatchNormalization": _batch_norm,
    "Celu": _celu,
    "DFT": spectra.dft,
    "Dropout": _dropout,
    "Elu": _elu,
    "Erf": _erf,
    "GRU": recurrent.gru,
    "GatherElements": selections.gather_elements,
    "GatherND": selections.gather_nd,
    "Gemm": _gemm,
    "Hardmax": selections.hardmax,
    "HardSigmoid": _hard_sigmoid,
    "InstanceNormalization": _instance_norm,
    "LSTM": recurrent.lstm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "Max": lambda draft: _chained(draft, "Max"),
    "Mean": _average,
    "Min": lambda draft: _chained(draft, "Min"),
    "Mish": _mish,
    "OneHot": selections.one_hot,
    "RMSNormalization": _rms_norm,
    "RNN": recurrent.rnn,
    "ReduceL1": _composite_reduction,
    "ReduceL2": _composite_reduction,
    "ReduceLogSum": _composite_reduction,
    "ReduceLogSumExp": _composite_reduction,
    "ReduceSumSquare": _composite_reduction,
    "Resize": resizing.resize,
    "STFT": spectra.stft,
    "ScatterElements": selections.scatter_elements,
    "ScatterND": selections.scatter_nd,
    "Selu": _selu,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Sum": lambda draft: _chained(draft, "Add"),
    "TopK": selections.top_k,
    "Trilu": selections.triangle,
}

COMPOSITES = frozenset(_RULES)
"""Operators that have a rule here."""
