"""The networks, for devices and for the cloud, and what surrounds both in their graphs.

Everything between physical units and probabilities is inside: scaling and features at the front, softmax and
temperature at the end. Training and serving therefore cannot differ in it.
"""

from __future__ import annotations

from edge_export.learn.networks.blocks import Classifier
from edge_export.learn.networks.build import build_network
from edge_export.learn.networks.size import Size, count, sized_to
from edge_export.learn.networks.surround import Calibrated, ChannelScale

__all__ = [
    "Calibrated",
    "ChannelScale",
    "Classifier",
    "Size",
    "build_network",
    "count",
    "sized_to",
]
