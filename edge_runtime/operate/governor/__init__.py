"""Does less before the board must: thermal policy and actuators."""
