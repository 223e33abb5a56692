"""From the files of any model and their card to a bundle: fitted, run step by step in a child, compared, packed."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_export.data.dataset import Float32
from edge_export.package.card import answer, steps, targets, task_files, trials
from edge_export.package.card.fitting import Fitted, fit
from edge_export.package.card.model_file import ModelFile, open_file
from edge_export.package.card.original import Question, compare
from edge_export.package.card.spec import Card, CardModel
from edge_export.package.card.step import fed
from edge_export.package.card.tensors import matched
from edge_export.package.pack import TOLERANCE, StageSource, VariantSource, in_halves, pack
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.manifest import AnyOutput, InputContract, Manifest, OutputContract, Reference, SensorReference
from edge_runtime.manifest.stages import ModelStage, Output, Port, Stage
from edge_runtime.model.chain import STREAM, WINDOW
from edge_runtime.model.chain.engine import LoadedStage, follow
from edge_runtime.model.chain.schedule import make
from edge_runtime.model.chain.stages import EngineStage
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.window import Window

if TYPE_CHECKING:
    from edge_export.package.sign import SigningKey

_CALLS = 3
"""Calls that the original file answers for the comparison."""
_MADE = 2.5
"""Two files of one model may differ by this much more on steps that were made up: integers leave their range there."""
_DIFFERENCE = {"fp32": 1e-3, "fp16": 2e-2, "mixed": 0.15, "int8": 0.15}
"""Largest difference of two files' answers of numbers up to 1, by the coarser precision of the two. Other rounding
explains as much; more is another model, another scaling or another order of axes."""
_COARSEST = ("int8", "mixed", "fp16", "fp32")

Expected = tuple[tuple[Reference, ...], SensorReference | None]
Expect = Callable[[InputContract, Callable[[Float32], Float32]], Expected]
"""Takes what a window is, and a function from windows (n, channels, samples) to probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Answers of one variant beside those of the first.

    Attributes:
        name: of the variant.
        engine: that answered.
        worst: largest difference of a number.
        flips: steps whose label differs; None where the answer has no labels.
    """

    name: str
    engine: str
    worst: float
    flips: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Result of packing.

    Attributes:
        manifest: of the bundle.
        notes: what was chosen and not written in the card.
        unused: outputs of the files that nothing takes.
        compared: every variant.
        steps: golden steps.
        answered: of them, those with an answer.
        state_bytes: that a key leaves for its next step.
    """

    manifest: Manifest
    notes: tuple[str, ...]
    unused: tuple[str, ...]
    compared: tuple[Compared, ...]
    steps: int
    answered: int
    state_bytes: int


def pack_models(
    path: Path,
    variants: Sequence[Mapping[str, Path]],
    card: Card,
    *,
    folder: Path = Path(),
    data: steps.Data | None = None,
    max_difference: float | None = None,
    expect: Expect | None = None,
    signer: SigningKey | None = None,
) -> Packed:
    """Write a bundle of any model.

    A classifier that takes windows as they are and gives probabilities is packed without stages: it needs no chain.

    Args:
        path: the ``.edge`` file.
        variants: each variant's files by the name of their stage, in order of preference.
        card: signal, stages, task.
        folder: the card's folder, beside which the files lie that its task names.
        data: recordings; None: golden steps are made within the channels' ranges.
        max_difference: largest difference of two variants' answers; None: by precision, and by the size of the answers.
        expect: measures what the bundle expects of its sensors, by the answers of the first variant; None: nothing.
        signer: signs the bundle; None leaves it unsigned.

    Raises:
        ConfigError: a file does not fit the card, an answer is not what the task says, or two variants are not the same
            model; one line that says what to change.
        IncompatibleError: no engine for a file is installed.
    """
    data = data or steps.Data()
    with ExitStack() as opened:
        files = [{name: _open(opened, card, name, file) for name, file in own.items()} for own in variants]
        fitted = fit(card, files[0])
        _give_batches(files)
        task = answer.complete(card, fitted)
        targets.require_open(task.output, data.measured)
        contract = card.signal.contract(fitted.step.window, fitted.step.hop, card.context)
        tensors = [matched(fitted.stages, files[0], own) for own in files]
        try:
            warm_up, stream, state_bytes = _schedule(task, contract, files[0])
        except (EngineError, ValueError) as error:
            raise ConfigError(f"the chain does not fit together: {error}") from error
        golden = steps.golden(card, contract, data, steps.needed(warm_up, contract), stream=stream)
        stored = in_halves(golden) if golden.nbytes > steps.MOST_BYTES // 4 else golden
        golden = np.asarray(stored, np.float32)
        sources: list[VariantSource] = []
        for own, names in zip(files, tensors, strict=True):
            sources.append(_source(card, own, names, [source.name for source in sources]))
        trial = _Trial(card, task, contract, golden, max_difference, recorded=bool(data.recordings))
        sources = [trial.of(source) for source in sources]
        told_first = _as_original(card, fitted, files[0], golden)
        output, told = trial.with_intervals(sources[0], data)
        references, heard = steps.sound_references(contract, data)
        sensors = None
        if expect is not None:
            references, sensors = trial.expected(sources[0], expect, stream=stream)
        stages, sources = _as_they_are(task, files, sources)
        extra = task_files.read(task.output, folder, made=trial.scores(sources[0], data) if data.normal else None)
    result = pack(
        path,
        name=card.name,
        version=card.version,
        input=contract,
        output=task_files.renamed(output),
        description=card.description,
        created=card.created,
        expires=card.expires,
        stages=stages,
        answer=task.answer,
        gate=card.gate,
        events=card.events,
        references=references,
        sensors=sensors,
        variants=sources,
        golden_inputs=stored,
        card=_text(card, contract, (*fitted.notes, *told), fitted),
        files=extra,
        provenance={
            "origin": asdict(card.origin),
            "files": {file.path.name: _sha256(file.path) for own in files for file in own.values()},
            "notes": [*fitted.notes, *told],
        },
        signer=signer,
    )
    return Packed(
        manifest=result,
        notes=(*fitted.notes, *steps.resampled(contract, data), *heard, *told, *told_first),
        unused=tuple(f"{name}.{output}" for name, outputs in fitted.unused.items() for output in outputs),
        compared=tuple(trial.compared),
        steps=len(golden),
        answered=trial.answered,
        state_bytes=state_bytes,
    )


