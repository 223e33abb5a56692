"""A recipe: the one TOML file that says how a bundle is made. The same recipe, data, seed and versions, the same bytes.

It names data by keys, not folders (``--data har=FOLDER`` on the command line), states where the data comes from and
under which licence, and holds the limits that decide which candidate ships. Unknown keys are errors that name the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edge_export.data.dataset import Dataset, Windows
from edge_export.data.labels import Rule, label_windows
from edge_export.data.readers import Reader
from edge_export.data.split import SplitRecipe
from edge_export.recipe.augmentation import Augmentation
from edge_export.recipe.feature_spec import FrontEnd
from edge_export.recipe.limits import Limits
from edge_export.recipe.network_spec import ClosedForm, Student, TeacherFamily
from edge_export.recipe.report_spec import ReportRecipe
from edge_export.recipe.training_spec import Training
from edge_runtime import schema
from edge_runtime.app.config import parse_as, read_text
from edge_runtime.base.system.iso8601 import parse_date
from edge_runtime.manifest import Channel, InputContract

if not TYPE_CHECKING:
    # The table's `type` chooses the reader; type checkers are given the union.
    Reader = schema.OneOf(
        npz="edge_export.data.readers:NpzReader",
        table="edge_export.data.readers:TableReader",
        wav="edge_export.data.readers:WavReader",
        seglearn="edge_export.data.readers:SeglearnReader",
    )
    Student = schema.OneOf(
        **{
            "separable-cnn-1d": "edge_export.recipe.network_spec:SeparableCnn1d",
            "separable-cnn-2d": "edge_export.recipe.network_spec:SeparableCnn2d",
            "tcn": "edge_export.recipe.network_spec:Tcn",
            "gru": "edge_export.recipe.network_spec:Gru",
            "mlp": "edge_export.recipe.network_spec:Mlp",
            "forest": "edge_export.recipe.network_spec:Forest",
            "rocket": "edge_export.recipe.network_spec:Rocket",
        }
    )
    TeacherFamily = schema.OneOf(
        **{
            "resnet-1d": "edge_export.recipe.network_spec:ResNet1d",
            "resnet-2d": "edge_export.recipe.network_spec:ResNet2d",
            "inception-time": "edge_export.recipe.network_spec:InceptionTime",
            "rocket": "edge_export.recipe.network_spec:Rocket",
            "embedding": "edge_export.recipe.network_spec:Embedding",
        }
    )
    FrontEnd = schema.OneOf(
        **{
            "standardise": "edge_export.recipe.feature_spec:Standardise",
            "filter": "edge_export.recipe.feature_spec:Filter",
            "difference": "edge_export.recipe.feature_spec:FirstDifference",
            "centre": "edge_export.recipe.feature_spec:Centre",
            "spectrogram": "edge_export.recipe.feature_spec:SpectrogramSpec",
            "log-mel": "edge_export.recipe.feature_spec:LogMelSpec",
            "filter-bank": "edge_export.recipe.feature_spec:FilterBankSpec",
            "mfcc": "edge_export.recipe.feature_spec:MfccSpec",
            "statistics": "edge_export.recipe.feature_spec:StatisticsSpec",
        }
    )

ANY = "any"
"""A target: one bundle for every architecture."""

TARGETS = {
    ANY: ANY,
    "cpu": "x86_64",
    "raspberry-pi-3": "aarch64",
    "raspberry-pi-4": "aarch64",
    "raspberry-pi-5": "aarch64",
    "raspberry-pi-zero-2": "aarch64",
    "jetson": "aarch64",
    "arm32": "armv7l",
}
"""What `Recipe.targets` may name, with the architecture as `platform.machine()` calls it, or `ANY`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecipe:
    """A window, and the label that it takes.

    Attributes:
        channels: of the model, in order; those of several messages may say how they are joined.
        rate_hz: the model's rate; recordings of another rate are resampled as the device does it.
        source_rate_hz: rate of recordings without stamps; 0: the model's.
        samples: in a window.
        hop: samples from one window's start to the next one's.
        context: samples that a hard case carries to the cloud, ending with the window; 0: the window alone.
        resample: as `InputContract.resample`.
        snap: as `InputContract.snap`.
        max_gap_s: as `InputContract.max_gap_s`.
        label: which samples name the window, see `edge_export.data.labels.window_label`.
        purity: smallest share of a window's samples that must bear its label.
        same_units: refuse a group whose values differ from all others' by the ratio of two units.
        clip_s: every recording becomes one clip of this length, with silence at both ends where it is shorter, and its
            loudest part where it is longer. 0: recordings stay as they are.
    """

    channels: tuple[Channel, ...]
    rate_hz: float
    source_rate_hz: float = 0.0
    samples: int
    hop: int
    context: int = 0
    resample: Literal["linear", "mean", "previous"] = "linear"
    snap: float = 0.25
    max_gap_s: float = 0.0
    label: Rule = "centre"
    purity: float = 0.0
    same_units: bool = True
    clip_s: float = 0.0

    def __post_init__(self) -> None:
        self.contract()
        if not 0 <= self.purity <= 1:
            raise ValueError("purity must be 0 to 1")
        if self.clip_s and round(self.clip_s * (self.source_rate_hz or self.rate_hz)) < self.samples:
            raise ValueError("clip_s must be 0 or at least a window long")

    def contract(self) -> InputContract:
        """Return the bundle's input contract."""
        return InputContract(
            channels=self.channels,
            rate_hz=self.rate_hz,
            window=self.samples,
            hop=self.hop,
            context=self.context,
            resample=self.resample,
            snap=self.snap,
            max_gap_s=self.max_gap_s,
        )

    def cut(self, recordings: Dataset) -> Windows:
        """Cut recordings into windows with labels, as a device would."""
        return label_windows(recordings, self.contract(), rule=self.label, purity=self.purity)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRecipe:
    """The cloud's model: trained on the spot, or an ONNX file that is given (``--teacher MODEL.onnx``).

    Attributes:
        candidates: networks to train, smallest first; the smallest within `within` of the best is taken.
        members: networks of the largest ensemble that is tried of the best candidate; 1 tries none. An embedding
            has none: its members would answer alike.
        training: of each network; a rocket and an embedding need none.
        within: accuracy (or macro F1) on validation groups that a smaller network may lack.
        given: what a file that is given answers with, instead of `candidates`; it takes windows with their context,
            (batch, n_channels, samples) in the units of the channels.
    """

    candidates: tuple[TeacherFamily, ...] = ()
    members: int = 1
    training: Training | None = None
    within: float = 0.003
    given: Literal["", "probabilities", "logits"] = ""

    def __post_init__(self) -> None:
        if bool(self.candidates) == bool(self.given):
            raise ValueError("name candidates to train, or say what a given model answers with; one of them")
        if self.training is None and not all(isinstance(family, ClosedForm) for family in self.candidates):
            raise ValueError("candidates need training")
        if self.members < 1:
            raise ValueError("members must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentRecipe:
    """The device's model.

    Attributes:
        network: family and size.
        front_end: stages in front of it in place of the recipe's, which then are the teacher's alone; none: the same.
        training: of the network; a forest and a rocket need none.
        pool: windows that the teacher labels for it.
        temperature: softens both answers in training.
        teacher_share: weight of the teacher's answers against labels.
        method: ``hinton`` or ``decoupled``, see `edge_export.learn.training.distill.Distillation`.
        ranking: weight of the ranking of wrong classes, where decoupled.
        weights: how exactly the trained weights of float files are held. ``float16`` rounds them to numbers that half
            precision holds: files are half as large, compute in float32 as before, and answers move in their fourth
            digit.
        hints: weight of the teacher's features; its candidates and the student then need the same family of front end.
    """

    network: Student
    training: Training | None = None
    front_end: tuple[FrontEnd, ...] = ()
    weights: Literal["float16", "float32"] = "float32"
    pool: int = 8192
    temperature: float = 2.0
    teacher_share: float = 0.7
    method: Literal["hinton", "decoupled"] = "hinton"
    ranking: float = 4.0
    hints: float = 0.0

    def __post_init__(self) -> None:
        closed = isinstance(self.network, ClosedForm)
        if self.training is None and not closed:
            raise ValueError("the network needs training")
        if closed and self.hints:
            raise ValueError(
                "a forest or rocket has no features over time to compare with the teacher's; leave hints out"
            )
        if not 0 <= self.teacher_share <= 1:
            raise ValueError("teacher_share must be 0 to 1")
        if self.pool < 64:
            raise ValueError("pool must be at least 64")
        if self.hints < 0 or self.ranking < 0:
            raise ValueError("hints and ranking must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRecipe:
    """Channels that leave the trained student, a few at a time, with training on the teacher's answers after each step.

    Attributes:
        ratio: share of channels to take out.
        steps: number of steps that it is done in.
        criterion: what makes a channel matter little, see `edge_export.learn.prune.parameter_scores`.
        scope: see `edge_export.learn.prune.Pruning`.
        round_to: widths become multiples of it.
        max_drop: accuracy (or macro F1) on validation groups that may be lost against the whole student; a step that
            loses more is taken back and ends it.
        training: after each step.
    """

    ratio: float
    steps: int = 2
    criterion: Literal["magnitude_l1", "magnitude_l2", "taylor", "fisher"] = "taylor"
    scope: Literal["layer", "global"] = "global"
    round_to: Literal[1, 2, 4, 8, 16] = 8
    max_drop: float = 0.005
    training: Training

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1 or self.steps < 1 or self.max_drop < 0:
            raise ValueError("ratio must be above 0 and below 1, steps at least 1, max_drop not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantiseRecipe:
    """The quantisation of the student.

    Attributes:
        ranges: ways to find the ranges of activations; validation groups choose among them.
        calibration_windows: training windows that the ranges come from.
        weight_bits: 7 gives the same answers on every processor, see `edge_export.graph.quantize.Scheme`.
        mixed: where the integers lose more than ``limits.max_accuracy_drop``, leave the layers that do most harm in
            float.
        training: of the student with its rounding in the forward pass (quantisation-aware training), as one more way
            to choose among; None leaves it out.
    """

    ranges: tuple[Literal["minmax", "percentile", "entropy", "mse"], ...] = ("minmax", "mse", "percentile")
    calibration_windows: int = 512
    weight_bits: Literal[7, 8] = 7
    mixed: bool = True
    training: Training | None = None

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ValueError("ranges needs at least one way")
        if self.calibration_windows < 16:
            raise ValueError("calibration_windows must be at least 16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencesRecipe:
    """References of the device's bundle: what sensors delivered in training: another unit, or mounting, is told by it.

    Attributes:
        triads: names of channels that are the axes of one sensor, whose norm is measured; empty: found by name and
            unit (``ax``, ``ay`` and ``az`` in g).
    """

    triads: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecipe:
    """The promise about windows that go to the cloud: one of two.

    Attributes:
        max_local_error: at most this share of wrong answers among those that stay local, with `confidence`.
        max_forwarded: at most this share of windows goes to the cloud.
        confidence: of the promise about errors.
        score: of the gate; ``auto`` takes the one that ranks wrong answers lowest on validation groups.
        unfamiliar: windows unlike those of training are doubted, whatever the network says of them; see
            `edge_export.graph.onnx_graph.out_of_distribution`.
    """

    max_local_error: float = 0.0
    max_forwarded: float = 0.0
    confidence: float = 0.95
    score: Literal["auto", "confidence", "margin", "entropy"] = "auto"
    unfamiliar: bool = True

    def __post_init__(self) -> None:
        if bool(self.max_local_error) == bool(self.max_forwarded):
            raise ValueError("name max_local_error or max_forwarded, one of them")
        if not 0 <= self.max_local_error < 1 or not 0 <= self.max_forwarded < 1 or not 0.5 <= self.confidence < 1:
            raise ValueError("shares must be below 1, and confidence 0.5 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SurroundRecipe:
    """Parts around the network that are tried, and kept where they win on groups left out (`choose.surround`).

    Attributes:
        over_time: what a key's answers before say about this one.
        hold: the share of windows that goes to the cloud holds for every key, by a threshold of its own.
    """

    over_time: bool = True
    hold: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The whole file."""

    name: str
    version: int
    description: str = ""
    created: str
    """ISO 8601 date that the bundle carries; written here, so that the same recipe gives the same bytes."""
    expires: str = ""
    seed: int = 0
    classes: tuple[str, ...]
    metric: Literal["accuracy", "macro_f1"] = "accuracy"
    """What decides, on validation groups; macro F1 where classes are of very different size."""
    targets: tuple[str, ...] = ("cpu",)
    data: tuple[Reader, ...]
    window: WindowRecipe
    split: SplitRecipe = field(default_factory=SplitRecipe)
    augmentation: Augmentation = field(default_factory=Augmentation)
    front_end: tuple[FrontEnd, ...] = ()
    """Stages in front of both networks, in the order of computation; none: the samples themselves. A student may have
    its own, see `StudentRecipe`."""
    standardise: Literal["rows", "together", "none"] = "rows"
    """Offset and scale behind the stages, from training groups: one of each per row, or one for all."""
    balance: Literal["classes", "root", "none"] = "root"
    """How often training draws each class, see `edge_export.learn.augment.sampling.PlaceSampler`."""
    teacher: TeacherRecipe
    student: StudentRecipe
    prune: PruneRecipe | None = None
    """None leaves the student as it was trained."""
    quantise: QuantiseRecipe = field(default_factory=QuantiseRecipe)
    stream_hop: int = 0
    """Samples from one window to the next of the streaming bundles (see `package.streaming_bundle`), which are then
    made and timed beside the windowed ones; 0 makes none."""
    variants: Literal["best", "all"] = "best"
    """What a bundle holds: the best file of each format, or all that nothing else beats."""
    limits: Limits = field(default_factory=Limits)
    """What may ship, see `edge_export.recipe.limits.Limits`."""
    gate: GateRecipe
    surround: SurroundRecipe | None = None
    """None tries none of it: each answer is what the network says of one window."""
    references: ReferencesRecipe | None = None
    """None writes none, and a bundle that earlier releases read."""
    report: ReportRecipe | None = None
    """None compares with the build's own peers alone."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", self.name):
            raise ValueError("name must be of a-z, 0-9, '.', '_' and '-', at most 64 of them")
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise ValueError("classes needs two or more names, all different")
        if not self.data:
            raise ValueError("at least one [[data]] is needed")
        keys = [reader.key for reader in self.data]
        if len(set(keys)) != len(keys):
            raise ValueError("each [[data]] needs a key of its own")
        if sum(reader.share > 0 for reader in self.data) > 1 or all(reader.share for reader in self.data):
            raise ValueError("share is for one [[data]] beside others without; put its files into one folder")
        for day in filter(None, (self.created, self.expires)):
            parse_date(day)
        for target in self.targets:
            if target not in TARGETS:
                raise ValueError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
        if (self.split.refit or self.split.folds) and self.prune is not None:
            raise ValueError(
                "split.refit or folds and [prune] exclude each other: channels would be chosen again, with no group "
                "left to judge by; leave one of the two out"
            )
        self._check_gradients()
        self._check_augmentation()
        self._check_references()

    def _check_gradients(self) -> None:
        closed = isinstance(self.student.network, ClosedForm)
        if closed and (self.prune is not None or self.quantise.training is not None):
            raise ValueError("a forest or rocket is not trained by gradient: leave [prune] and [quantise.training] out")

    def _check_references(self) -> None:
        unit = {channel.name: channel.unit for channel in self.window.channels}
        for triad in self.references.triads if self.references is not None else ():
            for name in triad:
                if name not in unit:
                    raise ValueError(f"references names channel {name!r}; the window has {', '.join(unit)}")
            if len(set(triad)) != len(triad) or len({unit[name] for name in triad}) != 1:
                raise ValueError(f"references: {', '.join(triad)} must be different channels of one unit")

    def _check_augmentation(self) -> None:
        names = [channel.name for channel in self.window.channels]
        for named in (*self.augmentation.rates, *(name for triad in self.augmentation.triads for name in triad)):
            if named not in names:
                raise ValueError(f"augmentation names channel {named!r}; the window has {', '.join(names)}")
        if self.augmentation.noise and len(self.augmentation.noise) not in (1, len(names)):
            raise ValueError(f"augmentation.noise needs one number, or one for each of {len(names)} channels")
        if self.augmentation.mirror and len(self.augmentation.mirror) != len(names):
            raise ValueError(f"augmentation.mirror needs a factor for each of {len(names)} channels")


def load(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return parse(read_text(path), path)


def parse(text: str, path: Path) -> Recipe:
    """As `load`, for a text that was read already; `path` names it in errors, and its folder begins relative paths."""
    return parse_as(Recipe, text, path, base=path.parent, whole="recipe")
