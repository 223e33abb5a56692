// Payloads decoded by npm's sparkplug-payload: lines of hexadecimal digits in, lines of JSON out.
//
// Of a metric without a data type, as in data messages, its decoder gives no value; the classes below it, which are
// generated from the schema, do. So the values come from these, as `values`.
const folder = process.argv[2];
const sparkplug = require(folder).get("spBv1.0");
const { Payload } = require(folder + "/lib/sparkplugPayloadProto.js").org.eclipse.tahu.protobuf;
const plain = (_, value) => (value && value.constructor && value.constructor.name === "Long" ? value.toNumber() : value);
const valueOf = (metric) => (metric.isNull ? null : plain("", metric[metric.value]));
for (const line of require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const bytes = Buffer.from(line, "hex");
  const values = Payload.decode(bytes).metrics.map(valueOf);
  console.log(JSON.stringify({ ...sparkplug.decodePayload(bytes), values }, plain));
}
