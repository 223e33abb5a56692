"""ONNX operators rewritten until each has a TensorFlow Lite operator of its kind."""
