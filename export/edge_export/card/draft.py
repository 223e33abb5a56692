"""Draft of a card from a model file, with a comment at each guess and at all that a person has to say.

1. Inputs without numbers, or with one integer, are constants.
2. An input after the first with an output of its sizes is a state; so is one whose name says so.
3. The remaining input is fed with rows; its sizes say what it may be: a picture, a front end that is common, sound, or
   channels by samples.
4. The file is run on noise: what comes out says whether it answers with probabilities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_export.card.guesses import Front, front_of
from edge_export.card.metadata import Metadata, read
from edge_export.card.model_file import ModelFile, open_file, run_once
from edge_runtime.engines.base import Array, TensorSpec
from edge_runtime.errors import ConfigError, EdgeError

GUESS = "# GUESS:"
FILL_IN = "# FILL IN:"
_STATE = re.compile(
    r"(^|[^a-z])(state|hidden|cell|cache|past|memory|h|c|h0|c0|hn|cn|h_0|c_0|mem)([^a-z]|$)", re.IGNORECASE
)
_LEVELS = (1.0, 8.0, 64.0)
_EMBEDDING = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 2048)


@dataclass(kw_only=True)
class _Draft:
    """Parts of a card while it is drafted."""

    file: ModelFile
    metadata: Metadata
    constants: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    main: list[TensorSpec] = field(default_factory=list)
    state_pairs: dict[str, str] = field(default_factory=dict)
    feed: dict[str, Array] = field(default_factory=dict)


def draft(path: Path) -> str:
    """Draft the card of a model file.

    Returns:
        TOML. `edge_export.card.load_card` reads it as it is.

    Raises:
        ConfigError: the file is of another kind, or no engine loads it.
        IncompatibleError: no engine for it is installed.
    """
    file = open_file(path)
    try:
        made = _Draft(file=file, metadata=read(file, path.read_bytes()))
        _divide(made)
        if not made.main:
            raise ConfigError(f"{path}: has no input that could take a signal; it has {', '.join(file.inputs)}")
        return _text(made)
    finally:
        file.close()


def _divide(made: _Draft) -> None:
    """Tell constants, states and the input of rows apart (rules 1 and 2)."""
    outputs = dict(made.file.outputs)
    alone = len(made.file.inputs) == 1
    for position, (name, spec) in enumerate(made.file.inputs.items()):
        if position and _is_constant(spec):
            value = 16000 if re.search(r"sr|rate", name, re.IGNORECASE) else 1
            made.constants.append(
                f'{{ name = "{name}", value = {value} }}, {FILL_IN} the number that the model was trained with'
            )
            made.feed[name] = np.full(_closed(spec), value, spec.dtype)
            continue
        may_be = not alone and (position > 0 or _STATE.search(name))
        partner = _partner(name, spec, outputs) if may_be else ""
        if not partner:
            made.main.append(spec)
            continue
        outputs.pop(partner)
        made.state_pairs[name] = partner
        made.states.append(_state(name, spec, partner))


def _is_constant(spec: TensorSpec) -> bool:
    sizes = spec.shape[1:] if len(spec.shape) > 1 else spec.shape
    return not spec.shape or (spec.dtype.kind in "iu" and math.prod(map(abs, sizes)) <= 1)


def _closed(spec: TensorSpec) -> list[int]:
    """Return the sizes of a tensor, 1 for open ones."""
    return [max(1, size) for size in spec.shape]


def _partner(name: str, spec: TensorSpec, outputs: dict[str, TensorSpec]) -> str:
    """Return the output that may be a state's next value."""
    fitting = [
        other for other, out in outputs.items()
        if out.dtype == spec.dtype and len(out.shape) == len(spec.shape)
        and all(a == b or -1 in (a, b) for a, b in zip(out.shape, spec.shape, strict=True))
    ]  # fmt: skip
    named = [other for other in fitting if _STATE.search(other) or other.startswith(name)]
    return (named or fitting or [""])[0]


def _state(name: str, spec: TensorSpec, partner: str) -> str:
    opened = [axis for axis, size in enumerate(spec.shape) if size < 0]
    more = ""
    if len(opened) > 1:
        shape = [max(1, size) for axis, size in enumerate(spec.shape) if axis != opened[0]]
        more = f", batch = {opened[0]}, shape = {shape}"
    return f'{{ input = "{name}", output = "{partner}"{more} }}, {GUESS} goes out of a step and into the next one'


