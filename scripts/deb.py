"""Debian packages: code, dependencies and a private Python environment; built twice in unlike places, the same bytes.

    python -m scripts.deb [--debian 12] [--architecture arm64] [--out dist]      make deb

A package for each release of Debian and each architecture (docs/decisions/0024-debian-package.md), and its bill of
materials. Any machine builds all of them: wheels are fetched for the target by the hashes of locks/, and nothing of the
target runs. Needs dpkg-deb, and a package index the first time.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from string import Template

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from edge_runtime._version import __version__
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.tools.cli.systemd_unit import ServiceConfig, unit
from scripts import sbom, wheels
from scripts.locks import FOLDER, PROJECT, Pin, packages

RECIPE = wheels.CHECKOUT / "packaging" / "deb"
HOME = Path("/usr/lib/edge-runtime")
"""Where the environment lies on a device."""
CONFIG = Path("/etc/edge-runtime/app.toml")
LOCKS = ("onnx", "tflite", "sign", "codecs", "serial", "pictures", "otlp")
"""Extras that the package brings: all but parquet, whose library weighs more than all others together."""
BESIDE = Pin("edge-devices", __version__, None, (), (PROJECT,))
"""What of ours comes beside edge-runtime."""
RELEASES = {"12": ("3.11", 36), "13": ("3.13", 41)}
"""Of Debian: its Python, and the minor version of its glibc 2."""
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Of Debian, as wheels name them."""
_LEFT_BY_PIP = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Of no use without pip, and unlike for each build."""


@dataclass(frozen=True, slots=True)
class Target:
    """Machines that a package is for.

    Attributes:
        debian: release, as ``12``.
        architecture: as Debian names it.
    """

    debian: str
    architecture: str

    @property
    def python(self) -> str:
        """Version of its Python, as ``3.11``."""
        return RELEASES[self.debian][0]

    @property
    def site(self) -> Path:
        """Folder of Python packages on the device."""
        return HOME / "lib" / f"python{self.python}" / "site-packages"

    def version(self, revision: str = "") -> str:
        """Return the package's version; that for a newer Debian is higher, so an upgrade of Debian replaces it."""
        upstream = re.sub(r"\.?(a|b|rc|dev)(\d+)$", r"~\1\2", __version__)  # 1.0rc1 is older than 1.0
        return f"{upstream}+deb{self.debian}{revision}"

    def file(self, revision: str = "") -> str:
        """Return the name of the package's file."""
        return f"edge-runtime_{self.version(revision)}_{self.architecture}.deb"

    def pins(self) -> list[Pin]:
        """Read what the locks name for this target, without markers."""
        machine = ARCHITECTURES[self.architecture]
        facts = {
            "python_version": self.python, "python_full_version": f"{self.python}.0", "platform_machine": machine,
            "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": "",
            "platform_python_implementation": "CPython", "implementation_name": "cpython",
        }  # fmt: skip
        return [
            dataclasses.replace(pin, marker=None)
            for name in LOCKS
            for pin in packages((FOLDER / f"{name}.txt").read_text("utf-8"))
            if pin.marker is None or Marker(pin.marker).evaluate(facts)
        ]


@dataclass(frozen=True, slots=True)
class Built:
    """A package on this machine, and what came into it."""

    path: Path
    parts: list[Pin]
    licences: dict[tuple[str, str], str]


def main() -> int:
    """Build, compare and keep."""
    parser = argparse.ArgumentParser(description="Build Debian packages twice and compare them.")
    parser.add_argument("--debian", nargs="+", choices=RELEASES, default=[*RELEASES], help="releases (default: all)")
    parser.add_argument(
        "--architecture", nargs="+", choices=ARCHITECTURES, default=[*ARCHITECTURES], help="default: all"
    )
    parser.add_argument("--out", type=Path, default=wheels.CHECKOUT / "dist", help="folder (default: %(default)s)")
    parser.add_argument("--revision", default="", help="end of the version, as .1 for a repair of the package alone")
    options = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        print("dpkg-deb is missing; on Debian and Ubuntu: sudo apt-get install dpkg", file=sys.stderr)
        return 2
    same = True
    for target in itertools.starmap(Target, itertools.product(options.debian, options.architecture)):
        with tempfile.TemporaryDirectory() as place:
            one, other = (build(target, Path(place, each.name), each, options.revision) for each in wheels.PLACES)
            data = one.path.read_bytes()
            equal = data == other.path.read_bytes()
            same = same and equal
            print(f"{one.path.name}  {len(data):,} bytes  {'the same twice' if equal else 'NOT THE SAME TWICE'}")
            print(f"  sha256 {hashlib.sha256(data).hexdigest()}", flush=True)
            keep(one, target, options.out, options.revision)
    return 0 if same else 1


