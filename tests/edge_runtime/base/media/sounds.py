"""Sound of another rate, in one go."""

from __future__ import annotations

import numpy as np

from edge_runtime.base.media.resample import Resampler
from edge_runtime.types import Float32


def resampled(samples: Float32, rate_hz: float, to_hz: float) -> Float32:
    """A whole recording, (n, channels), at another rate: ceil(n * to_hz / rate_hz) samples."""
    resampler = Resampler(rate_hz, to_hz, samples.shape[1])
    return np.concatenate((resampler.push(samples), resampler.finish()))
