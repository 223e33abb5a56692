"""Serves a bundle by the Open Inference Protocol."""
