"""What must hold before calibration: an hour of search on windows of the wrong unit is an hour lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from edge_runtime.errors import ConfigError
from export.data import Float32
from export.quantize.graph import Net, shape_of


def check_windows(windows: Float32, *, at_least: int = 1, channels: Sequence[str] | None = None) -> None:
    """Refuse windows that cannot set ranges.

    Args:
        windows: (n, channels, samples) float32.
        at_least: how many there must be. A few dozen windows of each class are the usual advice; ranges from fewer
            clip what the device will meet.
        channels: names for the message.

    Raises:
        ConfigError: none, too few, or one with a value that is not finite; it names the window and the channel.
    """
    if not len(windows):
        raise ConfigError("calibration needs windows, and there are none; give some of the training groups'")
    if not np.isfinite(windows).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(windows))[0])
        where = f" in channel {_name(place[1], channels)}" if windows.ndim > 2 else ""
        raise ConfigError(f"calibration needs windows of finite values; window {place[0]} holds one that is not{where}")
    if len(windows) < at_least:
        raise ConfigError(f"calibration needs windows, at least {at_least}, and there are {len(windows)}; give more")


def check_model(model: onnx.ModelProto, windows: Float32 | None = None) -> None:
    """Refuse a model that no calibration can help.

    Args:
        model: float ONNX model.
        windows: what it will be calibrated on, to compare shapes.

    Raises:
        ConfigError: a constant is not finite (named), or the windows have another shape than the input.
    """
    net = Net(model)
    for tensor in net.graph.initializer:
        array = net.constant(tensor.name)
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            readers = ", ".join(node.name or node.op_type for node in net.readers(tensor.name)) or "nothing"
            raise ConfigError(f"{count} values of {tensor.name!r} (read by {readers}) are not finite; train it again")
    if windows is None:
        return
    expected = shape_of(net.source)[1:]
    if len(expected) != windows.ndim - 1 or any(
        size is not None and size != real for size, real in zip(expected, windows.shape[1:], strict=True)
    ):
        asked = " x ".join("any" if size is None else str(size) for size in expected)
        given = " x ".join(str(size) for size in windows.shape[1:])
        raise ConfigError(f"the model takes windows of {asked}, and those for calibration are {given}")


def check_same_units(
    training: Float32, calibration: Float32, *, channels: Sequence[str] | None = None, factor: float = 5.0
) -> None:
    """Refuse calibration windows whose channels are far larger or smaller than in training.

    Compared is each channel's spread: the root mean square of its distance from the training windows' median. The
    usual mistakes are far outside the default factor: g for m/s2 (9.8), degrees for radians (57), milli (1000),
    counts for volts.

    Args:
        training: (n, channels, samples) windows trained on.
        calibration: (m, channels, samples) windows that will set ranges.
        channels: names for the message.
        factor: largest ratio, either way, that still counts as the same unit.

    Raises:
        ConfigError: channel counts differ, or a channel's ratio is out of bounds; it names channel and ratio.
    """
    check_windows(training, channels=channels)
    check_windows(calibration, channels=channels)
    if training.shape[1] != calibration.shape[1]:
        raise ConfigError(
            f"training windows have {training.shape[1]} channels and those for calibration {calibration.shape[1]}"
        )
    for channel in range(training.shape[1]):
        center = float(np.median(training[:, channel]))
        before, after = (
            float(np.sqrt(np.mean(np.square(windows[:, channel].astype(np.float64) - center))))
            for windows in (training, calibration)
        )
        if before == after:
            continue
        ratio = after / before if before > 0 else float("inf")
        if not 1 / factor <= ratio <= factor:
            raise ConfigError(
                f"channel {_name(channel, channels)} spreads {ratio:.3g} times as far in the calibration windows as in "
                "training's; wrong unit?"
            )


def _name(channel: int, channels: Sequence[str] | None) -> str:
    return repr(channels[channel]) if channels is not None else str(channel)
