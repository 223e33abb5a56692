"""Cutting and saving of whole data sets, for tests: the demo's recordings were written by `save_recordings`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from edge_export.data.dataset import Dataset, Float32, Windows, write_npz

from edge_runtime.errors import ConfigError


def cut_windows(dataset: Dataset, *, samples: int, hop: int, context: int | None = None) -> Windows:
    """Cut every recording into windows that lie fully inside it.

    Args:
        dataset: what to cut.
        samples: window length.
        hop: distance of window starts.
        context: samples up to the window's end that are kept, at least `samples`; default: the window alone.
            Missing history is filled at the front with the first sample, as
            `edge_runtime.signal.windowing.batch.with_context` does on the device. A run of identical samples at the
            front is therefore no signal, and a model that looks at contexts should ignore it.

    Raises:
        ConfigError: a length is not positive, or no recording is long enough.
    """
    context = samples if context is None else context
    if samples < 1 or hop < 1 or context < samples:
        raise ConfigError(f"need samples >= 1, hop >= 1 and context >= samples, not {samples}, {hop}, {context}")
    contexts: list[Float32] = []
    places: list[tuple[int, int]] = []
    for index, recording in enumerate(dataset.recordings):
        for start in range(0, len(recording.values) - samples + 1, hop):
            stop = start + samples
            kept = recording.values[max(0, stop - context) : stop].T
            contexts.append(np.pad(kept, ((0, 0), (context - kept.shape[1], 0)), mode="edge"))
            places.append((index, start))
    if not places:
        raise ConfigError(f"no recording of {dataset.name!r} has {samples} samples; ask for shorter windows")
    index_of = np.array([index for index, _ in places], np.int64)
    return Windows(
        contexts=np.stack(contexts),
        samples=samples,
        y=np.array([dataset.recordings[i].label for i, _ in places], np.int64),
        group=np.array([dataset.recordings[i].group for i, _ in places]),
        recording=index_of,
        start=np.array([start for _, start in places], np.int64),
    )


def save_recordings(path: Path, dataset: Dataset, *, scale: Iterable[float]) -> None:
    """Write recordings as a compressed npz of plain arrays, the same bytes for the same content.

    Values are stored as int16 multiples of a step per channel. Arrays: ``x`` int16 (all samples, channels), ``scale``
    float32 (channels,), ``offset`` int64 (recordings + 1,), ``label`` uint8 (recordings,), ``subject`` (recordings,;
    integers where all groups are whole numbers), ``name``, ``tags`` (``key=value`` pairs joined by ``;``),
    ``classes``, ``channels``, ``units``, ``rate_hz`` float64 (), ``dataset``.

    Args:
        path: file to write.
        dataset: what to write.
        scale: step of each channel in its unit; a power of two makes the stored value exact in float32.

    Raises:
        ConfigError: a value does not fit into int16 at its channel's step.
    """
    step = np.array(list(scale), np.float32)
    ticks = np.rint(np.concatenate([r.values for r in dataset.recordings]) / step)
    if not np.abs(ticks).max() <= np.iinfo(np.int16).max:
        raise ConfigError("a value exceeds int16 at this scale; choose a larger step")
    groups = [r.group for r in dataset.recordings]
    arrays: dict[str, npt.NDArray[Any]] = {
        "x": ticks.astype(np.int16),
        "scale": step,
        "offset": np.cumsum([0, *(len(r.values) for r in dataset.recordings)], dtype=np.int64),
        "label": np.array([r.label for r in dataset.recordings], np.uint8),
        "subject": np.array([int(g) for g in groups] if all(g.isdecimal() for g in groups) else groups),
        "name": np.array([r.name for r in dataset.recordings]),
        "tags": np.array([";".join(f"{k}={v}" for k, v in sorted(r.tags.items())) for r in dataset.recordings]),
        "classes": np.array(dataset.classes),
        "channels": np.array([c.name for c in dataset.channels]),
        "units": np.array([c.unit for c in dataset.channels]),
        "rate_hz": np.array(dataset.rate_hz, np.float64),
        "dataset": np.array(dataset.name),
    }
    write_npz(path, arrays)
