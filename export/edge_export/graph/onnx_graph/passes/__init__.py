"""Passes over ONNX graphs, one a file, in the manner of onnx-ir: `requires`, `call`, `ensures`."""
