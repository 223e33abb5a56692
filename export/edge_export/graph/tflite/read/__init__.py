"""TensorFlow Lite files of others: read as ONNX, and their states taken out."""
