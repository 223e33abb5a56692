"""The embedded MQTT broker, for the demo and for tests only."""
