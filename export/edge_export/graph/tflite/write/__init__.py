"""The TensorFlow Lite operators of each kind of ONNX node, on top of what the graph knows, and the file format."""
