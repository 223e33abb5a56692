// Settings of Node-RED without its editor; the function node gets onnxruntime-node as a global.
"use strict";
module.exports = {
  httpAdminRoot: false,
  httpNodeRoot: false,
  uiPort: 0,
  uiHost: "127.0.0.1",
  functionGlobalContext: { ort: require("onnxruntime-node"), Float32Array }, // a function has a Float32Array of its own, which ort refuses
  logging: { console: { level: "error", metrics: false, audit: false } },
};
