"""Recordings, and a recipe for them, small enough to be built from in a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

RECIPE = """
name = "waves"
version = 3
created = "2026-01-02"
classes = ["slow", "fast", "flat"]
targets = ["cpu", "raspberry-pi-4"]
stream_hop = 8

[[data]]
type = "npz"
key = "waves"
time = "t"
label = "y"
origin = { name = "made up", source = "this test", licence = "CC0" }

[window]
rate_hz = 50
samples = 40
hop = 20
context = 60
label = "majority"
channels = [{ name = "ax", unit = "g" }, { name = "ay", unit = "g" }]

[split]
test = ["p4", "p5"]
validation = ["p3"]
train = ["p0", "p1", "p2"]

[teacher]
training = { steps = 120, batch = 16 }
candidates = [{ type = "resnet-1d", width = 0.125, depth = 2 }, { type = "resnet-1d", width = 0.25, depth = 2 }]

[student]
network = { type = "separable-cnn-1d", width = 0.5, depth = 2, kernel = 5 }
training = { steps = 150, batch = 16, learning_rate = 0.01 }
pool = 256
weights = "float16"
front_end = [{ type = "difference", keep = true }]

[prune]
ratio = 0.3
steps = 1
round_to = 4
max_drop = 0.2
training = { steps = 60, batch = 16 }

[quantise]
calibration_windows = 64
training = { steps = 40, batch = 16, learning_rate = 0.0005 }

[gate]
max_forwarded = 0.2

[references]
"""


def write_waves(folder: Path) -> None:
    """Six people who wave slowly, fast or not at all, sample by sample, on jittering clocks."""
    folder.mkdir(exist_ok=True)
    for person in range(6):
        random = np.random.default_rng(person)
        y = np.repeat(random.permutation([0, 1, 2, 0, 1, 2]), 300)
        t = np.arange(len(y)) / 50 + random.uniform(-0.002, 0.002, len(y))
        frequency = np.array([0.7, 3.0, 0.0])[y]
        phase = np.cumsum(2 * np.pi * frequency / 50)
        x = np.stack([np.sin(phase), np.cos(phase)], 1) * (1 + 0.1 * person) + 0.2 * random.standard_normal((len(y), 2))
        np.savez(folder / f"p{person}.npz", x=x.astype(np.float32), y=y, t=t)
