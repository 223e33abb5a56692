"""MQTT 3.1.1 and 5: a codec without I/O, an embedded broker for demo and tests, and the client to a real broker.

Nothing is imported here, so that a device pays only for the part it uses: `edge_runtime.io.mqtt.packets` is the codec,
`edge_runtime.tools.demo.broker.broker` the embedded broker.
"""
