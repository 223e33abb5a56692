"""Per-channel energy normalisation (PCEN): automatic gain for each band, then a root.

Source: Wang et al. 2017; arithmetic and starting value as `librosa.pcen` (0.11) has them. The smoother's output is a
state of the key, as librosa's ``zi``: a stream gives the rows that librosa gives for it as one clip, however it is cut.
"""

from __future__ import annotations

import numpy as np

from edge_runtime.manifest.mel import Pcen
from edge_runtime.signal.frontends import Array, StateSpec
from edge_runtime.types import Float64


class Normaliser:
    """Normalises the energies of bands, in order of time.

    Args:
        spec: settings.
        step_s: seconds from one row to the next.
        bands: the number of bands in a row.
    """

    def __init__(self, spec: Pcen, step_s: float, bands: int) -> None:
        self._spec = spec
        in_steps = spec.time_constant_s / step_s
        self._share = float((np.sqrt(1 + 4 * in_steps**2) - 1) / (2 * in_steps**2))
        self.state = StateSpec("smooth", np.dtype(np.float64), (bands,), 1.0)  # lfilter_zi of a unit step

    def __call__(self, energies: Float64, smooth: Array) -> tuple[Float64, Float64]:
        """Normalise.

        Args:
            energies: (batch, rows, bands).
            smooth: the state, (batch, bands).

        Returns:
            Rows, and the new state.
        """
        spec = self._spec
        smoothed = np.empty_like(energies)
        last = np.asarray(smooth, np.float64)
        for row in range(energies.shape[1]):
            last = (1 - self._share) * last + self._share * energies[:, row]
            smoothed[:, row] = last
        gained = energies * np.exp(-spec.gain * (np.log(spec.eps) + np.log1p(smoothed / spec.eps)))
        if spec.power == 0:
            return np.log1p(gained), last
        if spec.bias == 0:
            return gained**spec.power, last
        return spec.bias**spec.power * np.expm1(spec.power * np.log1p(gained / spec.bias)), last
