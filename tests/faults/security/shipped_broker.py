"""The broker that examples/broker ships, started from its own files with its own certificates."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

from tests.mosquitto import Mosquitto

SHIPPED = Path(__file__).resolve().parents[3] / "examples" / "broker"
NAMES = ("device-a", "device-b", "watch-1", "watch-2", "operator")


class ShippedBroker:
    """Listens on a free port of 127.0.0.1; nothing else differs from the shipped configuration.

    Args:
        folder: for the copy, certificates included.
        names: common names of the clients.
    """

    def __init__(self, folder: Path, names: tuple[str, ...] = NAMES) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed (Debian: apt-get install openssl)")
        self.folder = folder / "broker"
        shutil.copytree(SHIPPED, self.folder)
        self.certificates("ca", "server", *names)
        lines = []
        for line in (self.folder / "mosquitto.conf").read_text().splitlines():
            word, _, value = line.partition(" ")
            if word in {"certfile", "keyfile", "cafile", "acl_file", "persistence_location"}:
                line = f"{word} {self.folder / value}"  # noqa: PLW2901 - mosquitto runs elsewhere
            if word != "listener" and line and not line.startswith("#"):
                lines.append(line)
        self._mosquitto = Mosquitto(*lines, "log_type all")

    def certificates(self, *names: str) -> None:
        """Run the shipped script."""
        environment = {"PATH": os.environ["PATH"], "BROKER": "127.0.0.1"}
        script = ["sh", str(self.folder / "certificates.sh"), *names]
        subprocess.run(script, check=True, env=environment, timeout=60, capture_output=True)

    @property
    def port(self) -> int:
        return self._mosquitto.port

    @property
    def url(self) -> str:
        return f"mqtts://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.folder / "certs" / "ca.pem"

    def client(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a client."""
        return self.folder / "certs" / f"{name}.pem", self.folder / "certs" / f"{name}.key"

    def log(self) -> str:
        return self._mosquitto.log()

    def __enter__(self) -> ShippedBroker:
        self._mosquitto.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mosquitto.close()
