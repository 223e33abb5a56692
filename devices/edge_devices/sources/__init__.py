"""Sources that read a device of this board: a serial port, a microphone, sensors of Industrial I/O."""
