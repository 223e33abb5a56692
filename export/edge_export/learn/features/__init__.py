"""Front ends as torch modules that become plain ONNX operators."""