def _give_batches(files: Sequence[Mapping[str, ModelFile]]) -> None:
    """Give the other files' inputs the batch that the first one's were given."""
    for own, (name, first) in itertools.product(files[1:], files[0].items()):
        for input_ in first.alone.keys() & own[name].inputs.keys() - own[name].alone.keys():
            own[name].give_batch(input_, first.alone[input_])


def _as_they_are(
    task: answer.ManifestTask, files: Sequence[Mapping[str, ModelFile]], sources: list[VariantSource]
) -> tuple[tuple[Stage, ...], list[VariantSource]]:
    """Return no stages where the files take windows as they are and give probabilities, and the variants for that."""
    stage = task.stages[0]
    if len(task.stages) > 1 or not isinstance(stage, ModelStage) or not isinstance(task.output, OutputContract):
        return task.stages, sources
    port = stage.inputs[0]
    ends = [(*file.engine.inputs, *file.engine.outputs) for own in files for file in own.values()]
    plain = all([(len(one.shape), one.dtype.name) for one in both] == [(3, "float32"), (2, "float32")] for both in ends)
    same = port == Port(name=port.name, layout=port.layout) and not (task.answer or stage.warmup_steps or stage.when)
    if not plain or not same or any(source.batch for source in sources):
        return task.stages, sources
    return (), [replace(source, layout=port.layout, tensors={}) for source in sources]


def _open(opened: ExitStack, card: Card, stage: str, file: Path) -> ModelFile:
    kept = any(one.name == stage and one.inside == "kept" for one in card.models)
    model = open_file(file, kept=kept, floats=card.signal.frame is None)  # pixels may lie between two integers
    opened.callback(model.close)
    return model


def _as_original(card: Card, fitted: Fitted, files: Mapping[str, ModelFile], golden: Float32) -> list[str]:
    """Compare each model stage with its file as it came; returns a line for each."""
    lines = []
    for stage, node, of in zip(fitted.stages, fitted.followed.nodes, card.stages, strict=True):
        if not isinstance(stage, ModelStage) or not isinstance(of, CardModel):
            continue
        file, cut, port = files[stage.name], node.cuts[0], stage.inputs[0]
        if len(stage.inputs) > 1:
            lines.append(f"{file.path}: not compared with the original, since several of its inputs take rows")
            continue
        row = fitted.followed.shapes[cut.of]
        windows = golden.transpose(0, 2, 1)[:_CALLS, : cut.rows]
        if cut.of not in (WINDOW, STREAM) or windows.shape[1] < cut.rows:
            windows = np.random.default_rng(5).uniform(-1, 1, (_CALLS, cut.rows, math.prod(row))).astype(np.float32)
        bare = replace(
            stage, outputs=tuple(Output(name=one.name, track=str(k)) for k, one in enumerate(stage.outputs)),
            warmup_steps=0, when=None,
        )  # fmt: skip
        model = EngineStage(bare, file.engine, {}, 1, [(cut.rows, row)])
        states = [np.full((len(windows), *spec.shape), spec.initial, spec.dtype) for spec in model.states]
        made, _ = model.compute([windows.reshape(len(windows), 1, cut.rows, *row)], states)
        written = fed(of)[0]
        taken = {state.input for state in file.taken}
        question = Question(
            file=str(file.path), format=file.format, precision=file.precision, input=port.name,
            layout="" if written.layout == "auto" else written.layout, batch=written.batch is not None,
            frame=() if card.signal.frame is None else (card.signal.frame.height, card.signal.frame.width),
            offset=port.offset, scale=port.scale, outputs=[one.name for one in stage.outputs],
            others={one.name: one.value for one in stage.constants}
            | {state.input: state.initial for state in stage.states if state.input not in taken},
        )  # fmt: skip
        answers = [rows.reshape(len(windows), -1) for rows in made]
        lines.append(compare(question, file.path.read_bytes(), windows, answers))
    return lines


