"""GRU, LSTM and plain recurrent layers, written out step by step.

TensorFlow Lite has no GRU, and its LSTM keeps its state between calls unless the caller clears it: one window's answer
would depend on the window before. Written out, the weights still occur once in the file, and a streaming graph, which
takes a step or a few at a time, costs nothing extra.

Equations and the order of gates: the ONNX operators GRU, LSTM and RNN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edge_export.graph.tflite.lower.draft import Array, Draft

_Step = Callable[[str, str | None], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One direction of a recurrent layer.

    Attributes:
        w: (gates, hidden, inputs) weights of the input.
        r: (gates, hidden, hidden) weights of the state.
        wb: (gates, hidden) bias beside w.
        rb: (gates, hidden) bias beside r.
        h: name of the initial state, (batch, hidden); None for zeros.
        c: the same of the cell.
        activations: of this direction.
    """

    w: Array
    r: Array
    wb: Array
    rb: Array
    h: str | None
    c: str | None
    activations: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """The input, and how it is cut into steps."""

    source: str
    steps: int
    batch: int

    def project(self, draft: Draft, w: Array, b: Array) -> list[str]:
        """W x + b of each step as (batch, outputs); one product for all of them."""
        weights, bias = draft.constant(np.ascontiguousarray(w)), draft.constant(b)
        whole = draft.add("Gemm", self.source, weights, bias, transB=1)
        return draft.split(whole, [self.batch] * self.steps, 0)


def gru(draft: Draft) -> bool:
    """Gated recurrent unit, Cho et al. 2014 (arXiv:1406.1078), in both orders of reset and product.

    1. The two sigmoids share one product. A bias that nothing stands between joins the input's.
    2. Where the reset comes after the product, it scales the bias inside, too.
    3. A first state of zeros costs no product.
    """
    reset_after = bool(draft.settings.get("linear_before_reset", 0))

    def direction(sequence: _Sequence, layer: _Layer) -> tuple[list[str], str | None]:
        hidden = layer.r.shape[1]
        gates = sequence.project(draft, np.concatenate(layer.w[:2]), np.concatenate((layer.wb + layer.rb)[:2]))
        inside = layer.rb[2] if reset_after else np.zeros_like(layer.rb[2])  # rules 1 and 2
        new = sequence.project(draft, layer.w[2], layer.wb[2] + layer.rb[2] - inside)
        r_gates, r_new = draft.constant(np.concatenate(layer.r[:2])), draft.constant(layer.r[2])
        inside_bias = draft.constant(inside)
        h, answers = layer.h, []
        for x_gates, x_new in zip(gates, new, strict=True):
            both = x_gates if h is None else draft.add("Add", x_gates, draft.add("Gemm", h, r_gates, transB=1))
            update, reset = draft.split(draft.add("Sigmoid", both), [hidden, hidden], 1)
            if h is None:  # rule 3
                candidate = draft.add("Add", x_new, draft.add("Mul", reset, inside_bias)) if reset_after else x_new
                candidate = draft.add("Tanh", candidate)
                h = draft.add("Sub", candidate, draft.add("Mul", update, candidate))
            else:
                if reset_after:  # rule 2
                    carried = draft.add("Mul", reset, draft.add("Gemm", h, r_new, inside_bias, transB=1))
                else:
                    carried = draft.add("Gemm", draft.add("Mul", reset, h), r_new, transB=1)
                candidate = draft.add("Tanh", draft.add("Add", x_new, carried))
                h = draft.add("Add", candidate, draft.add("Mul", update, draft.add("Sub", h, candidate)))
            answers.append(h)
        return answers, None

    return _unroll(draft, 3, ("sigmoid", "tanh"), direction)


def lstm(draft: Draft) -> bool:
    """Long short-term memory, Hochreiter and Schmidhuber 1997, with forget gate and without peepholes."""
    if draft.input(7):
        raise draft.refuse("peepholes have no form; train without them")
    if draft.settings.get("input_forget", 0):
        raise draft.refuse("coupled input and forget gates have no form")

    def direction(sequence: _Sequence, layer: _Layer) -> tuple[list[str], str | None]:
        hidden = layer.r.shape[1]
        bias = layer.wb + layer.rb
        gates = sequence.project(draft, np.concatenate(layer.w[:3]), np.concatenate(bias[:3]))
        new = sequence.project(draft, layer.w[3], bias[3])
        r_gates, r_new = draft.constant(np.concatenate(layer.r[:3])), draft.constant(layer.r[3])
        h, c, answers = layer.h, layer.c, []
        for x_gates, x_new in zip(gates, new, strict=True):
            both = x_gates if h is None else draft.add("Add", x_gates, draft.add("Gemm", h, r_gates, transB=1))
            fresh = x_new if h is None else draft.add("Add", x_new, draft.add("Gemm", h, r_new, transB=1))
            entry, exit_, forget = draft.split(draft.add("Sigmoid", both), [hidden] * 3, 1)
            added = draft.add("Mul", entry, draft.add("Tanh", fresh))
            c = added if c is None else draft.add("Add", draft.add("Mul", forget, c), added)
            h = draft.add("Mul", exit_, draft.add("Tanh", c))
            answers.append(h)
        return answers, c

    return _unroll(draft, 4, ("sigmoid", "tanh", "tanh"), direction)


