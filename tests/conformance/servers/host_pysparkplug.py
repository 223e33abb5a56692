"""A Sparkplug host by pysparkplug, to be run in its environment: a line of JSON for each message, decoded by births.

    python host_pysparkplug.py PORT GROUP NODE

A line ``rebirth`` on its input makes it send that command.
"""

import json
import sys
import time

import pysparkplug as sparkplug  # type: ignore[import-not-found]


def main(port: int, group: str, node: str) -> None:
    """Subscribe, say so, and print until the input ends."""
    client = sparkplug.Client()

    def on_message(_client: sparkplug.Client, message: sparkplug.Message) -> None:
        payload = message.payload
        metrics = [payload.bd_seq_metric] if isinstance(payload, sparkplug.NDeath) else getattr(payload, "metrics", ())
        document = {
            "verb": message.topic.message_type.value,
            "device": message.topic.device_id,
            "qos": int(message.qos),
            "retain": bool(message.retain),
            "seq": getattr(payload, "seq", None),
            "timestamp": payload.timestamp,
            "metrics": [
                {
                    "name": one.name,
                    "type": one.datatype.name,
                    "value": one.value,
                    "alias": one.alias,
                    "timestamp": one.timestamp,
                    "historical": one.is_historical,
                    "null": one.is_null,
                }
                for one in metrics
            ],
        }
        print(json.dumps(document), flush=True)

    topic = sparkplug.Topic(group_id=group, message_type="#")
    client.subscribe(topic, sparkplug.QoS.AT_LEAST_ONCE, on_message)
    client.connect("127.0.0.1", port=port, callback=lambda _: print("connected", flush=True))
    for line in sys.stdin:
        if line.strip() == "rebirth":
            now = int(time.time() * 1000)
            metric = sparkplug.Metric(
                timestamp=now, name="Node Control/Rebirth", datatype=sparkplug.DataType.BOOLEAN, value=True
            )
            client.publish(
                sparkplug.Message(
                    topic=sparkplug.Topic(group_id=group, message_type=sparkplug.MessageType.NCMD, edge_node_id=node),
                    payload=sparkplug.NCmd(timestamp=now, metrics=(metric,)),
                    qos=sparkplug.QoS.AT_MOST_ONCE,
                    retain=False,
                ),
                include_dtypes=True,
            )
    client.disconnect()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
