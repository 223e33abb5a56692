"""Functions of one number, and a few of a neighbourhood, by formulas of operators that TensorFlow Lite has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edge_export.graph.tflite.lower.draft import Draft
from edge_export.graph.tflite.lower.patterns import DOMAIN

Formula = Callable[[Draft, str], str]


def of_one(formula: Formula) -> Callable[[Draft], bool]:
    """Make a rule that replaces a node by a formula of its input, in float32."""

    def rule(draft: Draft) -> bool:
        if draft.dtype() != np.float32:
            raise draft.refuse(f"of {draft.dtype()} it has no form; cast to float32 before it")
        draft.done(formula(draft, draft.input(0)))
        return True

    return rule


def arctangent(draft: Draft, y: str, x: str) -> str:
    """Angle of the point (x, y)."""
    return draft.add("Atan2", y, x, domain=DOMAIN)


def _leg(draft: Draft, x: str) -> str:
    """sqrt(1 - x^2), as a product that is exact near 1."""
    one = draft.number(1)
    return draft.add("Sqrt", draft.add("Mul", draft.add("Sub", one, x), draft.add("Add", one, x)))


def _halved(draft: Draft, x: str, join: str) -> str:
    """(exp(x) +- exp(-x)) / 2."""
    both = draft.add(join, draft.add("Exp", x), draft.add("Exp", draft.add("Neg", x)))
    return draft.add("Mul", both, draft.number(0.5))


def _sinh(draft: Draft, x: str) -> str:
    """By tanh near 0, where the difference of exponentials loses its digits: sinh = tanh * cosh."""
    return draft.add("Mul", draft.add("Tanh", x), _halved(draft, x, "Add"))


def _asinh(draft: Draft, x: str) -> str:
    """Sign(x) * log(|x| + sqrt(x^2 + 1))."""
    size, one = draft.add("Abs", x), draft.number(1)
    root = draft.add("Sqrt", draft.add("Add", draft.add("Mul", x, x), one))
    return draft.add("Mul", draft.add("Sign", x), draft.add("Log", draft.add("Add", size, root)))


def _acosh(draft: Draft, x: str) -> str:
    one = draft.number(1)
    root = draft.add("Sqrt", draft.add("Mul", draft.add("Sub", x, one), draft.add("Add", x, one)))
    return draft.add("Log", draft.add("Add", x, root))


def _atanh(draft: Draft, x: str) -> str:
    one = draft.number(1)
    ratio = draft.add("Div", draft.add("Add", one, x), draft.add("Sub", one, x))
    return draft.add("Mul", draft.add("Log", ratio), draft.number(0.5))


def is_infinite(draft: Draft) -> bool:
    """Equal to an infinity; of one sign if the node asks for that alone."""
    wanted = draft.settings.get("detect_negative", 1), draft.settings.get("detect_positive", 1)
    x, end = draft.input(0), draft.number(float("inf"))
    if wanted == (1, 1):
        draft.done(draft.add("Equal", draft.add("Abs", x), end))
    elif wanted == (0, 0):
        draft.done(draft.add("And", *[draft.add("Equal", x, end), draft.add("Equal", x, draft.number(-1))]))
    else:
        draft.done(draft.add("Equal", x, end if wanted[1] else draft.number(float("-inf"))))
    return True


def bounded(draft: Draft) -> bool:
    """Clip by bounds that are computed, or of numbers that are no floats; by none at all it does nothing."""
    bounds = [(draft.input(1), "Max"), (draft.input(2), "Min")]
    given = [(name, kind) for name, kind in bounds if name]
    if given and draft.dtype() == np.float32 and all(draft.is_parameter(name) for name, _ in given):
        return False
    result = draft.input(0)
    for name, kind in given:
        result = draft.add(kind, result, name)
    draft.done(result)
    return True


def power_pool(draft: Draft) -> bool:
    """LpPool: the p-th root of the sum of p-th powers under a window."""
    if draft.settings.get("ceil_mode", 0):
        raise draft.refuse("ceil_mode has no form; pad instead")
    p = float(draft.settings.get("p", 2))
    kernel = draft.settings["kernel_shape"]
    known = ("auto_pad", "dilations", "pads", "strides")
    settings = {key: draft.settings[key] for key in known if key in draft.settings}
    powers = _powers(draft, p)
    mean = draft.add("AveragePool", powers, kernel_shape=kernel, count_include_pad=1, **settings)
    _root(draft, draft.add("Mul", mean, draft.number(float(np.prod(kernel)))), p)
    return True


def global_power_pool(draft: Draft) -> bool:
    """GlobalLpPool: the same under a window that is everything."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    p = float(draft.settings.get("p", 2))
    _root(draft, draft.reduce("ReduceSum", _powers(draft, p), list(range(2, len(shape)))), p)
    return True


