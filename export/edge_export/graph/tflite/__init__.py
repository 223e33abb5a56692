"""TensorFlow Lite writer; `convert` is its entry.

`lower` rewrites what TensorFlow Lite has no operator for, `write` writes what is left; `read` takes other files in.
"""