def keep(built: Built, target: Target, out: Path, revision: str = "") -> Path:
    """Copy a package to its folder and write its bill of materials beside it; returns the copy."""
    out.mkdir(parents=True, exist_ok=True)
    path = Path(shutil.copy(built.path, out))
    qualifiers = {"arch": target.architecture, "distro": f"debian-{target.debian}"}
    product = sbom.Product(path, "deb", "edge-runtime", target.version(revision), qualifiers)
    sbom.write(product, built.parts, built.licences, wheels.commit_time())
    return path


@dataclass(frozen=True, slots=True)
class Staged:
    """Files of a package as they will lie on the device; they are packed from here, once or for several versions."""

    target: Target
    root: Path
    place: wheels.Place
    hashes: dict[str, tuple[str, ...]]
    """Of the wheels that came in, by the package's name."""


def build(target: Target, at: Path, place: wheels.Place, revision: str = "") -> Built:
    """Build a package.

    Args:
        target: machines that it is for.
        at: an empty place for its files.
        place: what is unlike there.
        revision: end of its version.

    Raises:
        subprocess.CalledProcessError: pip or dpkg-deb failed; it has said why.
    """
    return pack(stage(target, at, place), revision)


def stage(target: Target, at: Path, place: wheels.Place) -> Staged:
    """Lay out all files of a package below `at`; see `build`."""
    root = at / "root"
    site = root / target.site.relative_to("/")
    ours = [wheels.build(folder, at / "wheels" / folder, place) for folder in (".", "devices")]
    hashes = _install(target, ours, site)
    subprocess.run(["sh", wheels.CHECKOUT / "scripts" / "slim", site], check=True)
    _tidy(site)
    _environment(target, root)
    _put(root, "etc/edge-runtime/app.toml", (RECIPE / "app.toml").read_text("utf-8"))
    _put(root, "usr/bin/edge-runtime", (RECIPE / "edge-runtime").read_text("utf-8"), mode=0o755)
    service = ServiceConfig(app=CONFIG, python=HOME / "bin" / "python3")
    _put(root, "lib/systemd/system/edge-runtime.service", unit(_default_app(target), service))
    _put(root, "usr/share/doc/edge-runtime/copyright", (RECIPE / "copyright").read_text("utf-8"))
    return Staged(target, root, place, hashes)


