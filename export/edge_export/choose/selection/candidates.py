"""Model files that could ship: one student in every format, precision and scheme that a device might run best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import onnx
import onnx_ir as ir

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.model import from_proto, name_of, transform
from edge_export.graph.onnx_graph.out_of_distribution import OodDetector
from edge_export.graph.onnx_graph.passes.canonicalise import Canonicalise, canonicalise, without_traces
from edge_export.graph.onnx_graph.passes.conv2d import Conv1dToConv2d
from edge_export.graph.onnx_graph.passes.minimise import Minimise
from edge_export.graph.onnx_graph.passes.out_of_distribution import with_ood_detector
from edge_export.graph.onnx_graph.passes.shield import ShieldFloatLayers
from edge_export.graph.onnx_graph.passes.temperature import LogitMap, MapLogits
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.int8_type import targets_for
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.mixed import Kept, Sensitivity, fit_mixed, round_to_halves, sensitivities, sqnr_db
from edge_export.graph.quantize.ranges import Ranges, choose, collect
from edge_export.graph.quantize.scheme import OPERATORS
from edge_export.graph.quantize.select import left_in_float
from edge_export.graph.quantize.write import prepare, write
from edge_export.graph.tflite.convert import convert
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import QuantiseRecipe
from edge_runtime.errors import ConfigError

TOLERANCE_INT8 = 0.1
"""On probabilities: engines may round a logit to the next of its 256 steps, which moves an undecided answer by less
than half of this; the saturation that the replay is there to catch moves answers by far more."""

RANKING_WINDOWS = 256
"""Windows by which layers are ranked; ranks of layers need fewer than differences of a point."""

FRONT_LAYERS = 4
"""So many layers, at most, may belong to a front end: cosines, sines, bands, and a filter before them."""

LEARNED = "learned"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedStudent:
    """A student in integers, written for both types of activations.

    Attributes:
        graphs: ``uint8`` and ``int8``, at temperature 1.
        ranges: the way that won: one of the recipe's, or ``learned``.
        tried: score on validation groups by way, in the order tried.
        float_score: of the unquantised student.
        score: of what won, before layers were put back into float.
        kept: layers that stay in float, and why.
        layers: what each layer costs.
        sizes: bytes of each layer's weights as integers, by its name.
        in_float: why an operator stays in float wherever it occurs, by operator.
    """

    graphs: Mapping[str, onnx.ModelProto] = field(repr=False)
    ranges: str
    tried: Mapping[str, float]
    float_score: float
    score: float
    kept: tuple[Kept, ...]
    layers: tuple[Sensitivity, ...]
    sizes: Mapping[str, int]
    in_float: Mapping[str, str] = field(default_factory=dict)


def quantize_student(
    fp32: onnx.ModelProto,
    calibration: Float32,
    validation: Float32,
    evaluate: Callable[[Float32], float],
    recipe: QuantiseRecipe,
    *,
    max_drop: float,
    learned: Mapping[str, onnx.ModelProto] | None = None,
) -> QuantizedStudent:
    """Quantise a float student in several ways and take the best.

    1. A way is one of the recipe's methods to find the ranges of activations, or training with the rounding.
    2. The best score on validation groups wins; of ways that score the same, the one whose answers are nearest to the
       float model's.
    3. Where it loses more than `max_drop` against float, and the recipe allows it, the best method's graph is written
       with the most harmful layers in float. With every layer in float, `QuantizedStudent.graphs` is empty.

    Args:
        fp32: answers windows with probabilities at temperature 1.
        calibration: (n, n_channels, samples) windows of training groups that set the ranges.
        validation: windows of groups not trained on, that choose.
        evaluate: how good answers to `validation` are, higher is better.
        recipe: the ways to try, and how.
        max_drop: what the integers may lose against `fp32`, in the unit of `evaluate`, before layers stay in float.
        learned: graphs that were trained with their rounding, by type of activations; None where there are none.
    """
    prepared, scheme = prepare(fp32), Scheme(activations="uint8", weight_bits=recipe.weight_bits)
    collected = collect(prepared, calibration)
    ranges: dict[str, Ranges] = {method: choose(collected, method) for method in recipe.ranges}
    unsigned = {way: write(prepared, own, scheme) for way, own in ranges.items()}
    if learned is not None:  # rule 1
        unsigned[LEARNED] = learned["uint8"]
    expected = answers(prepared, validation)
    float_score = evaluate(expected)
    merits = {way: _merit(expected, answers(model, validation), evaluate) for way, model in unsigned.items()}
    best = max(merits, key=lambda way: merits[way])  # rule 2
    calibrated = max(ranges, key=lambda way: merits[way])
    seen = validation[:: max(1, len(validation) // RANKING_WINDOWS)]
    used, kept = scheme, tuple[Kept, ...]()
    if recipe.mixed and float_score - merits[best][0] > max_drop:  # rule 3
        best = calibrated
        prepared, unsigned[best], used, kept = _partly_float(
            prepared,
            ranges[best],
            scheme,
            seen,
            lambda model: evaluate(answers(model, validation)),
            reached=merits[best][0],
            wanted=float_score - max_drop,
            max_drop=max_drop,
        )
    if best == LEARNED and learned is not None:
        signed = learned["int8"]
    else:
        signed = write(prepared, ranges[best], replace(used, activations="int8"))
    graph = from_proto(prepared).graph
    whole_float = {layer.name for layer in layers(graph)} <= {one.layer for one in kept}
    return QuantizedStudent(
        graphs={} if whole_float else {"uint8": canonicalise(unsigned[best]), "int8": canonicalise(signed)},
        ranges=best,
        tried={way: score for way, (score, _) in merits.items()},
        float_score=float_score,
        score=merits[best][0],
        kept=kept,
        layers=sensitivities(prepared, ranges[calibrated], scheme, seen),
        sizes={layer.name: layer.weights.size for layer in layers(graph)},
        in_float=left_in_float(graph, [one.layer for one in kept]),
    )


def same_integers(
    fp32: onnx.ModelProto,
    calibration: Float32,
    found: QuantizedStudent,
    recipe: QuantiseRecipe,
    *,
    learned: Mapping[str, onnx.ModelProto] | None = None,
) -> QuantizedStudent:
    """Quantise a float student as another one of the same layers was: the same way, the same layers in float.

    Args:
        fp32: answers windows with probabilities at temperature 1.
        calibration: (n, n_channels, samples) windows that set the ranges.
        found: what was chosen for the other one.
        recipe: the recipe, as it was for the other one.
        learned: graphs that were trained with their rounding, where that was chosen.
    """
    if not found.graphs:
        return found
    if learned is not None:
        return replace(found, graphs={kind: canonicalise(graph) for kind, graph in learned.items()})
    kept = tuple(one.layer for one in found.kept)
    # Weights of layers in float become halves whatever they were: the file has no more bytes than the one measured.
    prepared = round_to_halves(prepare(fp32), kept)
    (method,) = (method for method in recipe.ranges if method == found.ranges)
    ranges = choose(collect(prepared, calibration), method)
    unsigned = Scheme(activations="uint8", weight_bits=recipe.weight_bits, exclude=kept)
    schemes = (unsigned, replace(unsigned, activations="int8"))
    return replace(found, graphs={each.activations: canonicalise(write(prepared, ranges, each)) for each in schemes})


def _merit(expected: Float32, given: Float32, evaluate: Callable[[Float32], float]) -> tuple[float, float]:
    """Score answers, and measure how near they are to the float model's, which decides between equal scores."""
    return evaluate(given), sqnr_db(expected, given)


