"""The networks, for devices and for the cloud, and what surrounds both in their graphs.

Everything between physical units and probabilities is inside: scaling and features at the front, softmax and
temperature at the end. Training and serving therefore cannot differ in it.
"""

from __future__ import annotations

from export.networks.blocks import Classifier
from export.networks.build import build_network
from export.networks.pair import ContextNet, DeviceNet
from export.networks.size import Size, count, sized_to
from export.networks.surround import Calibrated, ChannelScale

__all__ = [
    "Calibrated",
    "ChannelScale",
    "Classifier",
    "ContextNet",
    "DeviceNet",
    "Size",
    "build_network",
    "count",
    "sized_to",
]
