"""A small recipe, whose data each test makes."""

from __future__ import annotations

RECIPE = """
name = "waves"
version = 1
created = "2026-01-02"
classes = ["still", "moving"]

[[data]]
type = "npz"
key = "home"
label = "y"
origin = { name = "made up", source = "this test", licence = "CC0" }

[window]
rate_hz = 50
samples = 20
hop = 10
context = 30
channels = [{ name = "ax", unit = "g" }, { name = "ay", unit = "g" }]

[split]
train = ["p0", "p1"]
validation = ["p2"]
test = ["p3"]

[teacher]
training = { steps = 10 }
candidates = [{ type = "resnet-1d" }]

[student]
network = { type = "separable-cnn-1d" }
training = { steps = 10 }

[gate]
max_forwarded = 0.2
"""
