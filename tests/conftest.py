"""What every test may ask for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.cpu_seconds", "tests.long_files_first", "tests.long_tier"]

# Programs that a script starts in the background ignore Ctrl-C, and so does what they start; ours are stopped by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_BESIDE = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real recordings and models that lies beside a development checkout; skips where there is none."""
    folder = Path(os.environ.get("EDGE_SHARED", _BESIDE))
    if not (folder / "data").is_dir():
        pytest.skip(f"no shared data and models in {folder} (set EDGE_SHARED to their folder)")
    return folder