def _powers(draft: Draft, p: float) -> str:
    size = draft.add("Abs", draft.input(0))
    if p == 1:
        return size
    return draft.add("Mul", size, size) if p == 2 else draft.add("Pow", size, draft.number(p))


def _root(draft: Draft, total: str, p: float) -> None:
    if p != 1:
        total = draft.add("Sqrt", total) if p == 2 else draft.add("Pow", total, draft.number(1 / p))
    draft.done(total)


def local_response(draft: Draft) -> bool:
    """LRN: x / (bias + alpha / size * sum of squares in neighbouring channels) ^ beta; Krizhevsky et al. 2012, 3.3."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    size = int(draft.settings["size"])
    alpha, beta = float(draft.settings.get("alpha", 1e-4)), float(draft.settings.get("beta", 0.75))
    bias = float(draft.settings.get("bias", 1.0))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    channels = np.arange(shape[1])
    apart = channels[None] - channels[:, None]  # (to, from)
    band = ((apart >= -before) & (apart <= after)).astype(np.float32) * np.float32(alpha / size)
    x = draft.input(0)
    rows = draft.reshape(draft.add("Mul", x, x), [shape[0], shape[1], -1])
    summed = draft.add("Conv", rows, draft.constant(band[:, :, None]))
    spread = draft.add("Add", draft.reshape(summed, shape), draft.number(bias))
    draft.done(draft.add("Mul", x, draft.add("Pow", spread, draft.number(-beta))))
    return True


def division_rest(draft: Draft) -> bool:
    """Mod with the sign of the dividend: sign(a) * (|a| mod |b|)."""
    if not draft.settings.get("fmod", 0):
        return False
    a, b = draft.input(0), draft.input(1)
    if draft.dtype() != np.float32:
        raise draft.refuse(f"fmod of {draft.dtype()} has no form; cast to float32 before it")
    rest = draft.add("Mod", draft.add("Abs", a), draft.add("Abs", b))
    draft.done(draft.add("Mul", draft.add("Sign", a), rest))
    return True


def product(draft: Draft) -> bool:
    """MatMul with a vector on a side: an axis of size 1, taken away afterwards."""
    shapes = [draft.shape(draft.input(i)) for i in (0, 1)]
    if shapes[0] is None or shapes[1] is None or min(map(len, shapes)) != 1:  # type: ignore[arg-type]  # both known
        return False
    left, right = len(shapes[0]) == 1, len(shapes[1]) == 1
    first = draft.unsqueeze(draft.input(0), 0) if left else draft.input(0)
    second = draft.unsqueeze(draft.input(1), 1) if right else draft.input(1)
    axes = ([-2] if left else []) + ([-1] if right else [])
    draft.done(draft.add("Squeeze", draft.add("MatMul", first, second), draft.constant(np.array(axes, np.int64))))
    return True


def cast_like(draft: Draft) -> bool:
    """CastLike: a Cast to the type that the other tensor has."""
    other = draft.input(1)
    if draft.shape(other) is None:
        return False
    draft.done(draft.cast(draft.input(0), draft.dtype_of(other)))
    return True


def power_of_integer(draft: Draft) -> bool:
    """Cast the computed integer exponent of a float power: the operator wants one type."""
    if draft.dtype() != np.float32 or draft.fixed(draft.input(1)) is not None:
        return False
    if draft.dtype_of(draft.input(1)).kind != "i":
        return False
    draft.done(draft.add("Pow", draft.input(0), draft.cast(draft.input(1), np.float32)))
    return True


RULES: dict[str, Callable[[Draft], bool]] = {
    "Acos": of_one(lambda d, x: arctangent(d, _leg(d, x), x)),
    "Acosh": of_one(_acosh),
    "Asin": of_one(lambda d, x: arctangent(d, x, _leg(d, x))),
    "Asinh": of_one(_asinh),
    "Atan": of_one(lambda d, x: arctangent(d, x, d.cast(d.add("Equal", x, x), np.float32))),
    "Atanh": of_one(_atanh),
    "CastLike": cast_like,
    "Clip": bounded,
    "Cosh": of_one(lambda d, x: _halved(d, x, "Add")),
    "GlobalLpPool": global_power_pool,
    "IsInf": is_infinite,
    "IsNaN": of_one(lambda d, x: d.add("Not", d.add("Equal", x, x))),
    "LRN": local_response,
    "LpPool": power_pool,
    "MatMul": product,
    "Mod": division_rest,
    "Pow": power_of_integer,
    "Sinh": of_one(_sinh),
    "Tan": of_one(lambda d, x: d.add("Div", d.add("Sin", x), d.add("Cos", x))),
}