def _schedule(
    task: answer.ManifestTask, contract: InputContract, files: Mapping[str, ModelFile]
) -> tuple[int, bool, int]:
    """Return the steps before the first answer, whether steps depend on each other, and the bytes of a key's state."""
    loaded = {name: LoadedStage(file.engine, {}, 1) for name, file in files.items()}
    followed = follow(task.stages, (contract.window, len(contract.channels), contract.hop), loaded)
    schedule = make(followed.nodes, contract.window, contract.hop)
    wanted = task.answer or (next(iter(followed.computed[-1].gives)),)
    full = {track: max(rows[track] for rows in schedule.rows) for track in wanted}
    whole = [all(rows[track] == full[track] for track in wanted) for rows in schedule.rows]
    if not any(full.values()):
        raise EngineError("a stage takes more rows than ever come; correct its rows")
    rings = [
        4 * schedule.most_kept(position, k) * int(np.prod(followed.shapes[cut.of]))
        for position, node in enumerate(followed.nodes)
        for k, cut in enumerate(node.cuts)
    ]
    own = [spec.dtype.itemsize * int(np.prod(spec.shape)) for computed in followed.computed for spec in computed.states]
    return whole.index(True), bool(sum(rings) + sum(own)) or not all(whole), sum(rings) + sum(own)


