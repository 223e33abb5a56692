"""Home Assistant: the application and its keys as devices, by MQTT discovery; docs/home-assistant.md."""
