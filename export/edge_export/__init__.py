"""The export toolchain: from labelled recordings and a teacher to a small model that runs on a device.

It runs on a workstation and may use torch; nothing under `edge_runtime` or `devices` imports it.
"""
