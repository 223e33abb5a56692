// The loop on mqtt.js and onnxruntime-node: NODE_PATH=.../node_modules node loop.js --port 1883 --model model.onnx
"use strict";
const mqtt = require("mqtt");
const ort = require("onnxruntime-node");

const WINDOW = 128, HOP = 64, CHANNELS = 6, RATE_HZ = 50;
const LABELS = ["rest", "press", "row", "curl", "raise", "swing"];
const option = (name) => process.argv[process.argv.indexOf(name) + 1];
const rings = new Map();

async function answer(session, client, key, slot, samples) {
  const x = new Float32Array(CHANNELS * WINDOW);
  for (let i = 0; i < WINDOW; i++) for (let c = 0; c < CHANNELS; c++) x[c * WINDOW + i] = samples[i * CHANNELS + c];
  const result = await session.run({ x: new ort.Tensor("float32", x, [1, CHANNELS, WINDOW]) });
  const scores = Array.from(result[session.outputNames[0]].data);
  const best = scores.indexOf(Math.max(...scores));
  const body = {
    id: `${key}@${slot}`, key, start: slot / RATE_HZ, end: (slot + WINDOW) / RATE_HZ,
    label: LABELS[best], confidence: scores[best], scores,
  };
  client.publish(`results/${key}`, JSON.stringify(body));
}

async function main() {
  const session = await ort.InferenceSession.create(option("--model"), { intraOpNumThreads: 1, interOpNumThreads: 1 });
  const client = mqtt.connect(`mqtt://127.0.0.1:${option("--port")}`);
  client.on("connect", () => { client.stream.setNoDelay(true); client.subscribe("sensors/+/raw"); });
  client.on("message", (topic, payload) => {
    const key = topic.split("/")[1];
    let ring = rings.get(key);
    if (!ring) rings.set(key, (ring = { slot: Math.round(payload.readDoubleLE(0) * RATE_HZ), samples: [] }));
    for (let at = 8; at < payload.length; at += 4) ring.samples.push(payload.readFloatLE(at));
    while (ring.samples.length >= WINDOW * CHANNELS) {
      answer(session, client, key, ring.slot, ring.samples.slice(0, WINDOW * CHANNELS));
      ring.samples.splice(0, HOP * CHANNELS);
      ring.slot += HOP;
    }
  });
}

main();
