"""From model files and their card to a bundle: fitted, tried where they may die, compared, packed."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import onnx

from edge_export.card.onnx_edges import Fitted, fit_onnx
from edge_export.card.original import Question, compare
from edge_export.card.spec import NO_CLASSES, Card
from edge_export.data.dataset import Float32
from edge_export.data.readers import Origin
from edge_export.onnx_graph.passes.canonicalise import canonicalise
from edge_export.onnx_graph.passes.conv2d import as_conv2d
from edge_export.package.pack import VariantSource, pack
from edge_export.selection.timing import answers, arrange
from edge_runtime.errors import BundleError, ConfigError, EdgeError, EngineError, IncompatibleError
from edge_runtime.manifest import Manifest, Reference, SensorReference
from edge_runtime.model import engines
from edge_runtime.model.tuning.timing.child import trial
from edge_runtime.model.tuning.timing.interleaved import Candidate

if TYPE_CHECKING:
    from edge_export.package.sign import SigningKey

_CALLS = 3
DIFFERENCE = {"fp32": 1e-3, "fp16": 2e-2, "mixed": 0.15, "int8": 0.15}
"""Largest difference of two files' probabilities for one window, by the coarser precision of the two. Other rounding
explains as much; more is another model, another scaling or another order of axes."""


Expect = Callable[[Callable[[Float32], Float32]], tuple[tuple[Reference, ...], SensorReference | None]]
"""Takes a function from windows (n, channels, samples) to probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Answers of one file on one engine beside those of the first file.

    Attributes:
        name: of the variant.
        engine: that answered.
        worst: largest difference of a probability.
        flips: windows whose most probable label differs.
    """

    name: str
    engine: str
    worst: float
    flips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Result of packing.

    Attributes:
        manifest: of the bundle.
        changes: what was put into each file, by variant.
        compared: every file on every engine installed here, the first file on its best engine being the reference.
        left_out: why a file is not in the bundle, by name.
        original: what the first file as it came answers, beside the packed one; for people.
    """

    manifest: Manifest
    changes: dict[str, tuple[str, ...]]
    compared: tuple[Compared, ...]
    left_out: dict[str, str]
    original: str


