"""The `.edge` file: archive, signature, model files, golden vectors, sandboxed trial load."""
