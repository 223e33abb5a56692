"""Choices that are settled before the model runs."""

from __future__ import annotations

import itertools

import onnx_ir as ir

from edge_export.graph.onnx_graph.model import STANDARD, apply, constant, name_of, remove


class DecideChoices(ir.passes.InPlacePass):
    """Replace every ``If`` of the graph whose condition is a constant by the branch that it takes.

    What the branch computes and stores is named after the choice: ``<result>:<name>``.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Write the branches out, each in the place of its choice."""
        choices = [node for node in model.graph if node.op_type == "If" and node.domain == STANDARD]
        decided = [node for node in choices if (known := constant(node.inputs[0])) is not None and known.size == 1]
        taken = {name_of(value) for graph in model.graphs() for value in _values(graph)} if decided else set()
        for node in decided:
            _write_out(model.graph, node, taken)
        return ir.passes.PassResult(model, modified=bool(decided))


def _values(graph: ir.Graph) -> list[ir.Value]:
    stored = graph.initializers.values()
    return [*graph.inputs, *stored, *(value for node in graph for value in node.outputs)]


def _write_out(graph: ir.Graph, choice: ir.Node, taken: set[str]) -> None:
    """Put a branch's nodes in front of a choice, give what they compute names of its own, and remove the choice."""
    condition = constant(choice.inputs[0])
    assert condition is not None
    branch = choice.attributes["then_branch" if condition.item() else "else_branch"].as_graph()
    results, nodes, stored = list(branch.outputs), list(branch), list(branch.initializers.values())
    made = [value for value in _values(branch) if value.name]
    branch.outputs.clear()
    branch.initializers.clear()
    branch.remove(nodes)
    for value in sorted(made, key=name_of):
        base = f"{choice.outputs[0].name}:{value.name}"
        names = itertools.chain([base], (f"{base}:{count}" for count in itertools.count(1)))
        value.name = next(name for name in names if name not in taken)
        taken.add(value.name)
    for value in stored:
        graph.register_initializer(value)
    graph.insert_before(choice, nodes)
    for result, value in zip(choice.outputs, results, strict=True):
        if result.name:
            identity = apply("Identity", [value], result.name)
            identity.outputs[0].type, identity.outputs[0].shape = result.type, result.shape
            graph.insert_before(choice, identity)
            result.replace_all_uses_with(identity.outputs[0], replace_graph_outputs=True)
    remove(graph, choice)
