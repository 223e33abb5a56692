"""Manifest entry of TensorFlow Lite Micro's audio front end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge_runtime.manifest.row_stage import RowStage, Span

_BANDS = (8, 64)
"""Range that was compared with the source. With more, low bands would hold no bin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroFrontend(RowStage):
    """Rows of energies in mel bands, noise reduced, gain controlled, logarithmic; fixed point, as on microcontrollers.

    What models vary is here. The rest is what all of them were trained with: 16 kHz, a Hann window of 480 samples, 125
    to 7500 Hz, noise smoothing of .025 and .06, gain control of strength .95 and offset 80, a logarithm with 6 bits.
    """

    type: Literal["micro-frontend"] = "micro-frontend"
    name: str = "micro-frontend"
    hop: int = 160
    """Samples from one row to the next one: 160 for microWakeWord, 320 for TensorFlow's micro_speech."""
    bands: int = 40
    """Numbers in a row."""

    def __post_init__(self) -> None:
        if not 1 <= self.hop <= self.frame:
            raise ValueError(f"hop must be 1 to {self.frame} samples")
        if not _BANDS[0] <= self.bands <= _BANDS[1]:
            raise ValueError(f"bands must be {_BANDS[0]} to {_BANDS[1]}")

    @property
    def frame(self) -> int:
        """Samples that a row is made of: 30 ms."""
        return 480

    @property
    def made_for_hz(self) -> float:
        """See `RowStage`."""
        return 16000.0

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return True

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`: frames go on from step to step."""
        return ((self.frame, self.hop, 0),)
