"""An application as a systemd service: the unit, hardened, made from the application's own configuration.

What the service may do is what the configuration needs: the disk is read-only but for the folders that hold the
outbox, answers and saved figures; no device node but those of its sensors; no capability; no system call beyond
those of an ordinary service; a bound on memory and processor time; a restart when it fails, but not for ever; and a
watchdog that the loop itself has to keep quiet (`edge_runtime.base.system.sd_notify`).

Sources: systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.resource-control(5) of systemd 247 to 257; 247 is
what 64-bit Raspberry Pi OS bullseye has, and an older one ignores what it does not know. Device numbers by name
(``char-i2c``) are those of ``/proc/devices``. The groups are those of Debian, Raspberry Pi OS and Jetson Linux.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edge_runtime.app.config import AppConfig
from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.results import file_for
from edge_runtime.tools.cli import SAFE_PATH

MARK: Final = "# Made by: edge-runtime install-service"
"""First line of every unit made here: a file without it is not ours, and is not overwritten."""

_SLACK_S: Final = 15.0
"""Between what stopping may take by the configuration and when the service manager loses patience."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.-]{0,100}")
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_QUANTITY: Final = re.compile(r"[1-9][0-9]{0,11}[KMGT]?")
_HOMES: Final = ("/home", "/root", "/run/user")
_KERNELS: Final = ("/dev", "/proc", "/sys")
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - told apart, never written to


@dataclass(frozen=True, slots=True)
class Access:
    """Device nodes that a group opens, and the rule that gives them to it.

    Attributes:
        nodes: device numbers by name, as ``DeviceAllow`` takes them.
        rule: udev rule that gives the nodes to the group, where the distribution does not.
    """

    nodes: tuple[str, ...]
    rule: str


GROUPS: Final = {
    "dialout": Access(
        ("char-ttyS", "char-ttyAMA", "char-ttyACM", "char-ttyUSB"),
        'SUBSYSTEM=="tty", KERNEL=="ttyAMA[0-9]*|ttyS[0-9]*|ttyUSB[0-9]*|ttyACM[0-9]*", GROUP="dialout", MODE="0660"',
    ),
    "i2c": Access(("char-i2c",), 'SUBSYSTEM=="i2c-dev", GROUP="i2c", MODE="0660"'),
    "spi": Access(("char-spi",), 'SUBSYSTEM=="spidev", GROUP="spi", MODE="0660"'),
    "gpio": Access(("char-gpiochip",), 'SUBSYSTEM=="gpio", KERNEL=="gpiochip*", GROUP="gpio", MODE="0660"'),
    "iio": Access(("char-iio",), 'SUBSYSTEM=="iio", GROUP="iio", MODE="0660"'),
    "audio": Access(("char-alsa",), 'SUBSYSTEM=="sound", GROUP="audio", MODE="0660"'),
    "video": Access(("char-video4linux",), 'SUBSYSTEM=="video4linux", GROUP="video", MODE="0660"'),
    "render": Access(("char-drm",), 'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"'),
}
"""Groups that own sensors and accelerators."""

_OF_SOURCE: Final = {"serial": ("dialout",), "iio": ("iio",), "alsa": ("audio",)}
_OF_ACCELERATOR: Final = ("video", "render")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Settings of a unit besides the application's own.

    Attributes:
        app: the configuration file, absolute.
        python: the interpreter that edge-runtime is installed for, absolute.
        name: of the unit.
        user: who it runs as.
        groups: besides those that the sources and accelerators need.
        memory_max: bound on memory, as systemd writes it.
        cpu_percent: bound on processor time, of one core; 0 takes 100 for each thread.
        watchdog_s: how long the loop may hang.
    """

    app: Path
    python: Path
    name: str = "edge-runtime"
    user: str = "edge-runtime"
    groups: tuple[str, ...] = ()
    memory_max: str = "256M"
    cpu_percent: int = 0
    watchdog_s: int = 30

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is no name for a unit; use letters, digits and _ . -")
        for what in (self.user, *self.groups):
            if not _USER.fullmatch(what):
                raise ValueError(f"'{what}' is no name of a user or group")
        if not _QUANTITY.fullmatch(self.memory_max):
            raise ValueError(f"memory '{self.memory_max}' must be a number with K, M or G, for example 256M")
        if not 0 <= self.cpu_percent <= 100_000:
            raise ValueError("cpu must be a percentage of one core")
        if not 5 <= self.watchdog_s <= 3600:
            raise ValueError("watchdog must be 5 to 3,600 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Absolute paths on the disk that the configuration names.

    Attributes:
        read: files that are only read.
        written: folders in which files are made.
    """

    read: tuple[Path, ...]
    written: tuple[Path, ...]


