"""Packing of a bundle: contracts, model files and golden vectors in, one ``.edge`` file out.

The same arguments give the same bytes: nothing of the clock, the machine or the path gets in. Expected outputs are
what each variant answers on the real engine here; a device replays them on its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from edge_export.package.put_in_place import put_in_place
from edge_runtime import manifest
from edge_runtime.errors import BundleError, InputError
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import (
    AnyOutput,
    File,
    GateSpec,
    InputContract,
    Manifest,
    OutputContract,
    Reference,
    SensorReference,
    Stage,
    StageFile,
    Surround,
    Variant,
)
from edge_runtime.model import engines
from edge_runtime.model.bundle import archive, npy
from edge_runtime.model.bundle.bundle import MANIFEST, SIGNATURE
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.chain.load import join_variant
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.serving.states import bytes_per_key

if TYPE_CHECKING:
    from edge_export.package.sign import SigningKey  # needs cryptography

Floats = npt.NDArray[np.float32]
_Entry = TypeVar("_Entry", Variant, StageFile)

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "mixed": 4e-2, "int8": 4e-2}
"""Default tolerances by precision, absolute, on probabilities.

fp32 differed by up to 5e-7 between x86-64 and arm64. Integer kernels of LiteRT differed by up to 0.027 between the
two machines for the same file, with the same most probable label, while those of ONNX Runtime and tflite-runtime were
bit-identical; x86 processors without VNNI saturate inside some unsigned kernels.
"""

CARD = "card.md"
GOLDEN_INPUTS = "golden/inputs.npy"
_SHAPELY = 0.01
"""Rounding that a channel of the golden inputs may bear, as a share of its deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSource(StageFile):
    """Model file of another stage of a chain, to be packed; the packer fills in `file`, `size` and `sha256`."""

    model: bytes = field(repr=False)
    file: str = ""
    size: int = 0
    sha256: str = ""
    tensors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSource(Variant):
    """Model file to be packed; the packer fills in `file`, `size`, `sha256` and `golden`."""

    model: bytes = field(repr=False)
    file: str = ""
    size: int = 0
    sha256: str = ""
    golden: str = ""
    tolerance: float = -1.0
    """Below 0 takes `TOLERANCE` of the precision."""
    others: tuple[StageSource, ...] = ()

    @property
    def contents(self) -> list[bytes]:
        """Contents of its model files, in the order of the stages."""
        return [*(other.model for other in self.others), self.model]