def rnn(draft: Draft) -> bool:
    """Plain recurrent layer with tanh or relu."""

    def direction(sequence: _Sequence, layer: _Layer) -> tuple[list[str], str | None]:
        steps = sequence.project(draft, layer.w[0], layer.wb[0] + layer.rb[0])
        weights, h, answers = draft.constant(layer.r[0]), layer.h, []
        kind = "Relu" if layer.activations == ("relu",) else "Tanh"
        for x in steps:
            h = draft.add(kind, x if h is None else draft.add("Add", x, draft.add("Gemm", h, weights, transB=1)))
            answers.append(h)
        return answers, None

    return _unroll(draft, 1, ("tanh",), direction, others=(("relu",),))


def _unroll(
    draft: Draft,
    gates: int,
    activations: tuple[str, ...],
    write: Callable[[_Sequence, _Layer], tuple[list[str], str | None]],
    others: tuple[tuple[str, ...], ...] = (),
) -> bool:
    """Read the operator's inputs, write each direction, and join the answers as the operator does.

    1. Settings and inputs that the cells do not compute are refused, not passed over.
    2. A direction that runs backwards gives its answers last step first: they are turned before they are joined.
    """
    sizes = draft.shape(draft.input(0))
    if sizes is None:
        return False
    if draft.settings.get("layout", 0):  # rule 1
        raise draft.refuse("layout must be 0 (time first); leave the attribute out and transpose")
    if "clip" in draft.settings:  # rule 1
        raise draft.refuse("clipping of its sums has no form")
    steps, batch, inputs = sizes
    _refuse_lengths(draft, steps)
    way = draft.settings.get("direction", b"forward").decode()
    directions = 2 if way == "bidirectional" else 1
    hidden = int(draft.settings["hidden_size"])
    w, r = draft.fixed(draft.input(1)), draft.fixed(draft.input(2))
    bias = draft.fixed(draft.input(3)) if draft.input(3) else np.zeros((directions, 2 * gates * hidden), np.float32)
    if w is None or r is None or bias is None:  # rule 1
        raise draft.refuse("its weights must be constant and float; leave recurrent layers out of the quantisation")
    named = _activations(draft, directions, len(activations)) or [activations] * directions
    starts = _initial(draft, 5, directions, batch, hidden), _initial(draft, 6, directions, batch, hidden)
    sequence = _Sequence(source=draft.reshape(draft.input(0), (steps * batch, inputs)), steps=steps, batch=batch)
    rows: list[list[str]] = []
    lasts: list[str] = []
    cells: list[str] = []
    for index in range(directions):
        if named[index] != activations and named[index] not in others:  # rule 1
            raise draft.refuse(f"activations must be {', '.join(activations)}, not {', '.join(named[index])}")
        halves = bias[index].reshape(2, gates, hidden)
        layer = _Layer(
            w=w[index].reshape(gates, hidden, inputs),
            r=r[index].reshape(gates, hidden, hidden),
            wb=halves[0],
            rb=halves[1],
            h=starts[0][index],
            c=starts[1][index],
            activations=named[index],
        )
        backwards = way == "reverse" or index == 1  # rule 2
        answers, cell = write(_Backwards(sequence) if backwards else sequence, layer)
        lasts.append(answers[-1])
        cells += [cell] if cell is not None else []
        rows.append(answers[::-1] if backwards else answers)
    if draft.node.output[0]:
        columns = [_joined(draft, each, 0) for each in rows]
        if directions == 1:
            whole = draft.reshape(columns[0], (steps, 1, batch, hidden))
        else:
            whole = draft.reshape(_joined(draft, columns, 1), (steps, batch, directions, hidden))
            whole = draft.add("Transpose", whole, perm=[0, 2, 1, 3])
        draft.done(whole, 0)
    for place, ends in ((1, lasts), (2, cells)):
        if place < len(draft.node.output) and draft.node.output[place]:
            draft.done(_joined(draft, [draft.reshape(end, (1, batch, hidden)) for end in ends], 0), place)
    return True


class _Backwards(_Sequence):
    """The same steps, the last one first."""

    def __init__(self, sequence: _Sequence) -> None:
        super().__init__(source=sequence.source, steps=sequence.steps, batch=sequence.batch)

    def project(self, draft: Draft, w: Array, b: Array) -> list[str]:
        return _Sequence.project(self, draft, w, b)[::-1]


def _joined(draft: Draft, names: list[str], axis: int) -> str:
    return names[0] if len(names) == 1 else draft.add("Concat", *names, axis=axis)


def _refuse_lengths(draft: Draft, steps: int) -> None:
    if not draft.input(4):
        return
    lengths = draft.fixed(draft.input(4))
    if lengths is None or (lengths != steps).any():
        raise draft.refuse("every sequence must have the full length; export without sequence_lens")


def _activations(draft: Draft, directions: int, each: int) -> list[tuple[str, ...]]:
    names = [name.decode().lower() for name in draft.settings.get("activations", [])]
    return [tuple(names[i * each : (i + 1) * each]) for i in range(directions)] if names else []


def _initial(draft: Draft, position: int, directions: int, batch: int, hidden: int) -> list[str | None]:
    """Read the state before the first step, by direction; zeros need no computation, and leave the batch open."""
    name = draft.input(position)
    fixed = draft.fixed(name) if name else None
    if not name or (fixed is not None and not fixed.any()):
        return [None] * directions
    parts = draft.split(name, [1] * directions, 0)
    return [draft.reshape(part, (batch, hidden)) for part in parts]