def paths_of(app: AppConfig, file: Path) -> Paths:
    """List every path in a configuration by its use: read or written.

    Args:
        app: the configuration.
        file: the file that it was read from.
    """
    files = _written_files(app)
    written = [path.parent for path in files]  # SQLite's log lies beside it, JSONL rotates its files
    if app.update is not None:
        written += [folder for folder in (app.update.folder, app.update.drop) if folder is not None]
    if app.model.compiled is not None:
        written.append(app.model.compiled)
    made = {*files, *written}
    made |= {part.path for part in (app.outbox, app.reading_log, app.cases) if part is not None}
    if app.governor is not None:
        made.add(app.governor.root)  # all of the machine
    read = [file, *(path for path in _every_path(app) if path not in made and not _any_below([path], _KERNELS))]

    def unique(paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(path.absolute() for path in paths))

    return Paths(read=unique(read), written=unique(written))


def _written_files(app: AppConfig) -> list[Path]:
    """List the files that the application makes; others lie beside them."""
    observe, tunes = app.observe, app.model.tuned is not None or app.model.tune_at_start_s
    named = [
        app.outbox.path if app.outbox is not None and app.cloud is not None else None,
        app.reading_log.path if app.reading_log is not None else None,
        app.cases.path if app.cases is not None and app.cases.keep != "nothing" else None,
        *(sink.path for sink in app.sink if sink.type == "jsonl"),
        *(() if observe is None else (observe.socket, observe.textfile)),
        None if app.home_assistant is None else app.home_assistant.labels,
        app.model.tuned or (file_for(app.model.bundle) if tunes else None),
    ]
    return [path for path in named if path is not None]


