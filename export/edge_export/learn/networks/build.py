"""From a family and a front end to a network that can be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.learn.features.modules import build_front_end
from edge_export.learn.networks import students, teachers
from edge_export.learn.networks.blocks import Classifier, stretched
from edge_export.learn.networks.embedding import EmbeddingBody
from edge_export.learn.networks.forest import ForestBody
from edge_export.learn.networks.rocket import BIASES, TAPS, RocketBody
from edge_export.recipe.feature_spec import FeatureShape, FrontEnd, Raw
from edge_export.recipe.network_spec import (
    ClosedForm,
    Embedding,
    Family,
    Forest,
    Gru,
    InceptionTime,
    Mlp,
    Pool,
    ResNet1d,
    ResNet2d,
    Rocket,
    SeparableCnn1d,
    SeparableCnn2d,
    Tcn,
)
from edge_runtime.errors import ConfigError

_LEARNT: Final[Mapping[type[Family], Callable[[Any, FeatureShape], tuple[nn.Module, int]]]] = {
    SeparableCnn1d: students.separable_1d,
    SeparableCnn2d: students.separable_2d,
    Tcn: students.tcn,
    Gru: students.gru,
    Mlp: students.mlp,
    ResNet1d: teachers.resnet_1d,
    InceptionTime: teachers.inception_time,
    ResNet2d: teachers.resnet_2d,
}
"""Builders of the families that are trained by gradient."""


def build_network(family: Family, front_end: FrontEnd, *, channels: int, samples: int, classes: int) -> Classifier:
    """Build a network with random weights (from torch's generator: seed it with `learn.training.loop.start`).

    Args:
        family: kind and size of the network.
        front_end: what its body sees; an embedding sees windows as they are.
        channels: number of the window's channels.
        samples: number of the window's samples.
        classes: number of labels.

    Returns:
        (batch, channels, samples) in physical units to (batch, classes) logits.

    Raises:
        ConfigError: the window is too short for the front end or for the body's convolutions; says for which.
    """
    seen = Raw() if isinstance(family, Embedding) else front_end
    front, shape = build_front_end(seen, channels=channels, samples=samples)
    body, width = _body(family, shape)
    try:
        with torch.no_grad():
            features = body.eval()(torch.zeros(1, shape.rows, shape.frames))
    except RuntimeError as error:
        raise ConfigError(_too_short(family, shape)) from error
    finally:
        body.train()
    sizes = tuple(int(size) for size in features.shape[2:])
    if 0 in sizes:
        raise ConfigError(_too_short(family, shape))
    stride, memory = _reach(family, shape)
    return Classifier(
        front=front,
        body=body,
        pool=_pool(family),
        width=width,
        sizes=sizes,
        classes=classes,
        dropout=0.0 if isinstance(family, ClosedForm) else family.dropout,
        reach=(stride * shape.hop, memory and (memory - 1) * shape.hop + 1),
    )


def _pool(family: Family) -> Pool:
    match family:
        case Mlp() | Forest() | Rocket():
            return "mean"
        case Embedding():
            return "mean_max"
        case _:
            return family.pool


def _too_short(family: Family, shape: FeatureShape) -> str:
    return (
        f"{type(family).__name__} with this depth, kernel and reduction needs more than the {shape.frames} frames of "
        f"{shape.rows} rows it is given; lengthen the window, shorten the hop of the front end, or take less of them"
    )


def _body(family: Family, shape: FeatureShape) -> tuple[nn.Module, int]:
    match family:
        case Forest():
            forest = ForestBody(family.trees, family.depth)
            return forest, forest.width
        case Rocket():
            if shape.frames < TAPS:
                raise ConfigError(f"rocket needs windows of {TAPS} frames or more, and is given {shape.frames}")
            rocket = RocketBody(shape.rows, shape.frames, round(BIASES * family.width))
            return rocket, rocket.width
        case Embedding():
            embedding = EmbeddingBody(family.file, shape.rows, shape.frames)
            return embedding, embedding.width
        case _:
            return _LEARNT[type(family)](family, shape)


def _reach(family: Family, shape: FeatureShape) -> tuple[int, int]:
    """Frames between features, and frames that one feature depends on (0: all of them, or more than can be said)."""
    match family:
        case SeparableCnn1d():
            stride = memory = 1
            halvings = family.reduction.bit_length() - 1
            for layer in range(family.depth + 1):
                step = 2 if layer < halvings else 1
                memory += (stretched(family.kernel, step) - 1) * stride
                stride *= step
            return stride, memory
        case SeparableCnn2d():
            stride, memory = family.reduction, stretched(family.kernel[1], family.reduction)
            for block in range(family.depth):
                step = 2 if block < family.halvings else 1
                memory += (stretched(3, step) - 1) * stride
                stride *= step
            return stride, memory
        case Tcn():
            stem = max(family.kernel, family.reduction)
            return family.reduction, stem + family.reduction * 2 * (family.kernel - 1) * (2**family.depth - 1)
        case Gru():
            return family.reduction, 0
        case Mlp() | Forest() | Rocket() | Embedding():
            return shape.frames, shape.frames
        case ResNet1d() | InceptionTime():
            return family.reduction, 0
        case ResNet2d():
            return 2 ** (family.depth - 1), 0
