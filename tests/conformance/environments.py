"""The environments of the real servers, broker, client, signer and database, each in a folder of its own: ``.venvs/``.

    python tests/conformance/environments.py            make what is missing (1.4 GB in all, some minutes)
    python tests/conformance/environments.py kserve     only this one

VictoriaMetrics is a Debian package, unpacked by mmdebstrap and never installed. They are kept apart since their
dependencies contradict one another (numpy below and above 2, four versions of protobuf); none of it is needed to use
edge-runtime.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venvs"
PACKAGES = {
    "tritonclient": ("tritonclient[http]==2.73.0",),
    "triton": ("nvidia-pytriton==0.7.0",),  # brings Triton 2.51 itself
    "mlserver": ("mlserver==1.7.1",),
    "kserve": ("kserve==0.21.0",),
    "amqtt": ("amqtt==0.12.1",),
    "model-signing": ("model-signing==1.1.1", "pyOpenSSL==26.4.0"),  # imports OpenSSL without asking for it
    "victoria-metrics": ("victoria-metrics",),
    "pysparkplug": ("pysparkplug==0.6.1",),
    "sparkplug-payload": ("sparkplug-payload@1.0.3",),
}
NODE = frozenset({"sparkplug-payload"})
"""Those that npm makes, for Node.js."""
DEBIAN = {"victoria-metrics": "trixie"}
"""Environments of Debian packages, and the suite they are from: VictoriaMetrics reads OTLP from 1.92 on."""


def python_of(name: str) -> Path:
    """The interpreter of an environment, whether it is there or not."""
    return FOLDER / name / "bin" / "python"


def is_ready(name: str) -> bool:
    """Whether an environment was made to the end, with the packages it should have today."""
    stamp = FOLDER / name / "packages.txt"
    return stamp.is_file() and stamp.read_text() == "\n".join(PACKAGES[name])


def command_for(name: str) -> str:
    """What to type to make it."""
    return f"python tests/conformance/environments.py {name}"


def program_of(name: str) -> list[str]:
    """Command that starts a Debian package's program by that package's own loader and libraries."""
    root = FOLDER / name
    (loader,) = root.glob("usr/lib/*-linux-gnu/ld-linux-*.so.*")
    return [str(loader), "--library-path", str(loader.parent), str(root / "usr" / "bin" / name)]


def make(name: str) -> None:
    """Create an environment and install its packages.

    Raises:
        subprocess.CalledProcessError: pip, npm or mmdebstrap failed; it has said why.
        FileNotFoundError: mmdebstrap is not installed (``sh scripts/tools mmdebstrap``).
    """
    print(f"installing {', '.join(PACKAGES[name])} into {(FOLDER / name).relative_to(ROOT)}", flush=True)
    make_it = _make_node if name in NODE else _make_debian if name in DEBIAN else _make_python
    make_it(name)
    (FOLDER / name / "packages.txt").write_text("\n".join(PACKAGES[name]))


def _make_debian(name: str) -> None:
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / name).mkdir(parents=True)
    included = f"--include={','.join(PACKAGES[name])}"
    fetch = ["mmdebstrap", "--quiet", "--variant=extract", included, "--format=tar", DEBIAN[name], "-"]
    wanted = [f"./usr/bin/{name}", "./usr/lib/*-linux-gnu/*.so*"]
    unpack = ["tar", "-x", "--no-same-owner", "--wildcards", "-C", str(FOLDER / name), *wanted]
    with tempfile.TemporaryFile() as tar:
        subprocess.run(fetch, stdout=tar, check=True)
        tar.seek(0)
        subprocess.run(unpack, stdin=tar, check=True)


def _make_node(name: str) -> None:
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
    npm = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(FOLDER / name)]
    subprocess.run([*npm, *PACKAGES[name]], check=True)


def _make_python(name: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER / name], check=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES[name]], check=True)


def main(names: list[str]) -> int:
    """Make the environments named, all without names; those that are there already are left alone."""
    unknown = [name for name in names if name not in PACKAGES]
    if unknown:
        print(f"unknown environment {unknown[0]!r}; there are {', '.join(PACKAGES)}", file=sys.stderr)
        return 2
    for name in names or PACKAGES:
        if name in NODE and shutil.which("npm") is None:
            print(f"left out {name}: npm is not installed (Debian: apt-get install npm)", file=sys.stderr)
        elif not is_ready(name):
            make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
