"""Starts edge-runtime as an add-on of Home Assistant.

1. The Supervisor is asked for the broker's user and password; they go into files that ``app.toml`` names.
2. edge-runtime runs as a user of its own, who owns ``/data/state``.
3. Exit code 4 means that Home Assistant's restart button was pressed: it is started again. Any other one ends this.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SUPERVISOR = "http://supervisor/services/mqtt"
USER = 990
AGAIN = 4
PAUSE_S = 2.0


def broker(token: str, url: str = SUPERVISOR) -> dict[str, Any]:
    """Ask the Supervisor for the MQTT service: host, port, username, password."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - the Supervisor's
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found: dict[str, Any] = json.loads(answer.read())["data"]
    return found


def write_secrets(service: dict[str, Any], state: Path) -> None:
    """Write ``mqtt-user`` and ``mqtt-password``, for their owner alone."""
    state.mkdir(mode=0o700, exist_ok=True)
    for name, field in (("mqtt-user", "username"), ("mqtt-password", "password")):
        path = state / name
        path.touch(mode=0o600)
        path.write_text(f"{service.get(field) or ''}\n", encoding="utf-8")


def own(folder: Path, user: int) -> None:
    """Give a folder and all that is in it to the user that edge-runtime runs as."""
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, user, user)


def run(command: list[str], user: int | None) -> int:
    """Run until it ends in another way than to be started again; SIGTERM is passed on."""
    while True:
        process = subprocess.Popen(command, user=user, group=user, extra_groups=[] if user else None)  # noqa: S603
        signal.signal(signal.SIGTERM, lambda *_, child=process: child.terminate())
        if (code := process.wait()) != AGAIN:
            return code
        time.sleep(PAUSE_S)


def main() -> int:
    """Start it."""
    options = json.loads(Path("/data/options.json").read_text(encoding="utf-8"))
    service = broker(os.environ["SUPERVISOR_TOKEN"])
    print(f"broker: mqtt://{service['host']}:{service['port']}", flush=True)
    state = Path("/data/state")
    write_secrets(service, state)
    own(state, USER)
    program = str(Path(sys.executable).with_name("edge-runtime"))
    return run([program, "run", str(Path("/config") / options["app"])], USER)


if __name__ == "__main__":
    sys.exit(main())
