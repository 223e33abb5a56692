"""A given network's features as a teacher: a logistic regression on them, and both as one ONNX graph.

Windows of one group say little about how strongly to regularise: each is easy beside its neighbours. So the strength,
and how sure the answers are, are what explains groups left out best.

Source: Lin et al. 2020 (arXiv:2002.01322), who train small heads on a frozen embedding of speech.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import torch  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64, Windows
from edge_export.graph.onnx_graph.edge import Edge
from edge_export.graph.onnx_graph.model import from_proto, to_proto
from edge_export.graph.onnx_graph.normalise import normalise
from edge_export.graph.onnx_graph.passes.canonicalise import Canonicalise, without_traces
from edge_export.learn.networks.blocks import Classifier
from edge_export.learn.networks.embedding import EmbeddingBody
from edge_export.learn.training.loop import answer
from edge_export.learn.training.ridge import SHARPNESS
from edge_export.learn.training.teachers import require_alone
from edge_runtime.errors import ConfigError

STRENGTHS = tuple(float(each) for each in np.logspace(0, -4, 9))
"""Weights of half the squared coefficients beside the mean cross-entropy of a window, the strongest first."""
FOLDS = 5
ALONE = (1e-2, 1.0)
"""Strength and factor where there is a single recording: in the middle, and as they are."""


def fit_embedding(network: Classifier, *known: Windows) -> Classifier:
    """Train the last layer of a network whose body is an embedding, in place.

    1. Features are scaled to mean 0 and deviation 1.
    2. The strength is the one whose regressions explain the windows of groups left out best.
    3. The factor of the logits, fitted to the same answers, makes them as sure as they are right.

    Args:
        network: its body is an `EmbeddingBody`.
        known: windows to train on, as recorded and as drawn; they count recordings alike.

    Raises:
        ConfigError: its features are not finite.
    """
    network.eval()
    x = torch.cat([_pooled(network, windows.contexts) for windows in known])
    y = torch.from_numpy(np.concatenate([windows.y for windows in known]))
    mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
    deviation[deviation == 0] = 1
    x = (x - mean) / deviation  # rule 1
    strength, sharpness = _choose(x, y, _deal(known), network.head.out_features)
    weights = _regress(x, y, network.head.out_features, [strength])[-1]
    slopes, level = weights[:-1] / deviation[:, None], weights[-1]
    with torch.no_grad():
        network.head.weight.copy_((sharpness * slopes).T)
        network.head.bias.copy_(sharpness * (level - mean @ slopes))
    return network


def _pooled(network: Classifier, x: Float32) -> torch.Tensor:
    """(n, features) float64 that the last layer sees.

    Raises:
        ConfigError: they are not finite.
    """
    found = [
        network.pooled(torch.from_numpy(answer(network.features, x[at : at + 512]))) for at in range(0, len(x), 512)
    ]
    features = torch.cat(found).double()
    if not features.isfinite().all():
        raise ConfigError(f"embedding {network.body.name}: its features are not finite; check the unit of the windows")
    return features


def _deal(known: Sequence[Windows]) -> Int64:
    """(n,) fold of each window: whole groups, or recordings of a single group; one fold of a single recording."""
    dealt: Int64 = np.zeros(sum(map(len, known)), np.int64)
    for name in ("group", "recording"):
        owner = np.concatenate([getattr(windows, name) for windows in known])
        _, of, counts = np.unique(owner, return_inverse=True, return_counts=True)
        if len(counts) > 1:
            # From the largest on in turns, so that folds are about as large.
            dealt = np.argsort(np.argsort(-counts, kind="stable"))[of] % FOLDS
            break
    return dealt


def _choose(x: torch.Tensor, y: torch.Tensor, fold: Int64, classes: int) -> tuple[float, float]:
    """Strength, and the factor of the logits, with the least cross-entropy of windows left out (rules 2 and 3)."""
    if not fold.any():  # a single recording: nothing can be left out
        return ALONE
    logits = torch.zeros((len(STRENGTHS), len(y), classes), dtype=torch.float64)
    for number in np.unique(fold):
        left = torch.from_numpy(fold == number)
        for place, weights in enumerate(_regress(x[~left], y[~left], classes, STRENGTHS)):
            logits[place, left] = x[left] @ weights[:-1] + weights[-1]
    losses = [[float(functional.cross_entropy(factor * each, y)) for factor in SHARPNESS] for each in logits]
    place, factor = divmod(int(np.argmin(losses)), len(SHARPNESS))
    return STRENGTHS[place], SHARPNESS[factor]


def _regress(x: torch.Tensor, y: torch.Tensor, classes: int, strengths: Sequence[float]) -> list[torch.Tensor]:
    """Fit multinomial logistic regressions: (features + 1, classes) weights for each strength, the level the last row.

    Each begins where the one before has ended; the level is regularised too, so that a class without a window in a
    fold gets no level without end.
    """
    weights = torch.zeros((x.shape[1] + 1, classes), dtype=torch.float64, requires_grad=True)
    found = []
    for strength in strengths:
        descent = torch.optim.LBFGS([weights], max_iter=100, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

        def loss(strength: float = strength, descent: torch.optim.LBFGS = descent) -> torch.Tensor:
            descent.zero_grad()
            value = functional.cross_entropy(x @ weights[:-1] + weights[-1], y) + strength / 2 * (weights**2).sum()
            value.backward()
            return value

        descent.step(loss)
        found.append(weights.detach().clone())
    return found


def check_embedding(network: Classifier, contexts: Float32) -> None:
    """Refuse an embedding whose features of a window depend on the windows beside it.

    Raises:
        ConfigError: they differ by more than rounding.
    """
    body = network.body
    if isinstance(body, EmbeddingBody):
        require_alone(body.run(contexts), body.run(contexts, batch=1), who=f"embedding {body.name}")


def embedding_to_onnx(network: Classifier, temperature: float) -> onnx.ModelProto:
    """Write an embedding and what was trained on it as one graph, from windows to probabilities.

    Args:
        network: its body is an `EmbeddingBody`.
        temperature: above 1 makes answers less certain.
    """
    body, head = network.body, network.head
    assert isinstance(body, EmbeddingBody), "built from the family"
    whole = from_proto(without_traces(normalise(onnx.load_model_from_string(body.model))))
    graph = whole.graph
    end, flow = Edge(graph, "head"), graph.outputs[0]
    if network.sizes:
        by_feature = end.node("Transpose", flow, perm=[0, 2, 1])
        pools = [end.node(kind, by_feature) for kind in ("GlobalAveragePool", "GlobalMaxPool")]
        flow = end.node("Flatten", end.node("Concat", *pools, axis=1), axis=1)
    terms = [end.constant(each.detach().numpy() / temperature, np.float32) for each in (head.weight, head.bias)]
    probabilities = end.node("Softmax", end.node("Gemm", flow, *terms, transB=1), axis=1)
    probabilities.name, probabilities.type = "probabilities", ir.TensorType(ir.DataType.FLOAT)
    probabilities.shape = ir.Shape(["batch", head.out_features])
    graph.outputs[:] = [probabilities]
    return to_proto(Canonicalise()(whole).model)
