"""Settings of an Industrial I/O sensor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class IioConfig:
    """Settings of a sensor: its device, its channels, its rate and its trigger."""

    type: Literal["iio"] = "iio"
    device: str
    """Its name (file ``name``, for example ``mpu6050``), its label, or ``iio:device0``."""
    channels: tuple[str, ...]
    """One for each channel of the model, in its order, as sysfs names them without ``in_``: ``accel_x``, ``voltage0``,
    ``temp``. One with a repeat count (``rot_quaternion``) stands for several."""
    mode: Literal["auto", "buffered", "polled"] = "auto"
    """``auto``: buffered where the driver and its trigger allow it."""
    rate_hz: float = 0.0
    """Written to ``sampling_frequency``; 0 leaves it as it is. When polling, how often; 0: the model's rate."""
    factor: tuple[float, ...] = ()
    """Factor from the kernel's unit to the model's, one or one per channel; empty: worked out from the units."""
    trigger: str = ""
    """Written to ``trigger/current_trigger``; empty leaves it as it is. Many drivers bring their own."""
    batch: int = 0
    """Samples delivered together; 0: as many as come in a tenth of a second."""
    key: str = ""
    """Key of the readings; empty: the device's label or name."""
    sysfs: Path = Path("/sys/bus/iio/devices")
    dev: Path = Path("/dev")

    def __post_init__(self) -> None:
        if not self.device or "/" in self.device:
            raise ValueError(f"device must be a name such as 'mpu6050' or 'iio:device0', got '{self.device}'")
        if not self.channels or any(not re.fullmatch(r"[A-Za-z0-9_\-]+", name) for name in self.channels):
            raise ValueError("channels must name the sensor's channels, for example 'accel_x'")
        if len(set(self.channels)) < len(self.channels):
            raise ValueError("a channel is named twice")
        if not 0 <= self.rate_hz <= 1e6 or not 0 <= self.batch <= 65_536:
            raise ValueError("rate_hz must be 0 to 1e6, batch 0 to 65536")
        if any(not 0 < abs(factor) < 1e30 for factor in self.factor):
            raise ValueError("factor must not be 0 and lie within +-1e30")