def _every_path(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _every_path(getattr(value, field.name))
    elif isinstance(value, dict):
        for one in value.values():
            yield from _every_path(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from _every_path(one)


def groups_of(app: AppConfig, more: Sequence[str] = ()) -> tuple[str, ...]:
    """List the groups that the sensors and accelerators of an application belong to."""
    needed = [group for source in app.source for group in _OF_SOURCE.get(source.type, ())]
    needed += _OF_ACCELERATOR if app.model.accelerators else ()
    return tuple(dict.fromkeys([*needed, *more]))


def unit(app: AppConfig, config: ServiceConfig) -> str:
    """Write the unit file.

    Raises:
        ConfigError: a path in the configuration that a service cannot use.
    """
    paths = paths_of(app, config.app)
    for path in paths.written:
        if path == Path("/"):
            raise ConfigError("a folder that is written to is the root of the disk; give outbox and answers their own")
    groups = groups_of(app, config.groups)
    lines = [
        MARK,
        f"# {' '.join(str(config.app).split())}; change that file and make this one again, or override parts of it by:",
        f"#     systemctl edit {config.name}",
        "",
        "[Unit]",
        f"Description=edge-runtime: {' '.join(config.app.stem.replace('%', '%%').split())}",
        # Answers go on without a network, so nothing waits for one; a broker on this machine is let in first.
        "After=network.target mosquitto.service",
        "StartLimitIntervalSec=600",
        "StartLimitBurst=10",
        "",
        "[Service]",
        *_process(config, groups),
        "",
        "# It is restarted when it fails or hangs, unless its configuration is wrong (exit code 2).",
        *_restarts(app, config),
        "",
        f"MemoryMax={config.memory_max}",
        f"CPUQuota={config.cpu_percent or 100 * app.model.threads * app.workers}%",
        f"TasksMax={64 * app.workers}",
        "LimitCORE=0",
        "",
        "# The disk is read-only but for what the configuration names.",
        *_disk(app, config, paths),
        "",
        *_devices(app, groups),
        "",
        *_kernel(app),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _process(config: ServiceConfig, groups: Sequence[str]) -> list[str]:
    """List the settings for the process: program, folder and user."""
    command = [str(config.python), SAFE_PATH, "-m", "edge_runtime", "run", str(config.app)]
    return [
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(_word(word) for word in command)}",
        f"WorkingDirectory={_whole(config.app.parent)}",
        f"User={config.user}",
        f"SyslogIdentifier={config.name}",
        *([f"SupplementaryGroups={' '.join(groups)}"] if groups else []),
        "Environment=PYTHONDONTWRITEBYTECODE=1",
    ]


def _restarts(app: AppConfig, config: ServiceConfig) -> list[str]:
    """Return the lines about restarts: the watchdog, exit codes and time-outs."""
    start_s = 2 * app.model.load_timeout_s + app.model.tune_at_start_s + 2 * _SLACK_S
    return [
        f"WatchdogSec={config.watchdog_s}",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        "SuccessExitStatus=3 4",  # it ended in order; what it lost is in the journal
        "RestartForceExitStatus=4",  # and here it was told to begin again
        f"TimeoutStartSec={start_s:.0f}",
        f"TimeoutStopSec={app.drain_timeout_s + _SLACK_S:.0f}",
        "KillMode=mixed",
    ]


def _disk(app: AppConfig, config: ServiceConfig, paths: Paths) -> list[str]:
    """Return the lines about the files that it may read and write."""
    everything = [*paths.read, *paths.written, config.python, config.python.resolve()]
    return [
        "ProtectSystem=strict",
        f"ProtectHome={'read-only' if _any_below(everything, _HOMES) else 'yes'}",
        *([] if _any_below(everything, _TEMPORARY) else ["PrivateTmp=yes"]),
        *(f"ReadWritePaths={_path(path)}" for path in paths.written),
        *(f"ReadOnlyPaths=-{_path(path)}" for path in paths.read),
        # Buffers and rates of sensors are set through sysfs; the files' own permissions still hold.
        *(
            ["ReadWritePaths=-/sys/devices"]
            if any("iio" in _OF_SOURCE.get(source.type, ()) for source in app.source)
            else []
        ),
        "UMask=0077",
    ]


def _devices(app: AppConfig, groups: Sequence[str]) -> list[str]:
    """Return the lines about the device nodes that it may open."""
    if app.model.accelerators:
        # Their nodes are the vendor's (nvhost, nvmap, apex, hailo): file permissions and groups alone decide.
        return ["DevicePolicy=auto"]
    nodes = [node for group in groups for node in (GROUPS[group].nodes if group in GROUPS else ())]
    if not nodes:
        return ["PrivateDevices=yes", "DevicePolicy=closed"]
    return ["DevicePolicy=closed", *(f"DeviceAllow={node} rw" for node in nodes)]


def _kernel(app: AppConfig) -> list[str]:
    """List the kernel's limits: no more than an ordinary service may ask."""
    return [
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "ProtectProc=invisible",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        # ONNX Runtime's and LiteRT's own kernels live with it; drivers of accelerators compile at run time.
        *(["MemoryDenyWriteExecute=yes"] if not app.model.accelerators else []),
        "RemoveIPC=yes",
        "KeyringMode=private",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged",
        "SystemCallErrorNumber=EPERM",
    ]


def hints(app: AppConfig, config: ServiceConfig, known_groups: Sequence[str]) -> list[str]:
    """List what to type before the service can start, as lines for a shell and comments.

    Args:
        app: the configuration.
        config: the unit's settings.
        known_groups: groups that this machine has.
    """
    paths = paths_of(app, config.app)
    groups = groups_of(app, config.groups)
    missing = [group for group in groups if group not in known_groups]
    lines = [f"sudo groupadd --system {group}" for group in missing]
    rules = [GROUPS[group].rule for group in missing if group in GROUPS]
    if rules:
        file = f"/etc/udev/rules.d/60-{config.name}.rules"
        lines += [f"printf '%s\\n' '{rule}' | sudo tee -a {file}" for rule in rules]
        lines.append("sudo udevadm control --reload && sudo udevadm trigger")
    supplementary = f" --groups {','.join(groups)}" if groups else ""
    lines.append(
        f"id {config.user} >/dev/null 2>&1 || "
        f"sudo useradd --system --no-create-home --shell /usr/sbin/nologin{supplementary} {config.user}"
    )
    if shared := [folder for folder in paths.written if any(path.is_relative_to(folder) for path in paths.read)]:
        lines.append(
            f"# {shared[0]} holds what is only read, too; give outbox and answers a folder of their own, for example "
            f"/var/lib/{config.name}, and the service need not own the rest"
        )
    if _any_below([*paths.read, config.python, config.python.resolve()], ["/root"]):
        lines.append("# what lies below /root is closed to other users; put the application and Python elsewhere")
    lines += [f"sudo install -d -o {config.user} -g {config.user} -m 0750 {_shell(path)}" for path in paths.written]
    lines += [
        f"sudo systemctl daemon-reload && sudo systemctl enable --now {config.name}",
        f"systemctl status {config.name}; journalctl -u {config.name} -f",
    ]
    return lines


# -- how systemd and a shell spell things ------------------------------------------------------------------------------


def _word(text: str) -> str:
    """Quote a word of ``ExecStart``: specifiers, variables, quotes and blanks taken literally (systemd.syntax(7))."""
    _refuse_odd(text)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if re.search(r"[\s'\";\\]", text) else text


def _path(path: Path) -> str:
    """Quote a path in a list of them: without variables, which are not expanded there."""
    text = str(path)
    _refuse_odd(text)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s'\"\\]", text) else text


def _whole(path: Path) -> str:
    """Quote a path that is all of a setting: nothing is quoted there, but specifiers are expanded."""
    text = str(path)
    _refuse_odd(text)
    return text.replace("%", "%%")


def _shell(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'" if re.search(r"[^\w/.+-]", str(path)) else str(path)


def _refuse_odd(text: str) -> None:
    if not text.isprintable():
        raise ConfigError(f"{text!r}: a path with line breaks or control characters cannot stand in a unit; rename it")


def _any_below(paths: Sequence[Path], folders: Sequence[str]) -> bool:
    return any(path.is_relative_to(folder) for path in paths for folder in folders)
