"""The environments of the real servers, broker, client, signer and database, each in a folder of its own: ``.venvs/``.

    python tests/conformance/environments.py            make what is missing (1.4 GB in all, some minutes)
    python tests/conformance/environments.py kserve     only this one

Some need a newer Python than this one: it is looked for on the path and among pyenv's. What needs one that is not there
gets a Debian of its own, where root and mmdebstrap are to be had, and is left out with a line elsewhere.
VictoriaMetrics is a Debian package, unpacked by mmdebstrap and never installed. They are kept apart since their
dependencies contradict one another (numpy below and above 2, four versions of protobuf); none of it is needed to use
edge-runtime.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
    # With what its parts would install while it runs: components/*/manifest.json of mqtt, frontend, recorder, backup.
    "home-assistant-2025": (
        "homeassistant==2025.4.4", "paho-mqtt==2.1.0", "home-assistant-frontend==20250411.0", "SQLAlchemy==2.0.39",
        "fnv-hash-fast==1.4.0", "psutil-home-assistant==0.0.1", "Pillow==11.1.0",
    ),
    "home-assistant-2026": (
        "homeassistant==2026.2.3", "paho-mqtt==2.1.0", "home-assistant-frontend==20260128.6", "SQLAlchemy==2.0.41",
        "fnv-hash-fast==1.6.0", "psutil-home-assistant==0.0.1",
    ),
    "victoria-metrics": ("victoria-metrics",),
    "pysparkplug": ("pysparkplug==0.6.1",),
    "sparkplug-payload": ("sparkplug-payload@1.0.3",),
}  # fmt: skip
NODE = frozenset({"sparkplug-payload"})
"""Those that npm makes, for Node.js."""
SUITE = "trixie"
"""Debian 13: Python 3.13.5."""
NEEDS = {"home-assistant-2025": (3, 13, 0), "home-assistant-2026": (3, 13, 2)}
"""Python that an environment needs, up to the next minor version; this one where none is named."""
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


def interpreter_for(name: str) -> str | None:
    """An interpreter that the environment can be made with; None where this machine has none."""
    if name not in NEEDS:
        return sys.executable
    return next((one for one in _interpreters(NEEDS[name][:2]) if _version(one) >= NEEDS[name]), None)


def lacks(name: str) -> str:
    """What this machine lacks for an environment, for people; empty if nothing."""
    if name in NODE:
        return "" if shutil.which("npm") else f"{name} needs npm (Debian: apt-get install npm)"
    if name in DEBIAN:
        return "" if shutil.which("mmdebstrap") else f"{name} needs mmdebstrap: sh scripts/tools mmdebstrap"
    needed = ".".join(map(str, NEEDS.get(name, ())))
    if interpreter_for(name) or _can_make_root():
        return ""
    return (
        f"{name} needs Python {needed} or a later one of that series; or run as root with mmdebstrap, and Debian's is "
        "taken: sh scripts/tools mmdebstrap"
    )


def _interpreters(series: tuple[int, ...]) -> Iterator[str]:
    name = "python" + ".".join(map(str, series))
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *_pyenv_folders()]
    for folder in folders:
        if folder and (found := shutil.which(name, path=folder)):
            yield found


def _pyenv_folders() -> list[str]:
    if not shutil.which("pyenv"):
        return []
    root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
    return [str(path) for path in sorted(Path(root, "versions").glob("*/bin"), reverse=True)] if root else []


def _version(interpreter: str) -> tuple[int, ...]:
    """Version of an interpreter; nothing where it does not run, as a pyenv shim of another version."""
    question = [interpreter, "-c", "import sys; print(*sys.version_info[:3])"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False)
    return tuple(map(int, answer.stdout.split()))


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
    interpreter = interpreter_for(name)
    if interpreter is None:
        _make_root(name)
        return
    print(f"installing {', '.join(PACKAGES[name])} into {(FOLDER / name).relative_to(ROOT)}", flush=True)
    if name in NODE:
        _make_node(name)
    elif name in DEBIAN:
        _make_debian(name)
    else:
        _make_python(name, interpreter)
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


def _make_python(name: str, interpreter: str) -> None:
    subprocess.run([interpreter, "-m", "venv", "--clear", FOLDER / name], check=True)
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES[name]], check=True)


def _can_make_root() -> bool:
    return os.geteuid() == 0 and shutil.which("mmdebstrap") is not None


def _make_root(name: str) -> None:
    """Create an environment in a Debian of its own, whose Python is newer; a script stands for its interpreter.

    It runs with this machine's files: the root's loader finds the root's libraries, and nothing else changes.
    """
    folder = FOLDER / name
    root = folder / "root"
    print(f"making {root.relative_to(ROOT)} of Debian {SUITE}, and {', '.join(PACKAGES[name])} (1.4 GB)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packages = "python3,python3-pip,python3-dev,gcc,g++,ca-certificates"  # some wheels have to be made
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", SUITE, root], check=True)
    for file in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):  # as this machine finds and trusts hosts
        if Path(file).is_file():
            shutil.copyfile(file, root / file.lstrip("/"))
    pip = ["chroot", str(root), "pip", "install", "--quiet", "--target=/site", "--root-user-action=ignore"]
    subprocess.run([*pip, *PACKAGES[name]], check=True)
    python = python_of(name)
    python.parent.mkdir()
    loader, libraries = next(root.glob("usr/lib*/ld-linux-*.so.*")), next(root.glob("usr/lib/*-linux-gnu"))
    (interpreter,) = root.glob("usr/bin/python3.[0-9][0-9]")
    loader, libraries, interpreter = (path.relative_to(root) for path in (loader, libraries, interpreter))
    python.write_text(
        '#!/bin/sh\nroot="$(dirname "$0")/../root"\nPYTHONHOME="$root/usr" PYTHONPATH="$root/site" '
        f'exec "$root/{loader}" --library-path "$root/{libraries}" "$root/{interpreter}" "$@"\n'
    )
    python.chmod(0o755)
    (folder / "packages.txt").write_text("\n".join(PACKAGES[name]))


def main(names: list[str]) -> int:
    """Make the environments named, all without names; those that are there already are left alone."""
    unknown = [name for name in names if name not in PACKAGES]
    if unknown:
        print(f"unknown environment {unknown[0]!r}; there are {', '.join(PACKAGES)}", file=sys.stderr)
        return 2
    for name in names or PACKAGES:
        if is_ready(name):
            continue
        if lack := lacks(name):
            print(f"left out: {lack}", file=sys.stderr)
        else:
            make(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
