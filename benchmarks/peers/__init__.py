"""Other people's quantisers and MQTT programs, each in an environment of its own."""