def _text(made: _Draft) -> str:
    spec = made.main[0]
    front = front_of(spec, made.metadata)
    answer = _answer(made, front)
    name = re.sub(r"[^a-z0-9]+", "-", made.file.path.stem.lower()).strip("-") or "model"
    title, licence = _toml(made.metadata.name or name), _toml(made.metadata.licence or "unknown")
    origin = f'origin = {{ name = {title}, source = "unknown", licence = {licence} }}'
    lines = [
        f"# Drafted from {made.file.path.name}. Read each {GUESS[2:-1]}, and answer each {FILL_IN[2:-1]}.",
        f'name = "{name}"',
        *([f"description = {_toml(made.metadata.description)}"] if made.metadata.description else []),
        f"{origin}  {FILL_IN} where the file comes from, and under which licence",
        f"signal = {front.signal}",
        *([f"window = {front.window}  {GUESS} samples that training saw at once"] if front.window else []),
        "",
        *_comments(made),
        *front.stages,
        "[[stages]]",
        *_inputs(made, front),
        *_list("states", made.states),
        *_inside(made),
        *answer.outputs,
        "",
        "[task]",
        *answer.task,
    ]
    return "\n".join(lines) + "\n"


def _comments(made: _Draft) -> list[str]:
    """Say what the file holds."""
    lines = [f"# in: {_shown(spec)}" for spec in made.file.inputs.values()]
    lines += [f"# out: {_shown(spec)}" for spec in made.file.outputs.values()]
    lines += [f"# {note}: nothing to write" for note in made.file.notes]
    return [*lines, f"# numbers: {made.file.precision}", ""]


def _shown(spec: TensorSpec) -> str:
    sizes = "x".join("any" if size < 0 else str(size) for size in spec.shape) or "scalar"
    return f"{spec.name or '(no name)'} {sizes} {spec.dtype}"


def _inputs(made: _Draft, front: Front) -> list[str]:
    ports = []
    for position, spec in enumerate(made.main):
        name = f'name = "{spec.name}"' if len(made.file.inputs) > 1 and spec.name else ""
        more = front.port if position == 0 else ""
        of = f"{FILL_IN} which rows it takes (of, rows)" if position else front.port_comment
        body = ", ".join(part for part in (name, more) if part)
        ports.append(f"{{ {body} }},{f'  {of}' if of else ''}" if body else f"{{}},{f'  {of}' if of else ''}")
    return _list("inputs", [*ports, *made.constants])


def _list(key: str, items: Sequence[str]) -> list[str]:
    return [f"{key} = [", *(f"    {item}" for item in items), "]"] if items else []


def _inside(made: _Draft) -> list[str]:
    if not made.file.inside:
        return []
    other = '"kept" if it runs on from step to step, which no bundle can hold'
    return [f'inside = "cleared"  {GUESS} {made.file.inside}; {other}']


@dataclass(frozen=True, slots=True)
class _Answer:
    outputs: list[str]
    task: list[str]


def _answer(made: _Draft, front: Front) -> _Answer:
    """Draft outputs and task from what a run on noise gives (rule 4)."""
    names = [name for name in made.file.outputs if name not in made.state_pairs.values()]
    values = _run(made, front)
    shapes = {name: value.shape for name, value in values.items()}
    labels = made.metadata.labels
    if len(names) > 1:
        boxes = [name for name in names if shapes.get(name, ())[-1:] == (4,)]
        if boxes and front.picture:
            return _boxes(names, boxes[0], shapes, labels)
        listed = ", ".join(f'{{ name = "{name}" }}' for name in names[:1])
        return _Answer(
            [f"outputs = [{listed}]  {GUESS} the answer; others: {', '.join(names[1:])}"],
            _single(made, front, values.get(names[0]), labels),
        )
    return _Answer([], _single(made, front, values.get(names[0]) if names else None, labels))


def _boxes(names: Sequence[str], boxes: str, shapes: dict[str, tuple[int, ...]], labels: Sequence[str]) -> _Answer:
    scores = next((name for name in names if name != boxes and len(shapes[name]) == 3), names[-1])
    count = shapes[scores][-1]
    listed = f'{{ name = "{boxes}", track = "boxes" }}, {{ name = "{scores}", track = "scores" }}'
    task = [
        'type = "detection"',
        'of = ["boxes", "scores"]',
        f'decode = "corners"  {FILL_IN} corners, centre, offsets, priors or grid (these three with strides, anchors)',
        *_labels(labels, count),
    ]
    return _Answer([f"outputs = [{listed}]  {GUESS} boxes and scores"], task)