def _partly_float(
    prepared: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    seen: Float32,
    evaluate: Callable[[onnx.ModelProto], float],
    *,
    reached: float,
    wanted: float,
    max_drop: float,
) -> tuple[onnx.ModelProto, onnx.ModelProto, Scheme, tuple[Kept, ...]]:
    """Write the model with as few layers in float as bring it near enough.

    Args:
        prepared: the float model.
        ranges: its activations' ranges.
        scheme: how to write the other layers.
        seen: windows by which layers are ranked.
        evaluate: how good a model is.
        reached: score of the model with nothing left in float.
        wanted: what is good enough.
        max_drop: how far that is from the float model.

    Returns:
        The float model, its kept layers' weights rounded to half precision where that costs nothing; what is written of
        it; the scheme that did; the layers, and why.
    """
    front = _float_front(prepared, ranges, scheme, evaluate, reached=reached, wanted=wanted)
    mixed = fit_mixed(prepared, ranges, replace(scheme, exclude=front), seen, evaluate, max_drop=max_drop)
    reason = "it comes before the features, whose range eight bits cannot hold"
    kept = (*(Kept(layer=name, reason=reason) for name in front), *mixed.kept)
    halves = round_to_halves(prepared, [one.layer for one in kept])
    stored = write(halves, ranges, mixed.scheme)
    if evaluate(stored) >= mixed.score:
        return halves, stored, mixed.scheme, kept
    return prepared, mixed.model, mixed.scheme, kept


