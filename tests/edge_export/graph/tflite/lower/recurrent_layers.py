"""Builder of GRU, LSTM and RNN nodes."""

from __future__ import annotations

from tests.edge_export.graph.tflite.compare import Net

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def layer(
    b: Net,
    kind: str,
    t: str,
    *,
    inputs: int,
    hidden: int,
    direction: str,
    bias: bool = True,
    states: tuple[str, ...] = (),
    **settings: object,
) -> list[str]:
    d = 2 if direction == "bidirectional" else 1
    gates = GATES[kind]
    weights = [b.weights(d, gates * hidden, inputs), b.weights(d, gates * hidden, hidden)]
    given = b.weights(d, 2 * gates * hidden) if bias else ""
    if kind == "GRU":
        settings.setdefault("linear_before_reset", 1)
    names = [t, *weights, given, *(["", *states] if states else [])]
    outputs = 3 if kind == "LSTM" else 2
    return b.nodes_of(kind, *names, outputs=outputs, hidden_size=hidden, direction=direction, **settings)
