"""A clean Debian on this machine: a root made by mmdebstrap, and commands run in it by chroot; for packages.

No systemd runs there. A stand-in for ``systemctl`` does what a unit says of program, user, folder and environment, so
the package's scripts stop and start real processes; what it was asked is in its log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.running import until

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "deb"
"""Roots, kept from run to run: making one takes half a minute, unpacking it a second."""
SUITES = {"12": "bookworm", "13": "trixie"}
PACKAGES = "adduser,libgomp1,libstdc++6,"

SYSTEMCTL = """#!/usr/bin/python3
import os, pathlib, signal, sys, time
question = [word for word in sys.argv[1:] if not word.startswith("--")]
with open("/var/log/systemctl.log", "a") as log:
    print(*question, file=log)
if question[0] == "daemon-reload":
    sys.exit(0)
verb, name = question
places = [pathlib.Path(folder, name) for folder in ("/etc/systemd/system", "/lib/systemd/system")]
pid_file = pathlib.Path("/run", name + ".pid")

def running():
    try:
        pid = int(pid_file.read_text())
        return pid if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" else 0
    except (OSError, ValueError):
        return 0

if verb == "is-active":
    print("active" if running() else "inactive")
    sys.exit(0 if running() else 3)
if verb == "stop":
    if pid := running():
        os.kill(pid, 15)
        while running():
            time.sleep(0.02)
if verb == "start" and not running():
    unit = next(place for place in places if place.exists()).read_text()
    lines = [line.partition("=")[::2] for line in unit.splitlines() if "=" in line and not line.startswith("#")]
    keys = dict(lines)
    command = keys["ExecStart"].split()
    environment = dict(value.split("=", 1) for key, value in lines if key == "Environment")
    if os.fork() == 0:
        os.setsid()
        os.chdir(keys["WorkingDirectory"])
        os.umask(int(keys["UMask"], 8))
        log = os.open("/var/log/service.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor, target in ((os.open("/dev/null", os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        pid_file.write_text(str(os.getpid()))
        user = keys["User"]
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        switch = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--no-new-privs"]
        os.execvpe(switch[0], [*switch, *command], path | environment)
"""


class Debian:
    """A root, and what runs in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as root, in a mount namespace of its own with /proc; standard error goes to the output."""
        enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", enter, str(self.path), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{self.log()}"
        return done

    def log(self) -> str:
        """What the service has written."""
        path = self.path / "var/log/service.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def asked(self) -> list[str]:
        """What the stand-in for systemctl was asked since the last time."""
        path = self.path / "var/log/systemctl.log"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def install(self, package: Path) -> str:
        """Install or upgrade a package from its file; nothing is fetched."""
        shutil.copy(package, self.path / "tmp")
        return self.run("dpkg", "--install", f"/tmp/{package.name}").stdout

    def close(self) -> None:
        """End what was started in it."""
        for path in (self.path / "run").glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def _source(suite: str) -> list[str]:
    """Where this machine's apt gets Debian from; mmdebstrap's own default where it is not Debian."""
    question = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    try:
        answer = subprocess.run([*question, "Component: main"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        answer = ""
    own = [uri for uri in answer.split() if "security" not in uri]
    return [f"deb {own[0]} {suite} main"] if own else []


def _archive(debian: str, python: str, more: str = "") -> Path:
    """Make the root of a release, once; `more` packages make another one."""
    suite, packages = SUITES[debian], f"{PACKAGES}python{python},python3{more and f',{more}'}"
    path = FOLDER / f"{suite}{'-booted' if more else ''}.tar"
    stamp = path.with_suffix(".packages")
    if path.exists() and stamp.exists() and stamp.read_text("utf-8") == packages:
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", suite, str(path), *_source(suite)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        path.unlink(missing_ok=True)
        reason = f"mmdebstrap made no root of Debian {debian}: {done.stderr.strip()[-500:]}"
        if os.environ.get("CI"):
            raise RuntimeError(reason)
        pytest.skip(reason)
    stamp.write_text(packages, "utf-8")
    return path


def need_roots() -> None:
    """Skip where no root can be made or entered."""
    if os.geteuid() != 0:
        pytest.skip("needs root's rights, for chroot and mount: run it with sudo, or in a container")
    for program, package in {"mmdebstrap": "mmdebstrap", "dpkg-deb": "dpkg", "unshare": "util-linux"}.items():
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: apt-get install {package})")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --mount is not allowed here, as in most containers: give it CAP_SYS_ADMIN")


@contextmanager
def clean_debian(debian: str, python: str, at: Path) -> Iterator[Debian]:
    """A fresh root below `at`; gone at the end, with all that runs in it."""
    need_roots()
    root = at / f"debian-{debian}"
    root.mkdir()
    subprocess.run(["tar", "-xf", _archive(debian, python), "-C", root], check=True)
    shutil.copy("/etc/hosts", root / "etc/hosts")
    stand_in = root / "usr/bin/systemctl"
    stand_in.write_text(SYSTEMCTL, "utf-8")
    stand_in.chmod(0o755)
    (root / "run/systemd/system").mkdir(parents=True)
    made = Debian(root)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)


BOOT = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount --rbind /sys sys
for folder in run tmp; do mount -t tmpfs tmpfs $folder; done
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
umount -l sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir before
pivot_root . before
umount -l /before
exec /usr/bin/env -i container=other /lib/systemd/systemd --system systemd.unified_cgroup_hierarchy=1
"""
"""Boots a root in namespaces of its own but for the network's; only ours may write to its control groups."""


class Booted(Debian):
    """A root with its own systemd as process 1."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(path)
        self.pid = pid

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as root beside its systemd; standard error goes to the output."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "-p", "-i", "-u", "-C", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{self.log()}"
        return done

    def install(self, package: Path) -> str:
        """Install or upgrade a package from its file; nothing is fetched."""
        shutil.copy(package, self.path / "srv")
        return self.run("dpkg", "--install", f"/srv/{package.name}").stdout

    def log(self) -> str:
        """What the service has written to the journal."""
        return self.run("journalctl", "-u", "edge-runtime", "-o", "cat", "--no-pager", check=False).stdout


@contextmanager
def booted_debian(debian: str, python: str, at: Path) -> Iterator[Booted]:
    """A fresh root below `at` with a systemd that has booted; gone at the end, with all that runs in it."""
    need_roots()
    root = at / f"booted-{debian}"
    root.mkdir()
    subprocess.run(["tar", "-xf", _archive(debian, python, "systemd,systemd-sysv"), "-C", root], check=True)
    shutil.copy("/etc/hosts", root / "etc/hosts")
    enter = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child", "sh", "-c", BOOT]
    with (at / "boot.log").open("wb") as log, subprocess.Popen([*enter, root], stdout=log, stderr=log) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            until(children.read_text, (at / "boot.log").read_text)
            made = Booted(root, int(children.read_text().split()[0]))
            until(lambda: "running" in made.run("systemctl", "is-system-running", check=False).stdout, made.log)
            yield made
        finally:
            process.kill()
    shutil.rmtree(root, ignore_errors=True)
