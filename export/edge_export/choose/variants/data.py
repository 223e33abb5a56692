"""Inputs to calibrate and to measure on: arrays named after a model's inputs, split by file or by contiguous blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_export.choose.variants.source import FloatModel, by_row, call_shape, readable
from edge_export.data.dataset import spread
from edge_export.graph.onnx_graph.model import Array
from edge_runtime.errors import ConfigError
from edge_runtime.model.engines.base import TensorSpec

LABELS = ("label", "labels")
"""Name of the array in a file, or of the ``.npy`` file, with the right class of each call."""

_HELD_OUT_EVERY = 3
_CALIBRATION_SHARE, _GAP_SHARE = 0.6, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSequence:
    """Consecutive calls: of one file, or one block of it.

    Attributes:
        name: of the file.
        inputs: by the model's input, (n, *sizes of one call); states may be missing.
        labels: (n,) the right class of each call, or None.
        kind: name of the class folder, or empty.
    """

    name: str
    inputs: Mapping[str, Array]
    labels: Array | None = None
    kind: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def part(self, chosen: slice | Array) -> CallSequence:
        """Return some of the calls."""
        return replace(
            self,
            inputs={name: array[chosen] for name, array in self.inputs.items()},
            labels=None if self.labels is None else self.labels[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSplit:
    """Recordings for the two uses, which share none.

    Attributes:
        calibration: set ranges and choose between algorithms.
        held_out: what is reported was measured on.
        how: one sentence for the report.
    """

    calibration: tuple[CallSequence, ...]
    held_out: tuple[CallSequence, ...]
    how: str


def read_arrays(
    path: Path, source: FloatModel, constants: Mapping[str, float], classes: Sequence[str] = ()
) -> list[CallSequence]:
    """Read recordings from arrays.

    1. A ``.npz`` file is one recording: its arrays are named after inputs, ``labels`` may be beside them.
    2. A folder with ``.npy`` files named after inputs is one recording, with ``labels.npy`` beside them.
    3. Any other ``.npy`` file is one recording of a model with one input that is no state.
    4. A subfolder without rule 2's files is a class, and the recordings in it are of that class: the position of its
       name in `classes`, or among the subfolders in the order of their names.

    Args:
        path: a file or folder.
        source: the model.
        constants: inputs that are one number in every call.
        classes: names of the answer's numbers, in their order.

    Raises:
        ConfigError: nothing there fits the model, or an array has other sizes than its input.
    """
    if not path.exists():
        raise ConfigError(f"{path}: not there")
    recordings = list(_recordings(path, source, constants))
    if not recordings and path.is_dir():  # rule 4
        recordings = _by_class(path, source, constants, classes)
    if not recordings:
        inputs = ", ".join(f"{spec.name} {readable(spec.shape)}" for spec in source.inputs)
        raise ConfigError(f"{path}: no .npz or .npy file with arrays of the model's inputs ({inputs})")
    return recordings


def _by_class(
    path: Path, source: FloatModel, constants: Mapping[str, float], classes: Sequence[str]
) -> list[CallSequence]:
    folders = sorted(each for each in path.iterdir() if each.is_dir())
    names = list(classes) or [folder.name for folder in folders]
    if strange := [folder.name for folder in folders if folder.name not in names]:
        raise ConfigError(f"{path}: folder {strange[0]!r} is none of the classes: {', '.join(names)}")
    return [
        replace(
            one,
            name=f"{folder.name}/{one.name}",
            labels=np.full(len(one), names.index(folder.name)),
            kind=folder.name,
        )
        for folder in folders
        for one in _recordings(folder, source, constants)
    ]


def of_windows(
    found: Sequence[tuple[Path, Array]], source: FloatModel, constants: Mapping[str, float], classes: Sequence[str]
) -> list[CallSequence]:
    """Make recordings of files that were cut into windows; a file in a folder of a class's name is of that class.

    Args:
        found: files with the windows of each, (n, *sizes of one call) of the model's first input.
        source: the model.
        constants: inputs that are one number in every call.
        classes: names of the answer's numbers, in their order.

    Raises:
        ConfigError: there is not one window.
    """
    if not found:
        raise ConfigError(
            "not one window in the recordings; give longer ones, or look at the card's rate and max_gap_s"
        )
    recordings = []
    for file, windows in found:
        kind = file.parent.name if file.parent.name in classes else ""
        labels = np.full(len(windows), list(classes).index(kind)) if kind else None
        own = CallSequence(name=file.name, inputs={source.inputs[0].name: windows}, labels=labels, kind=kind)
        recordings.append(with_constants(own, source, constants))
    return recordings


def _recordings(path: Path, source: FloatModel, constants: Mapping[str, float]) -> list[CallSequence]:
    files = sorted(each for each in path.iterdir() if each.suffix in (".npz", ".npy")) if path.is_dir() else [path]
    names = {safe_name(spec.name) for spec in source.inputs}
    named = {file.stem: file for file in files if file.suffix == ".npy"}
    if names & named.keys():  # rule 2
        wanted = {stem: _arrays(file)[""] for stem, file in named.items() if stem in names or stem in LABELS}
        return [_recording(path.name, wanted, source, constants, str(path))]
    return [_recording(file.stem, _arrays(file), source, constants, str(file)) for file in files]  # rules 1 and 3


def _arrays(file: Path) -> dict[str, Array]:
    """Arrays of a file by name; the one of a ``.npy`` file has none."""
    try:
        content = np.load(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read as arrays: {error}") from error
    return {"": content} if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}


def safe_name(name: str) -> str:
    """Write an input's name as a file can have it."""
    return name.replace("/", "_").replace(":", "_")


