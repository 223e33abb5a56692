"""Choice of the cloud client by the scheme of its URL."""

from __future__ import annotations

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.config import CloudConfig


def connect(config: CloudConfig, clock: Clock | None = None) -> CloudClient:
    """Make the client for a configuration; it opens no connection yet.

    Raises:
        ConfigError: a file is unreadable, or the extra for gRPC is not installed.
    """
    clock = clock or SystemClock()
    if config.endpoint.scheme in ("grpc", "grpcs"):
        from edge_runtime.cloud.grpc import GrpcClient  # noqa: PLC0415 - heavy, and an extra

        return GrpcClient(config, clock)
    from edge_runtime.cloud.http import HttpClient  # noqa: PLC0415 - keeps ssl and zlib out of `import edge_runtime`

    return HttpClient(config, clock)
