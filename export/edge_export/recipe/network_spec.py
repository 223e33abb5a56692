"""Families of networks as values that a recipe can state; `edge_export.learn.networks.build_network` builds them.

Students are made for devices: a few thousand to a few hundred thousand numbers, operators that every int8 engine has.
Teachers are made to be right. All are sized by a width multiplier and a depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from edge_runtime.errors import ConfigError

Pool = Literal["mean", "max", "mean_max", "last"]
"""How the features of all frames become one vector; ``last`` takes the newest frame's, for causal networks."""


def _check_sized(name: str, family: SeparableCnn1d | Tcn | ResNet1d | InceptionTime) -> None:
    _check(
        name,
        width=family.width,
        depth=family.depth,
        kernel=family.kernel,
        reduction=family.reduction,
        dropout=family.dropout,
    )


def _check(name: str, *, width: float, depth: int, dropout: float, kernel: int = 1, reduction: int = 1) -> None:
    if width <= 0 or depth < 1 or kernel < 1:
        raise ConfigError(f"{name}: width {width}, depth {depth}, kernel {kernel}; all must be above 0")
    if reduction < 1 or reduction & (reduction - 1) or reduction > 2 ** (depth + 1):
        raise ConfigError(f"{name}: reduction {reduction}; need a power of two up to {2 ** (depth + 1)}")
    if not 0 <= dropout < 1:
        raise ConfigError(f"{name}: dropout {dropout}; need at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparableCnn1d:
    """Depthwise-separable convolutions along time: the smallest family that works on most sensors.

    Attributes:
        width: 1 means 16 channels behind the first convolution, growing to twice and three times that.
        depth: separable blocks.
        kernel: frames a convolution sees.
        reduction: frames that share one feature at the end; the first layers halve the rate. An update of a stream must
            bring a multiple of it.
        padding: ``valid`` computes nothing from padding, and converts exactly to a stream; ``same`` keeps the length.
        pool: over time.
        dropout: share of features dropped in training.

    Source: Howard et al. 2017 (arXiv:1704.04861).
    """

    width: float = 1.0
    depth: int = 3
    kernel: int = 7
    reduction: int = 4
    padding: Literal["same", "valid"] = "valid"
    pool: Pool = "mean"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _check_sized("separable-cnn-1d", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparableCnn2d:
    """Depthwise-separable convolutions over bands and time, for spectrograms (DS-CNN).

    Attributes:
        width: 1 means 64 channels, as in the reference keyword network.
        depth: separable blocks.
        kernel: bands and frames that the first convolution sees; it halves the bands.
        reduction: of frames, 1 or 2, in the first convolution.
        halvings: number of blocks, the first ones, that halve bands and frames, and the first of them doubles the
            channels: the work goes where the features are few.
        padding: along time; ``valid`` converts exactly to a stream. Bands are always padded.
        pool: over bands and time; ``last`` has no meaning here.
        dropout: share of features dropped in training.

    Source: Zhang et al. 2017, "Hello Edge" (arXiv:1711.07128).
    """

    width: float = 0.5
    depth: int = 4
    kernel: tuple[int, int] = (5, 7)
    reduction: int = 2
    halvings: int = 0
    padding: Literal["same", "valid"] = "valid"
    pool: Literal["mean", "max", "mean_max"] = "mean"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _check(
            "separable-cnn-2d",
            width=self.width,
            depth=self.depth,
            kernel=min(self.kernel),
            reduction=self.reduction,
            dropout=self.dropout,
        )
        if not 0 <= self.halvings <= self.depth:
            raise ConfigError(f"separable-cnn-2d: {self.halvings} halvings; need 0 to {self.depth}, the depth")
        if self.reduction > 2:
            raise ConfigError(f"separable-cnn-2d: reduction {self.reduction}; need 1 or 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcn:
    """Causal dilated convolutions with residual connections: a long memory in few layers.

    Attributes:
        width: 1 means 24 channels.
        depth: residual blocks of two convolutions each; the dilation doubles from block to block.
        kernel: samples a convolution sees.
        reduction: by the first convolution.
        padding: ``causal`` fills the front with zeros, and a stream gives the same answer where the window covers the
            whole memory (`Classifier.memory`) and `pool` is ``last``; ``valid`` fills nothing.
        pool: over time.
        dropout: share of features dropped in training.

    Source: Bai et al. 2018 (arXiv:1803.01271); batch normalisation, which folds away, instead of weight normalisation.
    """

    width: float = 1.0
    depth: int = 4
    kernel: int = 3
    reduction: int = 1
    padding: Literal["causal", "valid"] = "causal"
    pool: Pool = "last"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _check_sized("tcn", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gru:
    """A gated recurrent network behind one strided convolution.

    Attributes:
        width: 1 means 32 units.
        depth: layers.
        kernel: frames the convolution in front sees; it lowers the rate, since a recurrence cannot be computed at once.
        reduction: frames per step.
        pool: ``last`` or ``mean``.
        dropout: share of features dropped in training.

    Source: Cho et al. 2014 (arXiv:1406.1078).
    """

    width: float = 1.0
    depth: int = 1
    kernel: int = 8
    reduction: int = 4
    pool: Literal["mean", "last"] = "mean"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _check("gru", width=self.width, depth=9, kernel=self.kernel, reduction=self.reduction, dropout=self.dropout)
        if not 1 <= self.depth <= 3:
            raise ConfigError(f"gru: depth {self.depth}; need 1 to 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Dense layers over all features at once, for a handful of statistics.

    Attributes:
        width: 1 means 32 units a layer.
        depth: hidden layers.
        dropout: share of features dropped in training.
    """

    width: float = 1.0
    depth: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        _check("mlp", width=self.width, depth=self.depth, dropout=self.dropout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """A random forest of complete trees over all features at once: for statistics of few recordings.

    Trained in seconds, without gradient; a bundle's integers are exact in it but for what the leaves say.

    Attributes:
        trees: number of them.
        depth: comparisons from the root to a leaf; a tree has two to the power of it leaves.
        share: of the features that a node chooses from.

    Source: Breiman 2001, "Random forests".
    """

    trees: int = 16
    depth: int = 4
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.trees <= 500 or not 1 <= self.depth <= 10 or not 0 < self.share <= 1:
            raise ConfigError(
                f"forest: trees {self.trees}, depth {self.depth}, share {self.share}; need 1 to 500, 1 to 10, and a "
                "share above 0 up to 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet1d:
    """A teacher for time series: residual blocks of three convolutions with channel attention.

    Attributes:
        width: 1 means 64 channels, 128 from the second block on.
        depth: residual blocks.
        kernel: samples the longest convolution sees; the two others see 5 and 3.
        reduction: frames that share one feature at the end.
        attention: squeeze and excitation.
        pool: over time.
        dropout: share of features dropped in training.

    Source: Wang et al. 2017 (arXiv:1611.06455), found the best of nine by Fawaz et al. 2019 (arXiv:1809.04356);
    attention by Hu et al. 2018 (arXiv:1709.01507).
    """

    width: float = 1.0
    depth: int = 3
    kernel: int = 9
    reduction: int = 4
    attention: bool = True
    pool: Pool = "mean_max"
    dropout: float = 0.3

    def __post_init__(self) -> None:
        _check_sized("resnet-1d", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InceptionTime:
    """A teacher for time series that looks at several lengths at once.

    Attributes:
        width: 1 means 32 channels per branch, four branches.
        depth: inception modules; every third has a shortcut.
        kernel: samples the longest branch sees; the others see a half and a quarter.
        reduction: frames that share one feature at the end, by average pooling in front of the modules.
        pool: over time.
        dropout: share of features dropped in training.

    Source: Fawaz et al. 2020 (arXiv:1909.04939).
    """

    width: float = 1.0
    depth: int = 6
    kernel: int = 39
    reduction: int = 1
    pool: Pool = "mean"
    dropout: float = 0.2

    def __post_init__(self) -> None:
        _check_sized("inception-time", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet2d:
    """A teacher for spectrograms: residual blocks over bands and time with channel attention.

    Attributes:
        width: 1 means 32 channels, doubled at every block but the first, up to 128.
        depth: residual blocks; each but the first halves bands and frames.
        attention: squeeze and excitation.
        pool: over bands and time.
        dropout: share of features dropped in training.

    Source: He et al. 2016 (arXiv:1512.03385); Hu et al. 2018 (arXiv:1709.01507).
    """

    width: float = 1.0
    depth: int = 4
    attention: bool = True
    pool: Literal["mean", "max", "mean_max"] = "mean_max"
    dropout: float = 0.3

    def __post_init__(self) -> None:
        _check("resnet-2d", width=self.width, depth=self.depth, dropout=self.dropout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rocket:
    """Fixed random convolutions and a ridge regression: closed-form, trained in a minute. As a student a narrow one.

    Attributes:
        width: 1 means 9,996 features: 119 biases for each of 84 kernels. A device takes about 0.02.
        windows: that it is trained on, at most; the time grows with their square.

    Source: Dempster et al. 2021, MiniRocket (arXiv:2012.08791).
    """

    width: float = 1.0
    windows: int = 4000

    def __post_init__(self) -> None:
        if round(119 * self.width) < 1 or not 100 <= self.windows <= 20_000:
            raise ConfigError(
                f"rocket: width {self.width}, windows {self.windows}; need 0.01 or more, and 100 to 20000"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A teacher of features that a given network computes, and a logistic regression on them.

    It sees windows in the units of the channels: the recipe's front end is not in front of it.

    Attributes:
        file: an ONNX model, from windows (n, n_channels, samples) to (n, features) or (n, frames, features); a relative
            path begins at the recipe's folder. Frames are pooled by mean and maximum.
        windows: drawn to train on, beside as many as were recorded.
    """

    file: Path
    windows: int = 2000

    def __post_init__(self) -> None:
        if not 100 <= self.windows <= 100_000:
            raise ConfigError(f"embedding: windows {self.windows}; need 100 to 100000")


Student: TypeAlias = SeparableCnn1d | SeparableCnn2d | Tcn | Gru | Mlp | Forest | Rocket
TeacherFamily: TypeAlias = ResNet1d | InceptionTime | ResNet2d | Rocket | Embedding
SizedFamily: TypeAlias = (
    SeparableCnn1d | SeparableCnn2d | Tcn | Gru | Mlp | ResNet1d | InceptionTime | ResNet2d | Rocket
)
"""Families with a width."""
Family: TypeAlias = Student | TeacherFamily
ClosedForm: TypeAlias = Forest | Rocket | Embedding
"""Families that are trained without gradient, and show no features over time."""
