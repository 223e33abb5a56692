"""A recipe for the recordings of the fixture ``waves``, small enough to be built from in a test."""

from __future__ import annotations

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