def _labels(labels: Sequence[str], count: int) -> list[str]:
    if len(labels) == count and len(set(labels)) == count:
        return [f"labels = [{', '.join(_toml(label) for label in labels)}]"]
    return [f"labels = {count}  {FILL_IN} their names, a list or a file with one a line, in the order of the answer"]


def _single(made: _Draft, front: Front, value: Array | None, labels: Sequence[str]) -> list[str]:
    if value is None:
        return ['type = "vector"', f"{FILL_IN} what the answer means: the file could not be run on noise"]
    flat = value.reshape(len(value), -1)
    count = flat.shape[1]
    spec = made.main[0]
    if count > 1 and count == math.prod(size for size in spec.shape[1:] if size > 0) and not front.picture:
        return [
            'type = "anomaly"',
            f'reconstructs = "{spec.name}"  {GUESS} the answer has the sizes of the input, as an autoencoder\'s',
            f"threshold = 1.0  {FILL_IN} the score that is anomalous; or leave it out and give pack --normal RECORDING",
        ]
    inside = bool(flat.min() >= -1e-3 and flat.max() <= 1 + 1e-3)
    slack = 0.01 + (min(0.3, count / 256) if made.file.precision != "fp32" else 0)
    if count > 1 and inside and bool(np.abs(flat.sum(axis=1) - 1).max() < slack):
        return ['type = "classification"  ' + GUESS + " the numbers sum to 1", *_labels(labels, count)]
    if inside and count <= 100 and bool(flat.std() > 0 or count == 1):
        return ['type = "multi-label"  ' + GUESS + " each number lies between 0 and 1", *_labels(labels, count)]
    if count == 1:
        return [
            'type = "regression"  ' + GUESS + " one number that is no probability",
            f'quantities = [{{ name = "value", unit = "1" }}]  {FILL_IN} its name and unit',
        ]
    if labels and len(labels) == count:
        return ['type = "classification"', f'values = "logits"  {GUESS} no softmax at the end', *_labels(labels, count)]
    if count in _EMBEDDING:
        return ['type = "embedding"  ' + GUESS + f" {count} numbers without a softmax"]
    if count <= 64 and value.ndim == 2:
        return [
            'type = "classification"',
            f'values = "logits"  {GUESS} no softmax at the end; write type = "vector" if they are no scores of labels',
            *_labels(labels, count),
        ]
    return ['type = "vector"  ' + GUESS + f" {count} numbers"]


def _run(made: _Draft, front: Front) -> dict[str, Array]:
    """Run the file on noise of several levels, and stack the answers; empty where it does not take what was guessed."""
    hidden = {*made.state_pairs.values(), *(state.output for state in made.file.taken)}
    found: list[dict[str, Array]] = []
    for level in _LEVELS:
        try:
            answers = run_once(made.file.engine, _noise(made, front, level))
        except EdgeError:
            return {}
        found.append({name: np.asarray(value, np.float64) for name, value in answers.items() if name not in hidden})
    return {name: np.concatenate([one[name] for one in found]) for name, value in found[0].items() if value.ndim}


def _noise(made: _Draft, front: Front, level: float) -> dict[str, Array]:
    """Make all inputs of a file: constants, states as they begin, and noise."""
    random = np.random.default_rng(0)
    feed = dict(made.feed)
    for spec in made.main:
        shape = _closed(spec)
        opened = [axis for axis, size in enumerate(spec.shape) if size < 0 and axis]
        if opened and spec is made.main[0]:
            shape[opened[-1]] = front.open_size
        noise = random.uniform(-level, level, shape)
        feed[spec.name] = noise.astype(spec.dtype) if spec.dtype.kind == "f" else np.abs(noise * 4).astype(spec.dtype)
    engine = {spec.name: spec for spec in made.file.engine.inputs}
    begin = dict.fromkeys(made.state_pairs, 0.0) | {state.input: state.initial for state in made.file.taken}
    return feed | {name: np.full(_closed(engine[name]), value, engine[name].dtype) for name, value in begin.items()}


def _quoted(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable()).replace("\\", "\\\\").replace('"', '\\"')


def _toml(text: str) -> str:
    return f'"{_quoted(text)}"'
