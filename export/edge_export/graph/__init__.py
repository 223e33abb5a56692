"""Model files and what is done to them: ONNX passes, int8, states for streams, TensorFlow Lite.

Imports `data` and the ground.
"""