def pack(staged: Staged, revision: str = "") -> Built:
    """Write the package beside its files; see `build`."""
    target, root = staged.target, staged.root
    _control(target, root, revision)
    _settle(root)
    path = root.with_name(target.file(revision))
    environment = os.environ | dict(staged.place.environment) | {"SOURCE_DATE_EPOCH": str(wheels.commit_time())}
    # xz: 38 MB in 80 s instead of 45 MB in 4 s, and a Raspberry Pi needs as much longer to unpack it.
    command = ["dpkg-deb", "--build", "--root-owner-group", "-Zzstd", "-z10", "--threads-max=1", str(root), str(path)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    site = root / target.site.relative_to("/")
    there = {canonicalize_name(one.name) for one in distributions(path=[str(site)])}
    pins = [*target.pins(), BESIDE]
    parts = [dataclasses.replace(pin, hashes=staged.hashes[pin.name]) for pin in pins if pin.name in there]
    return Built(path, parts, sbom.licences([site]))


def _default_app(target: Target) -> AppConfig:
    """Read the configuration that the package brings, with the bundle where it lies on the device."""
    app = parse((RECIPE / "app.toml").read_text("utf-8"), CONFIG)
    bundle = target.site / "edge_runtime" / "tools/demo" / "data" / "watch.edge"
    return dataclasses.replace(app, model=dataclasses.replace(app.model, bundle=bundle))


def _install(target: Target, ours: list[Path], site: Path) -> dict[str, tuple[str, ...]]:
    """Install wheels into a folder; returns the hash of each package's wheel, by name."""
    machine = ARCHITECTURES[target.architecture]
    newest = RELEASES[target.debian][1]
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 16, -1)] + [f"manylinux2014_{machine}"]
    platform = [*(f"--platform={tag}" for tag in tags), f"--python-version={target.python}", "--implementation=cp"]
    pip = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
        "--no-compile", "--no-deps", "--only-binary=:all:", "--target", str(site),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        # pip would take markers for questions about the machine that builds.
        lines = {f"{pin.name}=={pin.version} {_hashes(pin)}" for pin in target.pins()}
        wanted, report = Path(scratch, "wanted.txt"), Path(scratch, "report.json")
        wanted.write_text("\n".join(sorted(lines)) + "\n", "utf-8")
        subprocess.run([*pip, *platform, "--require-hashes", "--report", str(report), "-r", str(wanted)], check=True)
        shutil.rmtree(site / "bin", ignore_errors=True)  # else pip warns that both have commands
        subprocess.run([*pip, "--no-index", *map(str, ours)], check=True)
        installed = json.loads(report.read_text("utf-8"))["install"]
    return {
        canonicalize_name(one["metadata"]["name"]): (one["download_info"]["archive_info"]["hashes"]["sha256"],)
        for one in installed
    } | {BESIDE.name: (hashlib.sha256(ours[1].read_bytes()).hexdigest(),)}


def _hashes(pin: Pin) -> str:
    return " ".join(f"--hash=sha256:{one}" for one in pin.hashes)


def _tidy(site: Path) -> None:
    """Delete commands, what pip notes for itself, and the metadata of packages of which `scripts/slim` left nothing."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for info in site.glob("*.dist-info"):
        record = (info / "RECORD").read_text("utf-8")
        files = [line.split(",")[0].strip('"') for line in record.splitlines()]
        if not any((site / file).exists() for file in files if ".dist-info/" not in file):
            shutil.rmtree(info)
            continue
        for name in _LEFT_BY_PIP:
            (info / name).unlink(missing_ok=True)


def _environment(target: Target, root: Path) -> None:
    """Make the folder a virtual environment of Debian's Python: two files, as `python3 -m venv --without-pip` does."""
    home = root / HOME.relative_to("/")
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(f"/usr/bin/python{target.python}")
    _put(home, "pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")


def _control(target: Target, root: Path, revision: str) -> None:
    """Write DEBIAN/: control file, scripts, conffiles, checksums."""
    shutil.rmtree(root / "DEBIAN", ignore_errors=True)  # of another version
    paths = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}" for path in paths]
    kilobytes = sum(-(-path.stat().st_size // 1024) for path in paths)
    fields = {
        "version": target.version(revision), "architecture": target.architecture, "kilobytes": str(kilobytes),
        "python": target.python, "debian": target.debian,
    }  # fmt: skip
    _put(root, "DEBIAN/control", Template((RECIPE / "control").read_text("utf-8")).substitute(fields))
    _put(root, "DEBIAN/conffiles", "/etc/edge-runtime/app.toml\n")
    _put(root, "DEBIAN/md5sums", "\n".join(line for line in sums if "  etc/" not in line) + "\n")
    for script in ("postinst", "prerm", "postrm"):
        _put(root, f"DEBIAN/{script}", (RECIPE / script).read_text("utf-8"), mode=0o755)


def _put(root: Path, name: str, text: str, *, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def _settle(root: Path) -> None:
    """Give every file the same permissions and time, on every machine that builds."""
    when = wheels.commit_time()
    commands = {root / "usr/bin/edge-runtime", *(root / "DEBIAN" / name for name in ("postinst", "prerm", "postrm"))}
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in commands else 0o644)
        os.utime(path, (when, when), follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main())
