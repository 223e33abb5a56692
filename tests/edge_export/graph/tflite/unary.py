"""Operators of one input, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.edge_export.graph.tflite.compare import Net

Make = Callable[[Net, str], str]


def element(operator: str, **attributes: object) -> Make:
    return lambda b, t: b.node(operator, t, **attributes)


def positive(operator: str) -> Make:
    return lambda b, t: b.node(operator, b.node("Add", b.node("Abs", t), b.number(0.3)))


def clip(low: float | None, high: float | None) -> Make:
    def make(b: Net, t: str) -> str:
        return b.node("Clip", t, *("" if bound is None else b.number(bound) for bound in (low, high)))

    return make


def power(exponent: float) -> Make:
    return lambda b, t: b.node("Pow", b.node("Add", b.node("Abs", t), b.number(0.3)), b.number(exponent))


def gelu_formula(order: int) -> Make:
    def make(b: Net, t: str) -> str:
        inside = b.node("Erf", b.node("Div", t, b.number(np.sqrt(2))))
        raised = b.node("Add", inside, b.number(1))
        if order == 0:
            return b.node("Mul", b.node("Mul", t, raised), b.number(0.5))
        if order == 1:
            return b.node("Mul", b.node("Mul", b.number(0.5), t), raised)
        return b.node("Mul", t, b.node("Mul", raised, b.number(0.5)))

    return make


UNARY: dict[str, Make] = {
    **{
        name: element(name)
        for name in (
            "Abs", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
            "LeakyRelu", "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh",
        )
    },
    **{name: positive(name) for name in ("Log", "Sqrt", "Reciprocal")},
    "Celu, alpha": element("Celu", alpha=0.7),
    "Clip 0 6": clip(0, 6),
    "Clip -1 1": clip(-1, 1),
    "Clip low": clip(-0.3, None),
    "Clip high": clip(None, 0.4),
    "Clip both": clip(-0.3, 0.4),
    "Elu, alpha": element("Elu", alpha=0.5),
    "Gelu, tanh": element("Gelu", approximate="tanh"),
    "HardSigmoid, alpha": element("HardSigmoid", alpha=1 / 6, beta=0.5),
    "LeakyRelu, alpha": element("LeakyRelu", alpha=0.2),
    "PRelu": lambda b, t: b.node("PRelu", t, b.weights(4, 1)),
    "Pow 2": power(2),
    "Pow 0.5": power(0.5),
    "Pow -0.5": power(-0.5),
    "Pow 3": power(3),
    "Pow by integer": lambda b, t: b.node("Pow", t, b.constant(np.int64(3))),
    "Rsqrt": lambda b, t: b.node("Reciprocal", b.node("Sqrt", b.node("Add", b.node("Abs", t), b.number(0.3)))),
    **{f"GELU formula {order}": gelu_formula(order) for order in range(3)},
}  # fmt: skip
