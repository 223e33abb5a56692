"""Locks: the versions of other people's packages that this project is installed, tested and built with.

    python scripts/locks.py write torch==2.13.0 [options of uv]           make lock
    python scripts/locks.py audit torch==2.13.0 [options of pip-audit]    make audit

Every extra and every dependency group of pyproject.toml has a file of its name under locks/, with hashes and without
the address of any index: docs/decisions/0015-locks.md.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    from tomllib import loads  # novermin
else:
    from tomli import loads

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "locks"
COMPLETE = ("onnx", "tflite", "tflite-runtime", "export")
"""Extras whose files name what the project itself needs, too. All others come in addition to one of these."""
APART = ("tflite-runtime", "optimum", "litert")
"""Extras that cannot live in one environment with the others, so their versions may differ."""
PLATFORMS = ("x86_64-manylinux_2_35", "aarch64-manylinux_2_35")
"""What must find a wheel of every package. 2.35 is older than the glibc of Debian 12 and that of Ubuntu 22.04."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
LACKING = (("tflite-runtime", "3.12"), ("tflite-runtime", "3.13"), ("litert", "aarch64"))
"""Locks, and the Pythons and processors that their packages have no wheels for."""
TOO_NEW = ("backports-strenum<1.3",)
"""uv does not look at upper bounds in Requires-Python (1.3 is for Pythons older than 3.11 only), but pip does."""
AGE = "7 days"
"""Younger releases are left alone: bad ones are mostly found and withdrawn within days, and mirrors have the others."""
TORCH = "torch"
"""In no file: its build for CPUs and that for GPUs have one version and different hashes, and which one pip finds
depends on the index. What both need besides is there."""
CUDA = (
    "cuda-bindings", "cuda-toolkit", "nvidia-cudnn-cu13", "nvidia-cusparselt-cu13", "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13", "triton",
)  # fmt: skip
"""What the GPU build of torch asks for, and that for CPUs does not."""
SYSTEM = {"tflite-runtime": "numpy"}
"""What a lock leaves to the system on 32-bit Arm: there is no wheel of it, and Debian has a package."""

PROJECT = "edge-runtime (pyproject.toml)"
"""Who needs a package, where it is the project itself and no other package."""

_PIN = re.compile(r"^([a-z0-9]+(?:-[a-z0-9]+)*)==([^\s;\\]+)(?: *; *([^\n\\]+?))? *\\?$", re.MULTILINE)
"""Name, version and marker, as uv writes them."""
_OURS = re.compile(r"edge-runtime\[([a-z,-]+)\]")
"""How edge-export asks for edge-runtime."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Package as a lock names it.

    Attributes:
        name: normalised, as ``paho-mqtt``.
        version: the one that may be installed.
        marker: machines and Pythons that it is for; None: all.
        hashes: SHA-256 of each of its wheels, hexadecimal.
        wanted_by: packages of the lock that need it, and `PROJECT`.
    """

    name: str
    version: str
    marker: str | None
    hashes: tuple[str, ...]
    wanted_by: tuple[str, ...]


