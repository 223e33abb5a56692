"""Searches that run out of time take the best so far, and algorithms share what they find of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx
import pytest
from edge_export.choose.variants import make
from edge_export.choose.variants.budget import OutOfTimeError, TimeBudget
from edge_export.choose.variants.make import CalibratedGraph
from edge_export.graph.onnx_graph.examples import Examples
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.ranges import collect
from edge_export.graph.quantize.write import prepare

from edge_runtime.clock import SimulatedClock
from tests.edge_export.graphs import device_net, windows

LAYERS = 4


@dataclass
class Slow:
    """A judge that takes a second for each graph and allows those with the most layers in float."""

    clock: SimulatedClock
    allows: bool = True
    asked: list[str] = field(default_factory=list)

    def decibels(self, graph: onnx.ModelProto) -> float:
        self.clock.advance(1)
        self.asked.append("decibels")
        return float(len(self.asked))

    def within(self, graph: onnx.ModelProto) -> bool:
        self.clock.advance(1)
        self.asked.append("within")
        return self.allows


def calibrated(clock: SimulatedClock, seconds: float) -> CalibratedGraph:
    graph = prepare(canonicalise(device_net()))
    examples = Examples({graph.graph.input[0].name: windows(8, 3, 40)[:, None]}, joined=True)
    scheme = Scheme(activations="uint8", weight_bits=8)
    model = CalibratedGraph(graph=graph, examples=examples, scheme=scheme, budget=TimeBudget(seconds, clock))
    assert len(model.layer_names()) == LAYERS
    return model


def test_ranges_that_there_was_no_time_for_are_named() -> None:
    clock = SimulatedClock()
    method, missing = make.best_ranges(calibrated(clock, 1.5), Slow(clock))
    assert method == "percentile"
    assert list(missing) == ["int8 with ranges by mse"]


def test_the_smallest_set_of_float_layers_so_far_is_taken_when_the_time_is_over() -> None:
    clock = SimulatedClock()
    model, judge = calibrated(clock, LAYERS + 0.5), Slow(clock)
    found = make.float_layers(model, "minmax", judge)
    assert not isinstance(found, str)
    assert len(found[0]) == LAYERS // 2
    assert judge.asked == ["decibels"] * LAYERS + ["within"]


@pytest.mark.parametrize("seconds", [1.5, LAYERS + 0.5])
def test_no_set_of_float_layers_in_time_is_an_error(seconds: float) -> None:
    clock = SimulatedClock()
    with pytest.raises(OutOfTimeError, match="no time left"):
        make.float_layers(calibrated(clock, seconds), "minmax", Slow(clock, allows=False))


def test_algorithms_that_there_is_no_time_for_are_named_and_plain_int8_is_made() -> None:
    clock = SimulatedClock()
    model = calibrated(clock, 1)
    clock.advance(2)
    made, missing = make.int8_graphs(model, "minmax")
    assert [one.name for one in made] == ["int8"]
    assert missing.keys() == {"int8-equalized", "int8-bias", "int8-adaround", "int8-combined"}


def test_activations_are_counted_once_for_a_graph_and_once_for_its_equalised_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[onnx.ModelProto] = []

    def seen(model: onnx.ModelProto, examples: Examples) -> object:
        counted.append(model)
        return collect(model, examples)

    monkeypatch.setattr(make, "collect", seen)
    model = calibrated(SimulatedClock(), 1)
    made, missing = make.int8_graphs(model, "mse")
    assert len(made) == 5
    assert not missing
    assert counted == [model.graph, model.equalized.graph]
