"""ONNX graphs and the passes over them."""
