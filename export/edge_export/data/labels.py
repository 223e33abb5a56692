"""Labels in time: of samples from annotations, of windows from samples, and of the runtime's own windows.

`label_windows` cuts a data set with `edge_runtime.signal.windowing`, the code that cuts windows on the device, and puts
a label to each. What training and evaluation see is therefore what a device would have seen: same grid, same
resampling, same gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from edge_export.data.dataset import UNLABELLED, Dataset, Float32, Float64, Int64, Recording, Windows
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.recorded import cut_recording, cut_tables
from edge_runtime.signal.windowing.window import Window

Rule = Literal["centre", "majority", "end"]


def marks_of_events(samples: int, events: Mapping[int, Int64], *, reach: int) -> Int64:
    """Label of each sample from annotated moments: that of the nearest one (of two, the earlier), if near enough.

    Args:
        samples: length of the recording.
        events: sample numbers by label; a moment that several labels name takes the last one's.
        reach: samples to either side of a moment that its label holds for; 0 for no bound.

    Returns:
        (samples,) labels, `UNLABELLED` beyond the reach of any moment.
    """
    labelled: dict[int, int] = {}
    for label, places in events.items():
        labelled.update(dict.fromkeys(places.tolist(), label))
    if not labelled:
        return np.full(samples, UNLABELLED, np.int64)
    places = np.array(sorted(labelled), np.int64)
    labels = np.array([labelled[place] for place in places.tolist()], np.int64)
    at = np.arange(samples)
    right = np.clip(np.searchsorted(places, at), 1, max(1, len(places) - 1))
    left = right - 1
    right = np.minimum(right, len(places) - 1)
    nearest = np.where(at - places[left] <= places[right] - at, left, right)
    marks = labels[nearest]
    if reach:
        marks[np.abs(places[nearest] - at) > reach] = UNLABELLED
    return marks


def stamps(recording: Recording, rate_hz: float) -> Float64:
    """Time of each sample, seconds; from 0 where the recording has no stamps of its own."""
    return recording.t if recording.t is not None else np.arange(len(recording.values), dtype=np.float64) / rate_hz


def window_label(recording: Recording, t: Float64, first: float, last: float, *, rule: Rule, purity: float) -> int:
    """Label of the window that spans the stamps `first` to `last`.

    Args:
        recording: a recording with one label or marks.
        t: stamps of its samples.
        first: stamp of the window's first sample.
        last: stamp of its last one.
        rule: ``centre`` takes the sample in the middle, ``end`` the last one, ``majority`` the most frequent label.
        purity: smallest share of the window's samples that must bear the label.

    Returns:
        The label, or `UNLABELLED`.
    """
    if recording.marks is None:
        return recording.label
    begin, end = np.searchsorted(t, (first - 1e-6, last + 1e-6)).tolist()
    marks = recording.marks[begin:end]
    if not len(marks):
        return UNLABELLED
    if rule == "majority":
        known = marks[marks >= 0]
        label = int(np.bincount(known).argmax()) if len(known) else UNLABELLED
    elif rule == "end":
        label = int(marks[-1])
    else:
        middle = int(np.searchsorted(t, (first + last) / 2))
        label = int(recording.marks[min(middle, len(recording.marks) - 1)])
    if label == UNLABELLED or float((marks == label).mean()) < purity:
        return UNLABELLED
    return label


def label_windows(dataset: Dataset, contract: InputContract, *, rule: Rule = "centre", purity: float = 0.0) -> Windows:
    """Cut every recording as the device would, and label each window.

    Args:
        dataset: what to cut; its recordings' names are the keys of the streams.
        contract: what a window is; its rate may differ from the data set's.
        rule: see `window_label`.
        purity: see `window_label`.

    Returns:
        The labelled windows only, in order of recording and time, with `InputContract.history` samples each;
        `Windows.start` is the slot of `edge_runtime.signal.windowing.window.Window`, so name and start make the
        prediction's id.

    Raises:
        ConfigError: no recording gives a labelled window.
    """
    contexts: list[Float32] = []
    rows: list[tuple[int, int, int]] = []
    length = (contract.window - 1) / contract.rate_hz
    for index, recording in enumerate(dataset.recordings):
        t = stamps(recording, dataset.rate_hz)
        for window in cut(contract, recording, t):
            label = window_label(recording, t, window.start, window.start + length, rule=rule, purity=purity)
            if label != UNLABELLED:
                contexts.append(with_context(window, contract.history))
                rows.append((index, window.slot, label))
    if not rows:
        raise ConfigError(
            f"no recording of {dataset.name!r} gives a labelled window of {contract.window} samples at "
            f"{contract.rate_hz:g} Hz; ask for shorter windows, or look at rate_hz and the labels"
        )
    recording_of, slots, labels = np.array(rows, np.int64).T
    return Windows(
        contexts=np.stack(contexts),
        samples=contract.window,
        y=labels,
        group=np.array([dataset.recordings[i].group for i in recording_of.tolist()]),
        recording=recording_of,
        start=slots,
    )


def cut(contract: InputContract, recording: Recording, t: Float64) -> list[Window]:
    """Cut all windows of a recording as the device would.

    Args:
        contract: what a window is.
        recording: a recording of one table, or of several sensors with stamps of their own.
        t: `stamps` of it.
    """
    if recording.tables:
        return cut_tables(contract, recording.name, recording.tables)
    return cut_recording(contract, recording.name, t, recording.values)


def clip(recording: Recording, samples: int) -> Recording:
    """Cut or pad a recording to `samples`: its loudest stretch, or all of it in the middle of silence.

    Args:
        recording: a recording with one label, and without stamps of its own.
        samples: length of the clip.

    Raises:
        ConfigError: the recording has stamps, or a label for each sample; such a stream has no middle.
    """
    if recording.t is not None or recording.marks is not None:
        raise ConfigError(f"{recording.name}: clip_s is for recordings with one label and no stamps; leave it out")
    values = recording.values
    if len(values) > samples:
        energy = np.concatenate(([0.0], np.cumsum(np.square(values, dtype=np.float64).sum(axis=1))))
        begin = int((energy[samples:] - energy[:-samples]).argmax())
        return replace(recording, values=values[begin : begin + samples])
    before = (samples - len(values)) // 2
    return replace(recording, values=np.pad(values, ((before, samples - len(values) - before), (0, 0))))