def pack_models(
    path: Path,
    files: Sequence[Path],
    card: Card,
    golden_inputs: Float32,
    *,
    also_tflite: bool = False,
    max_difference: float | None = None,
    expect: Expect | None = None,
    signer: SigningKey | None = None,
) -> Packed:
    """Write a bundle of one model, in one or several files.

    Args:
        path: the ``.edge`` file.
        files: ONNX and TensorFlow Lite files of the same model, in order of preference.
        card: what they eat and answer.
        golden_inputs: (n, channels, samples) in physical units.
        max_difference: largest difference of two files' probabilities for one window; None takes `DIFFERENCE`.
        also_tflite: write an ONNX model as TensorFlow Lite too. If an operator cannot be written, or the file does not
            run or answers otherwise, it is left out, and `Packed.left_out` says why.
        expect: measures what the bundle expects of its sensors, by the answers of the first file; None: nothing.
        signer: signs the bundle; None leaves it unsigned.

    Raises:
        ConfigError: a file does not fit the card, or two files are not the same model.
        BundleError: a file does not answer with probabilities.
        EngineError: an engine refuses a file, or dies of it.
        IncompatibleError: no engine for a file is installed.
    """
    contents = {file: _read(file) for file in files}
    chosen = _variants(contents, card, golden_inputs, also_tflite=also_tflite, max_difference=max_difference)
    first = next(iter(chosen.sources.values()))
    references, sensors = expect(functools.partial(answers, first)) if expect is not None else ((), None)
    result = pack(
        path,
        name=card.name,
        version=card.version,
        description=card.description,
        created=card.created,
        expires=card.expires,
        input=card.input.contract(),
        output=card.output.contract(),
        gate=card.gate,
        variants=list(chosen.sources.values()),
        golden_inputs=golden_inputs,
        references=references,
        sensors=sensors,
        card=_text(card, chosen.changes),
        provenance={
            "origin": asdict(card.origin),
            "files": {file.name: hashlib.sha256(data).hexdigest() for file, data in contents.items()},
            "changes": {name: list(own) for name, own in chosen.changes.items()},
        },
        signer=signer,
    )
    return Packed(
        manifest=result, changes=chosen.changes, compared=chosen.compared, left_out=chosen.left_out,
        original=chosen.original,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variants:
    """Files that were tried, and what is told of them; the fields are those of `Packed`."""

    sources: dict[str, VariantSource]
    changes: dict[str, tuple[str, ...]]
    compared: tuple[Compared, ...]
    left_out: dict[str, str]
    original: str


def _variants(
    contents: Mapping[Path, bytes],
    card: Card,
    windows: Float32,
    *,
    also_tflite: bool,
    max_difference: float | None,
) -> _Variants:
    """Fit, try and compare the files given, then the TensorFlow Lite file that is written of the ONNX one."""
    fitted: dict[str, VariantSource] = {}
    changes: dict[str, tuple[str, ...]] = {}
    for file, data in contents.items():
        source, made = _fitted(file, data, card)
        if source.name in fitted:
            raise ConfigError(f"{file}: a bundle holds one {source.name}, and there are two; pack them apart")
        fitted[source.name], changes[source.name] = source, made.changes
    written, left_out = _written_tflite(fitted) if also_tflite else (None, {})
    sources = {name: _with_conv2d(source) for name, source in fitted.items()}
    for source in sources.values():
        _check(source, windows, card)
    original = _as_original(next(iter(contents)), next(iter(contents.values())), card, windows, sources)
    compared = _compare(sources, windows, max_difference)
    if written is not None:
        try:
            _check(written, windows, card)
            compared = _compare({**sources, written.name: written}, windows, max_difference)
        except EdgeError as error:
            # The file that was given is as good as before.
            left_out = {written.name: str(error)}
        else:
            sources[written.name] = written
            changes[written.name] = ("written from the ONNX file", *next(iter(changes.values())))
    for name, source in fitted.items():
        if sources[name] is not source:
            changes[name] = (*changes[name], "Conv1d as Conv2d")
    return _Variants(sources=sources, changes=changes, compared=compared, left_out=left_out, original=original)


def _as_original(file: Path, data: bytes, card: Card, windows: Float32, sources: Mapping[str, VariantSource]) -> str:
    """Compare the first file's answers with those of the file as it came."""
    source, own = next(iter(sources.values())), card.input
    question = Question(
        file=str(file), format=source.format, precision=source.precision,
        layout="" if own.layout == "auto" else own.layout,
        offset=[channel.offset for channel in own.channels], scale=[channel.scale for channel in own.channels],
        values="" if card.output.values == "probabilities" else card.output.values,
        temperature=card.output.temperature,
    )  # fmt: skip
    few = windows[:_CALLS]
    return compare(question, data, few.transpose(0, 2, 1), [answers(source, few)])


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


def _fitted(file: Path, data: bytes, card: Card) -> tuple[VariantSource, Fitted]:
    format_ = file.suffix.lower().removeprefix(".")
    if format_ == "onnx":
        fitted = fit_onnx(data, card, str(file))
    elif format_ == "tflite":
        from edge_export.card.tflite_edges import fit_tflite  # noqa: PLC0415 - needs LiteRT's schema

        fitted = fit_tflite(data, card, str(file))
    else:
        raise ConfigError(f"{file}: not an .onnx or .tflite file by its name; convert the model to one of them first")
    source = VariantSource(
        name=f"{format_}-{fitted.precision}",
        model=fitted.model,
        format=cast("Literal['onnx', 'tflite']", format_),
        precision=cast("Literal['fp32', 'fp16', 'int8', 'mixed']", fitted.precision),
        layout=fitted.layout,
    )
    return source, fitted


def _written_tflite(sources: Mapping[str, VariantSource]) -> tuple[VariantSource | None, dict[str, str]]:
    """Make a TensorFlow Lite file from the ONNX one, often the faster of the two; or say why there is none, by name."""
    if [source.format for source in sources.values()] != ["onnx"]:
        raise ConfigError("--tflite writes a TensorFlow Lite file from an ONNX one; give an ONNX file, and no other")
    from edge_export.tflite.convert import convert  # noqa: PLC0415 - needs LiteRT's schema

    (first,) = sources.values()
    name = f"tflite-{first.precision}"
    try:
        model = convert(onnx.load_model_from_string(first.model))
    except ConfigError as error:
        return None, {name: str(error)}
    return replace(first, name=name, model=model, format="tflite"), {}


def _with_conv2d(source: VariantSource) -> VariantSource:
    """Make the file in the form that onnxruntime computes faster; the source itself where there is none."""
    if source.format != "onnx":
        return source
    model = onnx.load_model_from_string(source.model)
    changed = as_conv2d(model)
    if changed is model:
        return source
    return replace(source, model=canonicalise(changed).SerializeToString(deterministic=True))


def _check(source: VariantSource, windows: Float32, card: Card) -> None:
    """Refuse a file that no engine runs, or that answers with something else than probabilities."""
    _try(source, windows)
    _check_answers(source, windows, card)


def _try(source: VariantSource, windows: Float32) -> None:
    """Let a file answer in a child process first: some end the process that runs them."""
    installed = engines.available(source.format)
    if not installed:
        wanted = engines.engines_for(source.format)[0]
        raise IncompatibleError(f"no engine for {source.format} is installed; run: {wanted.install}")
    candidate = Candidate(
        name=source.name, engine=installed[0].name, model=source.model, inputs=(arrange(windows, source),)
    )
    if reason := trial(candidate).reason:
        raise EngineError(f"{source.name}: {reason}")


def _compare(sources: dict[str, VariantSource], windows: Float32, max_difference: float | None) -> tuple[Compared, ...]:
    """Every file on every engine; refuses files that are not the same model."""
    given: list[tuple[VariantSource, str, Float32]] = []
    for source in sources.values():
        for kind in engines.available(source.format):
            try:
                given.append((source, kind.name, answers(source, windows, engine=kind.name)))
            except EngineError:
                if kind is engines.available(source.format)[0]:
                    raise  # the one that a device would take; an older engine may lack an operator
    first, _, reference = given[0]
    found = []
    for source, engine, own in given:
        if own.shape != reference.shape:
            raise BundleError(f"{source.name} answers with shape {own.shape}, {first.name} with {reference.shape}")
        worst = float(np.abs(own - reference).max())
        flips = int((own.argmax(axis=1) != reference.argmax(axis=1)).sum())
        allowed = max_difference or max(DIFFERENCE[source.precision], DIFFERENCE[first.precision])
        if not worst <= allowed:
            raise ConfigError(
                f"{source.name} on {engine} and {first.name} differ by up to {worst:.3g} in a probability ({flips} of "
                f"{len(own)} labels), and {allowed:g} is allowed; they are not the same model, or the windows are none "
                "that it knows: give --recording, or --max-difference if that is how they are"
            )
        found.append(Compared(name=source.name, engine=engine, worst=worst, flips=flips))
    return tuple(found)


def _check_answers(source: VariantSource, windows: Float32, card: Card) -> None:
    """Refuse numbers that are no probabilities, in the card's words."""
    own = answers(source, windows)
    slack = 1e-3 + (len(card.output.labels) / 256 if source.precision != "fp32" else 0.0)
    if not np.isfinite(own).all():
        raise BundleError(f"{source.name} answers with NaN or infinity to golden window {_first_bad(own)}")
    low, high, total = float(own.min()), float(own.max()), float(np.abs(own.sum(axis=1) - 1).max())
    if low < -slack or high > 1 + slack or total > slack:
        raise ConfigError(
            f"{source.name} answers with numbers from {low:.3g} to {high:.3g} that do not sum to 1; the card calls "
            f'them {card.output.values}. If each is the score of a class before the softmax, say values = "logits" (or '
            f'"logit") under [output]; {NO_CLASSES}'
        )


def _first_bad(answers_: Float32) -> int:
    return int(np.flatnonzero(~np.isfinite(answers_).all(axis=1))[0])


def model_card_head(name: str, description: str, origin: Origin) -> list[str]:
    """Return the first lines of the model card of a bundle: where the model comes from, and its licence."""
    return [
        f"# {name}",
        "",
        *([description, ""] if description else []),
        f"- From: {origin.name}, {origin.source}",
        f"- Licence: {origin.licence}",
        *([f"- To cite: {origin.cite}"] if origin.cite else []),
    ]


def _text(card: Card, changes: dict[str, tuple[str, ...]]) -> str:
    """Write the model card of the bundle, for people."""
    contract = card.input.contract()
    lines = [
        *model_card_head(card.name, card.description, card.origin),
        f"- Eats: {contract.window} samples at {contract.rate_hz:g} Hz of "
        + ", ".join(f"{each.name} ({each.unit})" for each in contract.channels),
        f"- Answers: {', '.join(card.output.labels)}",
        *(f"- {name}: {', '.join(own) or 'as it came'}" for name, own in changes.items()),
    ]
    return "\n".join(lines) + "\n"
