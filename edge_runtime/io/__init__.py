"""Sources of readings and sinks of answers: MQTT, payload codecs, recordings, sources, sinks.

Imports `base`, `manifest` and the ground.
"""
