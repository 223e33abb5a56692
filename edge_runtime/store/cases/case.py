"""A kept case, and the contract that its samples and labels follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import orjson

from edge_runtime.manifest import Channel, Manifest
from edge_runtime.types import Float32

NONE_OF_THESE: Final = "none of these"
SKIP: Final = "skip"
"""Choices of a person besides the bundle's labels."""
Origin = Literal["page", "command", "cloud"]
"""Place where a label was given; labels of a version before have none."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Part of its bundle's manifest that a case needs."""

    model: str
    rate_hz: float
    channels: tuple[Channel, ...]
    labels: tuple[str, ...]

    def to_json(self) -> bytes:
        """Encode it."""
        return orjson.dumps(
            {
                "model": self.model,
                "rate_hz": self.rate_hz,
                "channels": [[one.name, one.unit] for one in self.channels],
                "labels": self.labels,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Contract:
        """Decode what `to_json` made."""
        found = orjson.loads(data)
        channels = tuple(Channel(name=name, unit=unit) for name, unit in found["channels"])
        return cls(found["model"], found["rate_hz"], channels, tuple(found["labels"]))

    @property
    def choices(self) -> tuple[str, ...]:
        """Choices of a person."""
        return (*self.labels, NONE_OF_THESE, SKIP)


def contract_of(manifest: Manifest) -> Contract:
    """Take from a manifest what a case needs."""
    contract = manifest.input
    labels = tuple(getattr(manifest.output, "labels", ()))
    channels = tuple(Channel(name=one.name, unit=one.unit) for one in contract.channels)
    return Contract(manifest.model, contract.rate_hz, channels, labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Two models that name different labels for one window."""

    bundle: str
    """SHA-256 of the file of the model on trial."""
    against: str
    """Name and version of the one that answers."""
    attempt: int = -1
    """Number of the try (`edge_runtime.operate.update.state.UpdateState.attempt`); -1: drawn without a secret."""
    old: str
    """Label that the one that answers gives by this window alone."""
    new: str
    """Label that the one on trial gives."""


@dataclass(frozen=True, slots=True)
class Case:
    """One window that was kept.

    Attributes:
        id: of the window.
        start: stamp of its first sample, seconds.
        kept: wall clock, seconds; for people, no age is counted by it.
        why: ``hard``, ``audit``, ``suspect``, ``random`` or ``differ``.
        samples: (n, n_channels); none where only the label was kept.
        device: the device's answer, as it was published.
        cloud: the cloud's correction; None while there is none.
        label: what a person said; empty until then.
        origin: where they said it; empty until then.
        rival: what a model on trial said in place of the one that answers; None where none was asked, or both agreed.
    """

    id: str
    key: str
    start: float
    kept: float
    why: str
    contract: Contract
    samples: Float32 = field(repr=False)
    device: Mapping[str, Any]
    cloud: Mapping[str, Any] | None = None
    label: str = ""
    rival: Rival | None = None
    origin: Origin | Literal[""] = ""

    @property
    def times(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Stamps of the samples, seconds."""
        return self.start + np.arange(len(self.samples)) / self.contract.rate_hz