class _Trial:
    """Golden answers of the variants, one after another; the first one's are what the others are held against."""

    def __init__(
        self,
        card: Card,
        task: answer.ManifestTask,
        contract: InputContract,
        golden: Float32,
        max_difference: float | None,
        *,
        recorded: bool,
    ) -> None:
        self._card = card
        self._task = task
        self._contract = contract
        self._golden = golden
        self._max = max_difference
        self._room = 1.0 if recorded else _MADE
        self._first: tuple[VariantSource, Float32] | None = None
        self.compared: list[Compared] = []
        self.answered = 0

    def of(self, source: VariantSource) -> VariantSource:
        """Try a variant; returns it with its tolerance and batch.

        Raises:
            ConfigError: it fails, its answers are not what the task says, or they differ from the first one's.
        """
        engine = trials.open_chain(source, self._task, self._contract)
        try:
            found = trials.golden_answers(engine, self._golden, source.name)
        finally:
            engine.close()
        answer.check(found, self._task.output, integers=source.precision in ("int8", "mixed"), name=source.name)
        self._compare(source, found, engine.name.partition(",")[0])
        size = max(1.0, float(np.abs(found).max()))
        tolerance = self._card.tolerance if self._card.tolerance is not None else TOLERANCE[source.precision] * size
        return trials.with_batch(replace(source, tolerance=tolerance), self._task, self._contract, self._golden)

    def _compare(self, source: VariantSource, found: Float32, engine: str) -> None:
        if self._first is None:
            self._first, self.answered = (source, found), len(found)
        first, reference = self._first
        if found.shape != reference.shape:
            raise ConfigError(
                f"{source.name}: answers with shape {found.shape[1:]}, {first.name} {reference.shape[1:]}"
            )
        worst = float(np.abs(found - reference).max())
        flips = None
        if isinstance(self._task.output, OutputContract):
            flips = int((found.argmax(axis=-1) != reference.argmax(axis=-1)).sum())
        size = max(1.0, float(np.abs(reference).max()))
        allowed = self._max or max(_DIFFERENCE[source.precision], _DIFFERENCE[first.precision]) * size * self._room
        if not worst <= allowed:
            raise ConfigError(
                f"{source.name} and {first.name} differ by up to {worst:.3g} over the golden steps, and {allowed:.3g} "
                "is allowed; they are not the same model, or the steps are none that it knows: give --recording, or "
                "--max-difference if that is how they are"
            )
        self.compared.append(Compared(name=source.name, engine=engine, worst=worst, flips=flips))

    def scores(self, source: VariantSource, data: steps.Data) -> Float32:
        """Return the rising scores of recordings of normal data."""
        engine = trials.open_chain(source, self._task, self._contract)
        found: list[Float32] = []
        try:
            for file in data.normal:
                windows = steps.windows_of(self._contract, file, data.layout)
                found += trials.answers(engine, (with_context(one, self._contract.window).T for one in windows))
        except (EngineError, InputError) as error:
            raise ConfigError(f"{source.name}: {error}") from error
        finally:
            engine.close()
        if not found:
            raise ConfigError("--normal: not one step of these recordings has an answer; give longer ones")
        return np.sort(np.concatenate([one.reshape(-1) for one in found])).astype(np.float32)

    def expected(self, source: VariantSource, expect: Expect, *, stream: bool) -> Expected:
        """Measure what the bundle expects of its sensors."""
        if stream or not isinstance(self._task.output, OutputContract):
            raise ConfigError("--recipe measures classifiers that answer each window alone; leave --recipe out")
        engine = trials.open_chain(source, self._task, self._contract)
        try:
            return expect(self._contract, lambda x: np.stack(list(trials.answers(engine, x.transpose(0, 2, 1)))))
        finally:
            engine.close()

    def with_intervals(self, source: VariantSource, data: steps.Data) -> tuple[AnyOutput, list[str]]:
        """Return the output with the intervals that true values set, and a line for each quantity."""
        output = targets.require_open(self._task.output, data.measured)
        if output is None:
            return self._task.output, []
        known = targets.Targets(output, self._contract, data.measured, data.layout)
        found = [
            (window.key, row.reshape(-1), known.of(window)) for window, row in self._measured_answers(source, data)
        ]
        if not found:
            raise ConfigError("--measured: not one step of these recordings has an answer; give longer ones")
        keys, rows, values = zip(*found, strict=True)
        made = targets.intervals(output, keys, np.stack(rows), np.array(values, np.float64))
        told = [one.text(output.coverage) for one in made]
        return replace(output, quantities=tuple(one.quantity for one in made)), told

    def _measured_answers(self, source: VariantSource, data: steps.Data) -> Iterator[tuple[Window, Float32]]:
        """Answer the recordings with true values, each key from a reset."""
        engine = trials.open_chain(source, self._task, self._contract)
        streams: dict[str, list[Window]] = {}
        try:
            for file, key in data.measured.recordings:
                for window in steps.windows_of(self._contract, file, data.layout, key):
                    streams.setdefault(window.key, []).append(window)
            for windows in streams.values():
                played = trials.answered(engine, (with_context(one, self._contract.window).T for one in windows))
                yield from ((one, row) for one, row in zip(windows, played, strict=True) if row is not None)
        except (EngineError, InputError) as error:
            raise ConfigError(f"{source.name}: {error}") from error
        finally:
            engine.close()


def _source(
    card: Card, files: Mapping[str, ModelFile], names: Mapping[str, dict[str, str]], taken: Sequence[str]
) -> VariantSource:
    stages = [stage.name for stage in card.models]
    last = files[stages[-1]]
    precision = min((file.precision for file in files.values()), key=_COARSEST.index)
    name = f"{last.format}-{precision}"
    if name in taken:
        stem = "".join(letter if letter.isalnum() else "-" for letter in last.path.stem.lower())
        name = f"{name}-{stem}"
    if name in taken:
        raise ConfigError(f"{last.path}: stands twice among the files; leave one out")
    return VariantSource(
        name=name,
        model=last.data,
        format=last.format,
        precision=precision,
        layout="NWC",
        tensors=names[stages[-1]],
        batch=1,
        others=tuple(
            StageSource(stage=stage, model=files[stage].data, format=files[stage].format, tensors=names[stage], batch=1)
            for stage in stages[:-1]
        ),
    )


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _text(card: Card, contract: InputContract, notes: Sequence[str], fitted: Fitted) -> str:
    """Write the model card of the bundle, for people."""
    lines = [
        f"# {card.name}",
        "",
        *([card.description, ""] if card.description else []),
        f"- From: {card.origin.name}, {card.origin.source}",
        f"- Licence: {card.origin.licence}",
        *([f"- To cite: {card.origin.cite}"] if card.origin.cite else []),
        f"- A step: {contract.window} samples at {contract.rate_hz:g} Hz of "
        + ", ".join(f"{each.name} ({each.unit})" for each in contract.channels[:12]),
        f"- Stages: {', '.join(stage.name for stage in fitted.stages)}",
        f"- Answers: {card.task.output.kind}"
        + (f" of {', '.join(card.task.output.labels[:20])}" if card.task.output.labels else ""),
        *(f"- {note}" for note in notes),
    ]
    return "\n".join(lines) + "\n"
