"""Sensors of the board itself, through Linux Industrial I/O: I2C and SPI accelerometers, gyroscopes, barometers, ADCs.

::

    config    which sensor, which of its channels, how it is read
    layout    records of the character device, units of channel types: no file is touched
    sysfs     one sensor as the kernel shows it: its channels, rate and buffer
    source    reads it, buffered or polled

Two ways, both of the kernel's own interface and without a library. *Polling* reads a file of sysfs for each channel
and sample: any driver can do it, up to some 200 samples a second. *Buffered* lets the driver collect samples by
interrupt or trigger, and reads them as records from the character device: exact times, any rate.

Values arrive in the units of the kernel's interface (m/s^2, rad/s, ...) and are turned into those of the model's
channels where both are known; otherwise the configuration says by which factor.

Sources: see `edge_devices.sources.iio.layout`.
"""

from __future__ import annotations

from edge_devices.sources.iio.config import IioConfig
from edge_devices.sources.iio.source import IioSource
from edge_runtime.io.sources.build import SourceParts

__all__ = ["IioConfig", "IioSource", "make_source"]


def make_source(config: IioConfig, parts: SourceParts) -> IioSource:
    """Make the source; see `edge_runtime.io.sources.build`."""
    return IioSource(config, parts.contract, parts.metrics, parts.clock, name=parts.name)