def _recording(
    name: str, arrays: Mapping[str, Array], source: FloatModel, constants: Mapping[str, float], where: str
) -> CallSequence:
    labels = next((arrays[label] for label in LABELS if label in arrays), None)
    found = _inputs(arrays, source, constants, where)
    lengths = {len(array) for array in (*found.values(), *(() if labels is None else (labels,)))}
    if len(lengths) != 1 or 0 in lengths:
        raise ConfigError(f"{where}: each array needs as many entries as the others, one at least")
    return with_constants(CallSequence(name=name, inputs=found, labels=labels), source, constants)


def _inputs(
    arrays: Mapping[str, Array], source: FloatModel, constants: Mapping[str, float], where: str
) -> dict[str, Array]:
    """Arrays by input: those of its name, or the only one of any name for the first input that is no constant."""
    others = [key for key in arrays if key not in LABELS]
    keys = {
        spec: next((key for key in (spec.name, safe_name(spec.name)) if key in arrays), "") for spec in source.inputs
    }
    named = {spec: key for spec, key in keys.items() if key}
    if not named and len(others) == 1:
        named = {next(spec for spec in source.inputs if spec.name not in constants): others[0]}
    if not named:
        raise ConfigError(
            f"{where}: holds {', '.join(others) or 'nothing'}, and the model's inputs are "
            f"{', '.join(spec.name for spec in source.inputs)}"
        )
    return {spec.name: _calls(arrays[key], spec, where) for spec, key in named.items()}


def with_constants(recording: CallSequence, source: FloatModel, constants: Mapping[str, float]) -> CallSequence:
    """Add the inputs that are one number in every call."""
    by_name = {spec.name: spec for spec in source.inputs}
    if unknown := [name for name in constants if name not in by_name]:
        raise ConfigError(f"--constant {unknown[0]}: the model's inputs are {', '.join(by_name)}")
    added = {
        name: np.full((len(recording), *(max(size, 1) for size in by_name[name].shape)), value, by_name[name].dtype)
        for name, value in constants.items()
    }
    return replace(recording, inputs={**recording.inputs, **added})


def _calls(array: Array, spec: TensorSpec, where: str) -> Array:
    """Arrange an array as (n, *sizes of one call): a row may lack the batch of one call."""
    wanted = call_shape(spec)
    for form in (array[:, None] if by_row(spec.shape) and array.ndim else array, array):
        if form.ndim == len(wanted) + 1 and all(a in (-1, b) for a, b in zip(wanted, form.shape[1:], strict=True)):
            if form.dtype != spec.dtype and form.dtype.kind in "fiub":
                return form.astype(spec.dtype)
            return form
    shown = readable(wanted[1:] if by_row(spec.shape) else wanted).replace("(", "(n, ", 1)
    raise ConfigError(f"{where}: input {spec.name!r} takes an array of {shown}, and this one is {array.shape}")


def split(recordings: Sequence[CallSequence]) -> RecordingSplit:
    """Part recordings for calibration from those that are measured on.

    1. Several recordings: every third of each class is held out, one at least; no file is in both parts.
    2. One recording: its first 60 % calibrate, its last 35 % are held out; what lies between is not used, so that no
       window reaches from one part into the other.

    Raises:
        ConfigError: too few calls, or recordings of different sizes.
    """
    _refuse_different_sizes(recordings)
    held = [one for kind in dict.fromkeys(one.kind for one in recordings) for one in _held_out(recordings, kind)]
    if held:
        kept = tuple(one for one in recordings if all(one is not other for other in held))
        how = f"split by file: {len(kept)} calibrate, {len(held)} are held out"
        return RecordingSplit(calibration=kept, held_out=tuple(held), how=how)
    whole = recordings[0]
    first = int(len(whole) * _CALIBRATION_SHARE)
    last = int(len(whole) * (_CALIBRATION_SHARE + _GAP_SHARE))
    if first < 1 or last >= len(whole):
        raise ConfigError(f"{len(whole)} call(s) are too few to calibrate and to measure on; give 4 at least")
    ends = f"calls 0 to {first - 1} calibrate, {last} to {len(whole) - 1} are held out"
    how = f"one recording, split by contiguous blocks: {ends}"
    return RecordingSplit(
        calibration=(whole.part(slice(0, first)),), held_out=(whole.part(slice(last, None)),), how=how
    )


def _refuse_different_sizes(recordings: Sequence[CallSequence]) -> None:
    first = recordings[0]
    for one in recordings:
        for name, array in one.inputs.items():
            before = first.inputs.get(name, array).shape[1:]
            if array.shape[1:] != before:
                raise ConfigError(
                    f"input {name!r} is {readable(before)} in {first.name} and {readable(array.shape[1:])} in "
                    f"{one.name}; pad or cut the recordings to one size"
                )


def _held_out(recordings: Sequence[CallSequence], kind: str) -> list[CallSequence]:
    own = [one for one in recordings if one.kind == kind]
    return own[min(_HELD_OUT_EVERY, len(own)) - 1 :: _HELD_OUT_EVERY] if len(own) > 1 else []


def thinned(recordings: Sequence[CallSequence], most: int, *, contiguous: bool) -> list[CallSequence]:
    """Take at most `most` calls: spread evenly, or the first of each recording where calls follow one another."""
    total = sum(map(len, recordings))
    if total <= most:
        return list(recordings)
    taken = []
    for one in recordings:
        count = max(1, len(one) * most // total)
        taken.append(one.part(slice(0, count) if contiguous else spread(len(one), count)))
    return taken
