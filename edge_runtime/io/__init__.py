"""Where readings come from and answers go: MQTT, payload codecs, recordings, sources, sinks.

Imports `base`, `manifest` and the ground.
"""
