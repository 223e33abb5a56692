"""Settings of the engines: what runs in a process of its own."""

from __future__ import annotations

from typing import Literal

Isolate = Literal["accelerators", "all", "none"]
