"""The environments of the peers, each in a folder of its own under ``.venvs/``.

    python -m benchmarks.peers.environments            make what is missing (3 GB in all, some minutes)
    python -m benchmarks.peers.environments peer-nncf  only this one

They are kept apart since their pins contradict one another and ours; none of it is needed to use edge-export.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venvs"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Packages and interpreter of a peer's environment.

    Attributes:
        packages: for pip, in steps: a later step may need what an earlier one installed.
        python: least version of the interpreter.
        node: the packages are npm's; what they would download when installed is left out.
    """

    packages: tuple[tuple[str, ...], ...]
    python: tuple[int, int] = (3, 11)
    node: bool = False


LOOP = ("onnxruntime==1.31.1", "numpy==2.4.6", "orjson==3.13.0")
"""What a Python program over MQTT needs beside its client."""

ENVIRONMENTS = {
    "peer-onnxruntime": Environment(packages=(("onnxruntime==1.31.1", "onnx==1.23.2"),)),
    "peer-nncf": Environment(packages=(("nncf==3.4.0", "onnx==1.23.2", "onnxruntime==1.31.1"),)),
    # Olive imports requests without declaring it; torch comes first, so that pip takes the build without CUDA.
    "peer-olive": Environment(
        packages=(("torch==2.13.0",), ("olive-ai==0.13.0", "requests", "onnx==1.23.2", "onnxruntime==1.31.1"))
    ),
    # Below Python 3.12 pip falls back to onnx2tf 1.x, which needs TensorFlow and downloads calibration data.
    "peer-onnx2tf": Environment(packages=(("onnx2tf==2.6.9",),), python=(3, 12)),
    "peer-ai-edge-quantizer": Environment(packages=(("ai-edge-quantizer==0.10.0",),)),
    "peer-gmqtt": Environment(packages=(("gmqtt==0.8.0", *LOOP),)),
    "peer-aiomqtt": Environment(packages=(("aiomqtt==2.5.1", *LOOP),)),
    "peer-faststream": Environment(packages=(("faststream==0.7.8", "zmqtt==0.2.5", *LOOP),)),
    "peer-bytewax": Environment(packages=(("bytewax==0.21.1", "paho-mqtt==2.2.0", *LOOP),)),
    "peer-mqttjs": Environment(packages=(("mqtt@5.16.0", "onnxruntime-node@1.30.0"),), node=True),
    "peer-node-red": Environment(packages=(("node-red@4.1.15", "onnxruntime-node@1.30.0"),), node=True),
}


def python_of(name: str) -> Path:
    """The interpreter of an environment, whether it is there or not."""
    return FOLDER / name / "bin" / "python"


def is_ready(name: str) -> bool:
    """Report that an environment was made to the end, with the packages it should have today."""
    stamp = FOLDER / name / "packages.txt"
    return stamp.is_file() and stamp.read_text() == _stamp(name)


def command_for(name: str) -> str:
    """Name the command that makes it."""
    return f"python -m benchmarks.peers.environments {name}"


def interpreter(least: tuple[int, int]) -> str | None:
    """A Python of at least this version: the running one, or one on the path; None where there is none."""
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 3):
        # pyenv leaves stand-ins on the path that start a version only when it is selected by this variable.
        environment = {**os.environ, "PYENV_VERSION": f"3.{minor}"}
        if found := shutil.which(f"python3.{minor}"):
            asked = subprocess.run(
                [found, "-c", "import sys; print(sys.executable)"],
                capture_output=True, text=True, check=False, env=environment,
            )  # fmt: skip
            if asked.returncode == 0:
                return asked.stdout.strip()
    return None


def make(name: str) -> str:
    """Create an environment and install its packages, at low priority.

    Returns:
        Why it could not be made, one line; empty when it was.
    """
    environment = ENVIRONMENTS[name]
    if environment.node:
        return _make_node(name, environment)
    python = interpreter(environment.python)
    if python is None:
        return f"needs Python {'.'.join(map(str, environment.python))} or newer, which is not on the path"
    print(f"installing {name} into {(FOLDER / name).relative_to(ROOT)}", flush=True)
    made = subprocess.run([python, "-m", "venv", "--clear", FOLDER / name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"cannot make it: {_last(made)}"
    pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in environment.packages:
        done = subprocess.run(
            [*pip, *packages], capture_output=True, text=True, check=False, preexec_fn=lambda: os.nice(15)
        )
        if done.returncode:
            return f"pip could not install {' '.join(packages)}: {_last(done)}"
    (FOLDER / name / "packages.txt").write_text(_stamp(name))
    return ""


def _make_node(name: str, environment: Environment) -> str:
    npm = shutil.which("npm")
    if npm is None:
        return "needs Node.js with npm, which is not on the path"
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
    install = [npm, "install", "--silent", "--ignore-scripts", "--prefix", str(FOLDER / name)]
    for packages in environment.packages:
        done = subprocess.run([*install, *packages], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"npm could not install {' '.join(packages)}: {_last(done)}"
    (FOLDER / name / "packages.txt").write_text(_stamp(name))
    return ""


def _stamp(name: str) -> str:
    return "\n".join(" ".join(packages) for packages in ENVIRONMENTS[name].packages)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {done.returncode}"


def main(names: list[str]) -> int:
    """Make the environments named, all without names; those that are there already are left alone."""
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown:
        print(f"unknown environment {unknown[0]!r}; there are {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    problems = {name: make(name) for name in names or ENVIRONMENTS if not is_ready(name)}
    for name, problem in problems.items():
        if problem:
            print(f"{name}: {problem}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