def pack(
    path: str | Path,
    *,
    name: str,
    version: int,
    input: InputContract,  # noqa: A002 - the manifest's own word
    output: AnyOutput,
    variants: Sequence[VariantSource],
    golden_inputs: npt.NDArray[np.floating[Any]],
    stages: Sequence[Stage] = (),
    answer: Sequence[str] = (),
    gate: GateSpec | None = None,
    references: Sequence[Reference] = (),
    sensors: SensorReference | None = None,
    events: Sequence[EventRule] = (),
    surround: Surround | None = None,
    description: str = "",
    created: str = "",
    expires: str = "",
    card: str = "",
    files: Mapping[str, bytes] | None = None,
    provenance: Mapping[str, Any] | None = None,
    options: EngineOptions | None = None,
    signer: SigningKey | None = None,
) -> Manifest:
    """Write a bundle, and open it again before it takes the path's place.

    Args:
        path: the ``.edge`` file; replaced in one step, so a reader sees the old one or the new one.
        name: the model's name.
        version: only ever rises.
        input: what a window is.
        output: what the answers are.
        variants: variants in order of preference; the first that runs on a device is taken where nothing was measured.
        golden_inputs: (n, channels, samples) float32, or float16 (see `in_halves`) to be stored so; a few windows that
            reach every label and both ends of the range. Of a chain with states: the steps of one stream.
        stages: what is computed of a window; empty: each variant's file takes it and gives the answer.
        answer: tracks that make the answer; empty takes the last stage's.
        gate: rule by which a window is hard.
        references: range of the channels over the training data.
        sensors: features of the training windows, and the faults that are told by them.
        events: rules tuned with the model.
        surround: what the answers become; None: each is what the network says of one window.
        description: one line for people.
        created: ISO 8601 date, from the recipe.
        expires: ISO 8601 date after which devices refuse the bundle.
        card: model card, Markdown.
        files: further files by name.
        provenance: recipe, data and teacher digests, versions, licences.
        options: settings for the engines that compute the golden outputs.
        signer: signs the bundle; None leaves it unsigned.

    Returns:
        The manifest as written.

    Raises:
        BundleError: a variant does not answer with finite probabilities, or the arguments contradict each other.
        EngineError: an engine refuses a variant.
        IncompatibleError: no engine for a variant is installed.
    """
    path = Path(path)
    inputs = _checked(golden_inputs, input)
    contents = _further(files or {}, card)
    contents[GOLDEN_INPUTS] = npy.dump(golden_inputs if golden_inputs.dtype == np.float16 else inputs)
    models: dict[str, bytes] = {}
    entries = []
    for source in variants:
        golden = f"golden/{source.name}.npy"
        entry = _variant(source, golden)
        answers, state_bytes = _answers(source, inputs, (input, output), stages, answer, options or EngineOptions())
        contents[golden] = npy.dump(answers)
        if state_bytes:
            entry = replace(entry, cost=entry.cost | {"state_bytes": float(state_bytes)})
        models |= {file.file: data for file, data in zip(entry.models, source.contents, strict=True)}
        entries.append(entry)
    try:
        result = Manifest(
            schema_version=manifest.needed_schema(
                input, references, events, output=output, stages=stages, sensors=sensors, surround=surround
            ),
            name=name,
            version=version,
            description=description,
            created=created,
            expires=expires,
            input=input,
            output=output,
            gate=gate or GateSpec(),
            stages=tuple(stages),
            answer=tuple(answer),
            references=tuple(references),
            sensors=sensors,
            events=tuple(events),
            surround=surround,
            variants=tuple(entries),
            golden_inputs=GOLDEN_INPUTS,
            files=tuple(
                File(file=file, size=len(data), sha256=_sha256(data)) for file, data in sorted(contents.items())
            ),
            provenance=dict(provenance or {}),
        )
        packed = {MANIFEST: manifest.dump(result), **contents, **models}
        if signer is not None:
            packed[SIGNATURE] = signer.signature(name, {file: _sha256(data) for file, data in packed.items()})
        data = archive.pack(packed)
    except ValueError as error:
        raise BundleError(f"cannot pack {path.name}: {error}") from error
    put_in_place(path, data, None if signer is None else [signer.public])
    return result


def _checked(golden_inputs: npt.NDArray[np.floating[Any]], contract: InputContract) -> Floats:
    """Arrange the golden inputs as models take them."""
    inputs: Floats = np.ascontiguousarray(golden_inputs, dtype=np.float32)
    window = (len(contract.channels), contract.window)
    if inputs.ndim != 3 or inputs.shape[1:] != window or not len(inputs) or not np.isfinite(inputs).all():
        raise BundleError(f"golden_inputs must be finite, of shape (n, {window[0]}, {window[1]}); got {inputs.shape}")
    return inputs


def _further(files: Mapping[str, bytes], card: str) -> dict[str, bytes]:
    """Compile what a bundle holds besides its models and what they answer."""
    if reserved := sorted(files.keys() & {MANIFEST, SIGNATURE, CARD}):
        raise BundleError(f"{reserved[0]} is not a name for a further file")
    return {**files, CARD: card.encode()} if card else dict(files)


def in_halves(inputs: Floats) -> npt.NDArray[np.floating[Any]]:
    """Golden inputs as float16, where that leaves every channel its shape; else as they are.

    They only have to be windows that the model could meet, and the same ones everywhere: half the bytes do.
    """
    with np.errstate(over="ignore"):
        halved = inputs.astype(np.float16)
    error = np.abs(halved.astype(np.float32) - inputs).max(axis=(0, 2))
    return halved if (error <= _SHAPELY * inputs.std(axis=(0, 2))).all() else inputs


