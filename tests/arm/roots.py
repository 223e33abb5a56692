"""Arm machines on a workstation: Debian's Arm packages and the Arm wheels, run by qemu's user emulation.

    python tests/arm/roots.py            make what is missing under build/arm (0.6 GB, about a minute)

No virtual machine, no chroot and no kernel module: qemu runs the root's own Python and looks up files in the root first
(``-L``). A small script stands for the interpreter of each machine, and child processes are started by that script too.
The code under test is this checkout's. Needs `qemu-user-static` and `mmdebstrap` (``sh scripts/tools`` installs them).

The emulated processors are those of the boards. qemu's ``max`` is none of them: it has the matrix extension SME, with
which LiteRT 2.3.0 on qemu 7.2 answers int8 models wrongly (by up to 0.86; right again with ``max,sme=off``).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from edge_runtime.base.system import toml

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT / "build" / "arm"
SUITE = "bookworm"
"""Debian 12, as Raspberry Pi OS: Python 3.11, for which alone tflite-runtime has a wheel for 32-bit Arm."""
PYTHON = "3.11"
GLIBC = range(36, 16, -1)
"""Minor versions of glibc whose wheels run there, newest first."""
SAME_VERSION = ("onnxruntime", "ai-edge-litert")
"""Pinned to what is installed here, since answers are compared."""
TFLITE = ("tflite-runtime==2.14.0",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Debian packages of one architecture, and wheels."""

    architecture: str
    qemu: str
    wheels: str
    """As the wheels name the architecture."""
    packages: tuple[str, ...]
    """Debian packages besides Python."""
    libraries: tuple[str, ...] = ()
    """Folders that the loader must be told of."""

    @property
    def folder(self) -> Path:
        """Where it is made."""
        return FOLDER / self.architecture

    @property
    def files(self) -> Path:
        """Its ``/``."""
        return self.folder / "root"

    @property
    def site(self) -> Path:
        """Its wheels."""
        return self.folder / "packages"


