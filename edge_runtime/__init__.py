"""Small int8 models on live sensor streams, with a cloud for the hard cases."""

from edge_runtime._version import __version__

__all__ = ["__version__"]