def golden_outputs(
    source: VariantSource,
    inputs: Floats,
    output: OutputContract,
    options: EngineOptions,
) -> Floats:
    """Compute a variant's answers to the golden inputs on the best engine here.

    Args:
        source: the variant.
        inputs: (n, channels, samples).
        output: names the labels.
        options: settings for the engine.

    Returns:
        (n, labels) probabilities.

    Raises:
        BundleError: the answers are not finite probabilities, one row per window.
        EngineError, IncompatibleError: the model cannot be loaded or run.
    """
    engine = engines.load(engine_for(source), source.model, options)
    try:
        answers = engine.run(arrange(inputs, source))
    except InputError as error:
        raise BundleError(f"variant {source.name} does not take the windows of the contract: {error}") from error
    finally:
        engine.close()
    expected = (len(inputs), len(output.labels))
    if not answers or answers[0].shape != expected:
        found = answers[0].shape if answers else None
        raise BundleError(f"variant {source.name} answers with shape {found}, the labels call for {expected}")
    y: Floats = np.array(answers[0], dtype=np.float32)
    # Integer softmax has 1/256 as its step, so each of its labels may be off by half of that.
    slack = 1e-3 + (len(output.labels) / 256 if source.precision != "fp32" else 0.0)
    if not np.isfinite(y).all() or y.min() < -slack or np.abs(y.sum(axis=1) - 1).max() > slack:
        raise BundleError(f"variant {source.name} does not answer with probabilities; put the softmax into its graph")
    return y


def _answers(
    source: VariantSource,
    inputs: Floats,
    contracts: tuple[InputContract, AnyOutput],
    stages: Sequence[Stage],
    answer: Sequence[str],
    options: EngineOptions,
) -> tuple[Floats, int]:
    """Compute golden answers: of one model that gives probabilities, or of a chain, which may give any numbers.

    Returns:
        The answers, and the bytes that the states of a key take.
    """
    contract, output = contracts
    if isinstance(output, OutputContract) and not stages:
        return golden_outputs(source, inputs, output, options), 0
    data = source.model
    if stages:
        data = join_variant(stages, answer, contract, source, source.contents)
    engine = engines.load(engine_for(source), data, options)
    try:
        windows = arrange(inputs, source)
        answers = play(engine, windows)[0] if len(engine.inputs) > 1 else np.array(engine.run(windows)[0], np.float32)
    except InputError as error:
        raise BundleError(f"variant {source.name} does not take the windows of the contract: {error}") from error
    finally:
        engine.close()
    if answers.shape[1:] != output.shape:
        raise BundleError(
            f"variant {source.name} answers with shape {answers.shape[1:]}, the output calls for {output.shape}"
        )
    if not np.isfinite(answers).all():
        raise BundleError(f"variant {source.name} answers golden inputs with numbers that are not finite")
    return answers, bytes_per_key(engine.inputs[1:])


def _variant(source: VariantSource, golden: str) -> Variant:
    stem = f"variants/{source.name}"
    others = [_entry(StageFile, other, file=f"{stem}.{other.stage}.{other.format}") for other in source.others]
    return _entry(
        Variant,
        source,
        file=f"{stem}.{source.format}",
        others=tuple(others),
        golden=golden,
        tolerance=TOLERANCE[source.precision] if source.tolerance < 0 else source.tolerance,
    )


def _entry(kind: type[_Entry], source: VariantSource | StageSource, **known: Any) -> _Entry:
    """Return a manifest's entry of a file: the source's fields, with what is known now."""
    known |= {"size": len(source.model), "sha256": _sha256(source.model)}
    return kind(**{one.name: known.get(one.name, getattr(source, one.name)) for one in fields(kind)})


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