def projects() -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Read the two pyproject.toml: the device's and the workstation's."""
    device, workstation = (CHECKOUT / place / "pyproject.toml" for place in (".", "export"))
    return loads(device.read_text("utf-8")), loads(workstation.read_text("utf-8"))


def wanted(device: Mapping[str, object], workstation: Mapping[str, object]) -> dict[str, list[str]]:
    """Collect the requirements that each lock answers.

    Args:
        device: pyproject.toml of edge-runtime as read.
        workstation: pyproject.toml of edge-export as read. What it needs in order to train is the lock `export`.

    Returns:
        Name of the lock -> requirements as pyproject.toml writes them.
    """
    table = _table(device["project"])
    extras = {name: _strings(needs) for name, needs in _table(table["optional-dependencies"]).items()}
    groups = {name: _strings(needs) for name, needs in _table(device["dependency-groups"]).items()}
    groups["build"] += _strings(_table(device["build-system"])["requires"])
    own = _table(workstation["project"])
    workshop = {name: _strings(needs) for name, needs in _table(own["optional-dependencies"]).items()}
    workshop["export"] = workshop.pop("train")
    for need in _strings(own["dependencies"]):
        ours = _OURS.fullmatch(need)
        workshop["export"] += [one for extra in ours[1].split(",") for one in extras[extra]] if ours else [need]
    extras |= workshop
    for name in COMPLETE:
        extras[name] = [*_strings(table["dependencies"]), *extras[name]]
    return {**extras, **groups}


def pins(text: str) -> list[tuple[str, str, str | None]]:
    """Name, version and marker of everything that a lock names."""
    return [(name, version, marker or None) for name, version, marker in _PIN.findall(text)]


def packages(text: str) -> list[Pin]:
    """Everything that a lock names, with hashes and who needs it."""
    found = []
    for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE):
        for name, version, marker in pins(entry):
            hashes = tuple(re.findall(r"--hash=sha256:(\w+)", entry))
            wanted_by = tuple(
                re.findall(r"^ +#(?: via)? +(?!via$)(\S+(?: \(pyproject\.toml\))?)$", entry, re.MULTILINE)
            )
            found.append(Pin(name, version, marker, hashes, wanted_by))
    return found


def rounds(texts: Iterable[str]) -> list[list[str]]:
    """Everything that locks name, without markers: what is for another machine or Python is wanted, too.

    Returns:
        Lists of ``name==version``. A package of several versions stands in as many lists: pip-audit takes one of each.
    """
    versions: dict[str, list[str]] = {}
    for text in texts:
        for name, version, _ in pins(text):
            known = versions.setdefault(name, [])
            if version not in known:
                known.append(version)
    most = max(map(len, versions.values()), default=0)
    return [
        [f"{name}=={known[turn]}" for name, known in sorted(versions.items()) if turn < len(known)]
        for turn in range(most)
    ]


def write(options: list[str]) -> int:
    """Write every lock; versions stay as they are where they still fit, unless the options say ``--upgrade``."""
    fixed, options = _split(options)
    fixed += TOO_NEW
    locks = wanted(*projects())
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in locks:
            path.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        # One solution for all that has to fit together; each of their files is then held to it.
        together = Path(scratch, "together.txt")
        lines = {
            f"{name}=={version}" + (f" ; {marker}" if marker else "")
            for path in FOLDER.glob("*.txt")
            if path.stem not in APART
            for name, version, marker in pins(path.read_text("utf-8"))
        }
        together.write_text("\n".join(sorted(lines)), "utf-8")
        needs = [need for name, needs in locks.items() if name not in APART for need in needs]
        _compile(needs, fixed, together, *options)
        for name, needs in locks.items():
            print(f"locks/{name}.txt", flush=True)
            target = FOLDER / f"{name}.txt"
            if name in APART:
                left_out = SYSTEM.get(name)
                _compile(needs, fixed, target, "--generate-hashes", *options, left_out=left_out)
            else:
                held = [*fixed, *together.read_text("utf-8").splitlines()]
                _compile(needs, held, target, "--generate-hashes", *options)
    for name in locks:
        _find_wheels(name)
    return 0


def audit(options: list[str]) -> int:
    """Ask for the known vulnerabilities of everything that the locks name, and of what else the options name.

    Args:
        options: ``name==version`` of what is not in the locks; the rest is handed on to pip-audit.

    Returns:
        0 only if the service answered for every single version and knows of no vulnerability.
    """
    others, options = _split(options)
    texts = [*(path.read_text("utf-8") for path in sorted(FOLDER.glob("*.txt"))), *others]
    statuses = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "locks.txt")
        # Without --strict, what the service has not heard of is passed over, and the audit ends well.
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--strict",
            "--disable-pip",
            "--no-deps",
            "-r",
            str(path),
            *options,
        ]
        for lines in rounds(texts):
            path.write_text("\n".join(lines) + "\n", "utf-8")
            print(f"asking about {len(lines)} packages", flush=True)
            statuses.append(subprocess.run(command, check=False).returncode)
    return max(map(abs, statuses), default=1)


def _split(options: list[str]) -> tuple[list[str], list[str]]:
    """``name==version`` and all else."""
    fixed = [option for option in options if _PIN.fullmatch(option)]
    return fixed, [option for option in options if option not in fixed]


def _compile(needs: list[str], held: list[str], target: Path, *options: str, left_out: str | None = None) -> None:
    """Have uv write a file, for every platform and every Python from the project's oldest on.

    Args:
        needs: what has to be in it, with all that this needs in turn.
        held: ``name==version`` of what may be in it at this version only.
        target: the file; what it says already is kept where it fits.
        options: of ``uv pip compile``.
        left_out: a package of ``needs`` that is not for 32-bit Arm.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # uv says for each package who asked for it, so this file bears the name that a reader expects.
        source = f'[project]\nname = "edge-runtime"\nversion = "0"\nrequires-python = ">={PYTHONS[0]}"\n'
        Path(scratch, "pyproject.toml").write_text(f"{source}dependencies = {json.dumps(needs)}\n", "utf-8")
        Path(scratch, "held.txt").write_text("\n".join(held), "utf-8")
        Path(scratch, "excluded.txt").write_text("\n".join(CUDA), "utf-8")
        bounds = [need.removeprefix(left_out) for need in needs if need.startswith(left_out)] if left_out else []
        override = f"{left_out}{','.join(bounds)} ; platform_machine != 'armv7l'\n" if left_out else ""
        Path(scratch, "overrides.txt").write_text(override, "utf-8")
        _uv(
            "compile", "pyproject.toml", "--universal", "--python-version", PYTHONS[0], "--output-file", str(target),
            "--only-binary", ":all:", "--preview-features", "artifact-hash-filtering", "--constraints", "held.txt",
            "--excludes", "excluded.txt", "--overrides", "overrides.txt", "--no-emit-package", TORCH,
            "--custom-compile-command", "make lock", "--exclude-newer", AGE, *options, folder=scratch,
        )  # fmt: skip
    # uv names that file beside those who asked for a package; it means nothing to a reader.
    target.write_text(target.read_text("utf-8").replace("    #   -c held.txt\n", ""), "utf-8")


def _find_wheels(name: str) -> None:
    """Make sure that every package of a lock has a wheel, with a hash that the lock knows, for what we name."""
    with tempfile.TemporaryDirectory() as scratch:
        for platform, python in itertools.product(PLATFORMS, PYTHONS):
            if any(name == lock and lacking in (python, platform.partition("-")[0]) for lock, lacking in LACKING):
                continue
            _uv(
                "install", "--dry-run", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", scratch,
                "--python-platform", platform, "--python-version", python, "-r", str(FOLDER / f"{name}.txt"),
                folder=scratch,
            )  # fmt: skip


def _uv(*arguments: str, folder: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", "pip", *arguments, "--quiet"], cwd=folder, check=True)


def _table(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _strings(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(item) for item in value]


def main() -> int:
    """Run the command that the first argument names."""
    commands = {"write": write, "audit": audit}
    command = commands.get(" ".join(sys.argv[1:2]))
    if command is None:
        print("usage: python scripts/locks.py write | audit [OPTIONS]", file=sys.stderr)
        return 2
    try:
        return command(sys.argv[2:])
    except subprocess.CalledProcessError as error:
        # uv has said what is wrong.
        return error.returncode


if __name__ == "__main__":
    sys.exit(main())