ARM64 = Root(
    architecture="arm64",
    qemu="qemu-aarch64-static",
    wheels="aarch64",
    packages=("libgomp1", "libstdc++6"),
)
ARMHF = Root(
    architecture="armhf",
    qemu="qemu-arm-static",
    wheels="armv7l",
    # There are no wheels of these. Debian's cbor2 is older than our codec needs: only the tests' imports want it.
    packages=("libstdc++6", "python3-numpy", "python3-cbor2", "python3-cryptography"),
    libraries=tuple(f"usr/lib/arm-linux-gnueabihf/{name}" for name in ("blas", "lapack")),
)
ROOTS = (ARM64, ARMHF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A board as far as its processor's instructions go."""

    name: str
    root: Root
    cpu: str
    """As qemu calls it."""
    part: int
    """Its number in ``/proc/cpuinfo``, which onnxruntime reads; it does not survive an x86 one."""
    features: str

    @property
    def python(self) -> Path:
        """Stands for its interpreter."""
        return FOLDER / self.name / "python"


_V8 = "fp asimd evtstrm crc32 cpuid"
MACHINES = {
    machine.name: machine
    for machine in (
        Machine(name="pi2", root=ARMHF, cpu="cortex-a7", part=0xC07, features="half thumb vfp neon vfpv4 idiva"),
        Machine(name="pi4", root=ARM64, cpu="cortex-a72", part=0xD08, features=_V8),
        Machine(name="pi5", root=ARM64, cpu="cortex-a76", part=0xD0B, features=_V8 + " atomics fphp asimdhp asimddp"),
    )
}
"""A Raspberry Pi 2 (32 bits, also what a newer board with the 32-bit system runs), 4 and 5: without and with the dot
product instructions, for which the engines have different int8 kernels."""

REFERENCE = FOLDER / "reference"
"""tflite-runtime for this machine, in a folder of its own since it needs numpy 1."""


def reference_python() -> str | None:
    """An interpreter of this machine that tflite-runtime has a wheel for."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        return sys.executable
    return shutil.which(f"python{PYTHON}")


def main() -> int:
    """Make everything that is missing or out of date."""
    try:
        for root in ROOTS:
            _make(root)
        _make_reference()
        for machine in MACHINES.values():
            _write_python(machine)
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} failed: {(error.stderr or '').strip()[-2000:]}", file=sys.stderr)
        return 1
    return 0


def _make(root: Root) -> None:
    recipe = {"suite": SUITE, **asdict(root), "wanted": _wanted(root)}
    if _stamped(root.folder, recipe):
        return
    print(f"making build/arm/{root.architecture} of Debian {SUITE} and wheels (once)", flush=True)
    shutil.rmtree(root.folder, ignore_errors=True)
    root.files.mkdir(parents=True)
    _extract(root)
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        # What Debian does when a package is set up; under emulation it would take minutes.
        _run([sys.executable, "-m", "compileall", "-q", "-j2", str(root.files / "usr/lib")], check=False)
    for requirements, options in _wanted(root):
        _pip(requirements, root.site, *options, *_platform(root))
    (root.site / "sitecustomize.py").write_text(
        "import os\nimport sys\n\nsys.executable = os.environ['EMULATED_PYTHON']\n", encoding="utf-8"
    )
    _stamp(root.folder, recipe)


def _make_reference() -> None:
    python = reference_python()
    if python is None or _stamped(REFERENCE, [python, *TFLITE]):
        return
    print("installing tflite-runtime for this machine into build/arm/reference (once)", flush=True)
    shutil.rmtree(REFERENCE, ignore_errors=True)
    _pip((*TFLITE, "numpy<2", *_project("dependencies")), REFERENCE / "packages", "--python", python)
    _stamp(REFERENCE, [python, *TFLITE])


def _wanted(root: Root) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Calls of pip: requirements and options of each."""
    tests = tuple(need for need in _group("test") if need.startswith(("pytest", "hypothesis")))
    if root is ARMHF:
        with_numpy = (*TFLITE,)
        others = [need for need in _project("dependencies") if not need.startswith("numpy")]
        codecs = [need for need in _extra("codecs") if not need.startswith("cbor2")]
        return [(with_numpy, ("--no-deps",)), ((*others, *codecs, *_extra("serial"), *tests), ())]
    pins = tuple(f"{name}=={importlib.metadata.version(name)}" for name in SAME_VERSION)
    extras = ("onnx", "tflite", "codecs", "sign", "serial")
    needs = (*_project("dependencies"), *(need for extra in extras for need in _extra(extra)))
    return [((*needs, *pins, *tests), ())]


def _pyproject() -> dict[str, object]:
    return toml.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


def _strings(value: object) -> tuple[str, ...]:
    assert isinstance(value, list)
    return tuple(str(item) for item in value)


def _project(key: str) -> tuple[str, ...]:
    project = _pyproject()["project"]
    assert isinstance(project, dict)
    return _strings(project[key])


def _extra(name: str) -> tuple[str, ...]:
    project = _pyproject()["project"]
    assert isinstance(project, dict)
    return _strings(project["optional-dependencies"][name])


def _group(name: str) -> tuple[str, ...]:
    groups = _pyproject()["dependency-groups"]
    assert isinstance(groups, dict)
    return _strings(groups[name])


def _extract(root: Root) -> None:
    packages = ",".join(("python3-minimal", "libpython3-stdlib", *root.packages))
    command = [
        "mmdebstrap", "--quiet", "--variant=extract", f"--architectures={root.architecture}",
        f"--include={packages}", "--format=tar", SUITE, "-", *_source(),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as tar:
        subprocess.run(command, stdout=tar, stderr=subprocess.PIPE, text=True, check=True)
        tar.seek(0)
        unpack = ["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-C", str(root.files)]
        subprocess.run(unpack, stdin=tar, stderr=subprocess.PIPE, text=True, check=True)


def _source() -> list[str]:
    """Where this machine gets Debian's packages from; mmdebstrap's own default where it is not Debian."""
    question = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    answer = [*question, "Created-By: Packages", "Origin: Debian", f"Release: {SUITE}", "Component: main"]
    lines = _run(answer, check=False).stdout.split()
    return [f"deb {lines[0]} {SUITE} main"] if lines else []


def _pip(requirements: tuple[str, ...], target: Path, *options: str) -> None:
    # --python runs pip with another interpreter and has to come before the command.
    first, rest = (options[:2], options[2:]) if options[:1] == ("--python",) else ((), options)
    _run([
        sys.executable, "-m", "pip", *first, "install", "--quiet", "--disable-pip-version-check",
        "--root-user-action=ignore", "--only-binary=:all:", "--target", str(target), *rest, *requirements,
    ])  # fmt: skip


def _platform(root: Root) -> tuple[str, ...]:
    tags = [f"manylinux_2_{minor}_{root.wheels}" for minor in GLIBC] + [f"manylinux2014_{root.wheels}"]
    return (*(f"--platform={tag}" for tag in tags), f"--python-version={PYTHON}", "--implementation=cp")


def _write_python(machine: Machine) -> None:
    """The script that stands for the interpreter, and what the machine sees as its root."""
    root, python = machine.root, machine.python
    view = python.parent / "root"
    shutil.rmtree(view, ignore_errors=True)
    cpuinfo = view / "proc" / "cpuinfo"
    cpuinfo.parent.mkdir(parents=True)
    cpuinfo.write_text(_cpuinfo(machine), encoding="utf-8")
    # Each machine sees the programs and libraries through links, so that it can have a /proc/cpuinfo of its own. All
    # else (/tmp, /sys, /dev) is this machine's.
    for name in ("bin", "lib", "lib64", "usr"):
        if (root.files / name).exists():
            (view / name).symlink_to(os.path.relpath(root.files / name, view))
    libraries = ":".join(str(root.files / folder) for folder in root.libraries)
    environment = {
        "EMULATED_PYTHON": str(python),
        "LD_LIBRARY_PATH": libraries,
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": f"{root.site}:{CHECKOUT}",
    }
    settings = " ".join(f"-E '{name}={value}'" for name, value in environment.items())
    # Compiling is slow in emulation: what was compiled once is kept, whatever the caller's environment says.
    python.write_text(
        "#!/bin/sh\n"
        f"exec {root.qemu} -U PYTHONDONTWRITEBYTECODE -cpu {machine.cpu} -L '{view}' {settings} "
        f"'{root.files}/usr/bin/python{PYTHON}' \"$@\"\n",
        encoding="utf-8",
    )
    python.chmod(0o755)


def _cpuinfo(machine: Machine) -> str:
    architecture = 7 if machine.root is ARMHF else 8
    cores = [
        f"processor\t: {core}\nBogoMIPS\t: 108.00\nFeatures\t: {machine.features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: {architecture}\nCPU variant\t: 0x0\nCPU part\t: {machine.part:#x}\nCPU revision\t: 3\n"
        for core in range(os.cpu_count() or 1)
    ]
    return "\n".join(cores)


def _run(command: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=check)
    except FileNotFoundError:
        if check:
            raise
        return subprocess.CompletedProcess(command, 127, "", "")


def _stamped(folder: Path, recipe: object) -> bool:
    stamp = folder / "recipe.json"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == json.dumps(recipe)


def _stamp(folder: Path, recipe: object) -> None:
    (folder / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