def _float_front(
    prepared: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    evaluate: Callable[[onnx.ModelProto], float],
    *,
    reached: float,
    wanted: float,
) -> tuple[str, ...]:
    """Find the nodes in front of a first layer that do better in float, all together; none if that helps nothing.

    A spectrogram squares and adds what a sensor gives: no layer of it is to blame alone, and the samples themselves may
    need more than eight bits.

    Args:
        prepared: the float model.
        ranges: its activations' ranges.
        scheme: how to write it.
        evaluate: how good a model is.
        reached: score of the model with nothing left in float.
        wanted: what is good enough, and ends the search.
    """
    graph = from_proto(prepared).graph
    best = reached
    front: tuple[str, ...] = ()
    for layer in layers(graph)[1 : 1 + FRONT_LAYERS]:
        names = tuple(sorted(_before(layer.source)))
        score = evaluate(write(prepared, ranges, replace(scheme, exclude=names)))
        if score > best:
            best, front = score, names
        if best >= wanted:
            break
    return front


def _before(tensor: ir.Value) -> set[str]:
    """Name all quantised nodes that a tensor follows from."""
    found: set[ir.Node] = set()
    waiting: list[ir.Value | None] = [tensor]
    while waiting:
        value = waiting.pop()
        node = value.producer() if value is not None else None
        if node is not None and node not in found:
            found.add(node)
            waiting += node.inputs
    return {name_of(node) for node in found if node.op_type in OPERATORS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One student's files.

    Attributes:
        graphs: ONNX graph that each file comes from, at temperature 1, by name of the candidate.
        left_out: why a candidate could not be written, by its name.
        mixed: some layers of the integer ones are in float.
    """

    graphs: Mapping[str, onnx.ModelProto] = field(repr=False)
    left_out: Mapping[str, str]
    mixed: bool = False

    def sources(self, logits: LogitMap = LogitMap()) -> list[VariantSource]:  # noqa: B008 - frozen
        """Write the files, their logits mapped; best bets first, which counts where nothing was measured."""
        return [_source(name, graph, logits, mixed=self.mixed) for name, graph in self.graphs.items()]


def candidates(
    fp32: onnx.ModelProto,
    quantised: Mapping[str, onnx.ModelProto],
    *,
    detector: OodDetector | None = None,
    mixed: bool = False,
) -> Candidates:
    """Write every file that a student can become.

    Args:
        fp32: answers windows with probabilities at temperature 1.
        quantised: the same in integers, by type of activations, see `QuantizedStudent.graphs`.
        detector: shrinks the logits of unfamiliar windows in all of them; None leaves them as they are.
        mixed: some of their layers are in float.
    """
    graphs: dict[str, onnx.ModelProto] = {}
    left_out: dict[str, str] = {}

    def add(name: str, graph: onnx.ModelProto | None) -> None:
        if graph is None:
            left_out[name] = "no layer could become integers within the limits"
            return
        if detector is not None:
            graph = with_ood_detector(graph, detector)
        try:
            _source(name, graph, LogitMap(), mixed=mixed)
        except ConfigError as error:
            left_out[name] = str(error)
        else:
            graphs[name] = graph

    add("tflite-int8", quantised.get("int8"))
    add("onnx-int8-u8s8", quantised.get("uint8"))
    add("onnx-int8-s8s8", quantised.get("int8"))
    add("tflite-fp32", fp32)
    add("onnx-fp32", fp32)
    return Candidates(graphs=graphs, left_out=left_out, mixed=mixed)


def shipped(graph: onnx.ModelProto, logits: LogitMap) -> bytes:
    """Write the ONNX file that ships of a graph; all passes in a row, since reading and writing cost more than they.

    Raises:
        ConfigError: a pass does not take the graph.
    """
    passes = (MapLogits(logits), Canonicalise(), Conv1dToConv2d(), ShieldFloatLayers(), Minimise())
    return bytes(transform(without_traces(graph), *passes).SerializeToString())


def _source(name: str, graph: onnx.ModelProto, logits: LogitMap, *, mixed: bool) -> VariantSource:
    tflite, int8 = name.startswith("tflite"), "int8" in name
    scheme: Literal["", "u8s8", "s8s8"] = ("u8s8" if name.endswith("u8s8") else "s8s8") if int8 else ""
    return VariantSource(
        name=name,
        model=convert(transform(graph, MapLogits(logits)), compact=True) if tflite else shipped(graph, logits),
        format="tflite" if tflite else "onnx",
        precision=("mixed" if mixed else "int8") if int8 else "fp32",
        scheme=scheme,
        targets=targets_for("tflite" if tflite else "onnx", scheme),
        tolerance=TOLERANCE_INT8 if int8 else -1.0,
    )
