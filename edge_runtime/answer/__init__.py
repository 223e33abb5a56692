"""An answer to what is published, and whether to ask the cloud: pipeline, gate, events, selection.

Imports `model`, `signal`, `io` and what is below them.
"""
