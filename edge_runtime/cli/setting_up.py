"""Work of ``edge-runtime init``: its questions, the application they make, and files that are whole or absent."""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from edge_runtime.bundle.bundle import SIGNATURE, open_bundle
from edge_runtime.bundle.shipped import SHIPPED
from edge_runtime.cli.arguments import bundle_path
from edge_runtime.cli.install_service import UNITS, unit_and_steps
from edge_runtime.cli.listen import asked
from edge_runtime.cli.run import check
from edge_runtime.cli.systemd_unit import ServiceConfig, paths_of
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.config import AppConfig, parse
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.listen.application import application
from edge_runtime.listen.broker import broker_config, watch
from edge_runtime.listen.capture import Capture
from edge_runtime.listen.propose import observations_of, propose
from edge_runtime.listen.report import counted, describe_trial, describe_unused, no_window
from edge_runtime.listen.table import Line, SourceTable
from edge_runtime.listen.trial import try_table
from edge_runtime.manifest import Manifest
from edge_runtime.mqtt.config import BrokerConfig
from edge_runtime.mqtt.packets import validate_topic_filter
from edge_runtime.mqtt.wire import MalformedPacket
from edge_runtime.system import durable_file
from edge_runtime.system.progress import Progress

T = TypeVar("T")

LISTEN: Final = "listen"
NONE: Final = "none"
_HEADER: Final = "# Written by edge-runtime init. Every setting, with a comment: edge-runtime run --print-default"
_SLACK_S: Final = 0.1
"""Listening that ends earlier than this was interrupted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files go.

    Attributes:
        config: the application's file, absolute.
        unit: the unit's; None writes none.
    """

    config: Path
    unit: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers to the five questions, checked one by one.

    Attributes:
        broker: without the password that was typed.
        password: that was typed; empty: none, or it has a file already.
        topic: topic filter, or `LISTEN`.
        bundle: file of the model.
        manifest: of the bundle.
        signed: the bundle carries a signature.
        cloud: server for hard cases; None: none.
        home_assistant: show the keys there.
    """

    broker: BrokerConfig
    password: str
    topic: str
    bundle: Path
    manifest: Manifest
    signed: bool
    cloud: CloudConfig | None
    home_assistant: bool


def place_of(options: argparse.Namespace) -> Place:
    """Choose where the files go, before anything is asked.

    Raises:
        ConfigError: one of them is there already, or its folder is not.
    """
    config = options.config.absolute()
    folder = options.units or (UNITS if os.access(UNITS, os.W_OK) else config.parent)
    unit = None if options.no_service else folder.absolute() / f"{options.name}.service"
    if config.exists():
        raise ConfigError(
            f"{options.config}: exists already, and is left as it is; name another file, or write its unit with: "
            f"edge-runtime install-service {options.config}"
        )
    for path in filter(None, (config, unit)):
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: the folder {path.parent} does not exist; make it first")
    if unit is not None and unit.exists():
        raise ConfigError(f"{unit}: exists already, and is left as it is; take another --name, or --no-service")
    return Place(config, unit)


# -- questions ---------------------------------------------------------------------------------------------------------


def answers_of(options: argparse.Namespace) -> Answers:
    """Take the answers from the options, and ask for the others where there is a terminal.

    Raises:
        ConfigError: an answer is wrong, or one is missing and there is no terminal.
        EOFError: the terminal was closed.
    """
    terminal = sys.stdin.isatty()
    missing = [f"--{name}" for name in ("broker", "topic", "bundle") if getattr(options, name) is None]
    if missing and not terminal:
        raise ConfigError(f"init: there is no terminal to ask at; give {', '.join(missing)}")

    def answer(given: str | None, question: str, default: str, read: Callable[[str], T]) -> T:
        return (
            _ask(question, default, read) if given is None and terminal else read(default if given is None else given)
        )

    broker = answer(options.broker, "Broker (host, USER@host or URL)", "localhost", lambda text: _broker(text, options))
    topic = answer(options.topic, f"Topic of the readings, or {LISTEN} to find them", LISTEN, _topic)
    shipped = f"Bundle: a file, or one of {', '.join(SHIPPED)}"
    bundle = answer(options.bundle and str(options.bundle), shipped, next(iter(SHIPPED)), _bundle)
    with open_bundle(bundle) as opened:
        manifest, signed = opened.manifest, SIGNATURE in opened.names
    if signed and not options.trusted_keys:
        raise ConfigError(f"{bundle}: is signed; give the public key of its signer: --trusted-key KEY.pub.pem")
    model = options.cloud_model or f"{manifest.name}-teacher"
    cloud = answer(
        options.cloud, "Cloud: URL of the server for hard cases", NONE, lambda text: _cloud(text, model, options)
    )
    given = None if options.home_assistant is None else ("yes" if options.home_assistant else "no")
    home_assistant = answer(given, "Show it in Home Assistant, yes or no", "no", _yes)
    needs_password = broker.username and not options.password_file
    if needs_password and not terminal:
        raise ConfigError(f"init: user {broker.username} needs a password; give --password-file FILE")
    return Answers(
        broker=broker,
        password=_password(broker.username) if needs_password else "",
        topic=topic,
        bundle=bundle,
        manifest=manifest,
        signed=signed,
        cloud=cloud,
        home_assistant=home_assistant,
    )


def _ask(question: str, default: str, read: Callable[[str], T]) -> T:
    """Ask until the answer can be used; an empty one is the default."""
    while True:
        text = input(f"{question} [{default}]: ").strip() or default
        try:
            return read(text)
        except EdgeError as error:
            print(f"  {error}")


def _broker(text: str, options: argparse.Namespace) -> BrokerConfig:
    scheme, mark, rest = text.rpartition("://")
    user, at, host = rest.rpartition("@")
    if ":" in user:
        raise ConfigError("broker: no password here, where it is shown; write USER@host, and it is asked for")
    config = broker_config(f"{scheme}{mark}{host}", user, options.password_file if at else None)
    if options.password_file and not at:
        raise ConfigError("broker: --password-file needs a user: write USER@host")
    return config


def _topic(text: str) -> str:
    try:
        validate_topic_filter(text)
    except MalformedPacket as error:
        raise ConfigError(f"topic '{text}' cannot be subscribed to: {error}") from None
    return text


def _bundle(text: str) -> Path:
    try:
        path = bundle_path(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(str(error)) from None
    open_bundle(path).close()
    return path


def _cloud(text: str, model: str, options: argparse.Namespace) -> CloudConfig | None:
    if text == NONE:
        return None
    try:
        return CloudConfig(url=text, model=model, token_file=options.cloud_token_file)
    except ValueError as error:
        raise ConfigError(f"cloud: {error}") from None


def _yes(text: str) -> bool:
    known = {"yes": True, "y": True, "no": False, "n": False}
    if text.lower() not in known:
        raise ConfigError(f"'{text}': answer yes or no")
    return known[text.lower()]


def _password(user: str) -> str:
    while True:
        password = getpass.getpass(f"Password of {user} (not shown): ").strip()
        if password and password.isascii() and password.isprintable():
            return password
        print("  one line of printable ASCII is needed")


# -- the application ---------------------------------------------------------------------------------------------------


def write(place: Place, answers: Answers, options: argparse.Namespace) -> int:
    """Find the source, check the application, and write the files.

    Returns:
        1 if the application does not work here; nothing is written then.

    Raises:
        EdgeError: the broker is silent or away, the check refuses something, or a file cannot be written.
    """
    with _unwritten(answers) as broker:
        tables = _listened(answers, broker, options.seconds) if answers.topic == LISTEN else [_plain(answers.topic)]
        secret = _free(place.config.with_suffix(".password")) if answers.password else answers.broker.password_file
        text = _text(place, answers, tables, secret, options)
        config = parse(text, place.config)
        if code := _checked(config, broker, place.config):
            return code
    files = [(secret, answers.password + "\n", 0o600)] if answers.password and secret else []
    files.append((place.config, text, 0o644))
    steps = [f"mkdir -p {shlex.quote(str(one))}" for one in paths_of(config, place.config).written]
    steps.append(f"edge-runtime run {shlex.quote(str(options.config))}")
    if place.unit is not None:
        unit, steps = _service(config, place, options)
        if answers.password:
            steps.insert(-2, f"sudo chown {options.user} {shlex.quote(str(secret))}")
        elif secret is not None:
            steps.insert(-2, f"# {secret} must be readable by {options.user}")
        files.append((place.unit, unit, 0o644))
    _create(files)
    print("\n".join([*(f"wrote {path}" for path, *_ in files), "next:", *steps]))
    return 0


@contextmanager
def _unwritten(answers: Answers) -> Iterator[BrokerConfig]:
    """Lend the broker's settings with the password in a file that is on no disk and in no folder."""
    if not answers.password:
        yield answers.broker
        return
    with os.fdopen(os.memfd_create("password"), "w") as file:
        print(answers.password, file=file, flush=True)
        yield dataclasses.replace(answers.broker, password_file=Path(f"/proc/self/fd/{file.fileno()}"))


def _listened(answers: Answers, broker: BrokerConfig, seconds: float) -> list[SourceTable]:
    """Listen to the broker, and make the tables that feed the model."""
    contract = answers.manifest.input
    print(f"listening to {broker.url} for {seconds:g} s", file=sys.stderr)
    with Progress("listening", round(seconds)) as progress:

        def draw(capture: Capture) -> None:
            progress.advance(1, counted(capture.count, "message"))

        capture = watch(broker, ("#",), seconds, progress=draw)
    if capture.listened_s < seconds - _SLACK_S:
        raise KeyboardInterrupt  # which only ends the listening
    if not capture.count:
        raise ConfigError(
            f"nothing was heard on {broker.url} in {seconds:g} s; let the sensor send, or give its topic in place of "
            f"{LISTEN}"
        )
    seen = observations_of(capture)
    proposals = propose(capture, seen, contract)
    if not proposals or proposals[0].missing:
        lacks = f" for {', '.join(proposals[0].missing)}" if proposals else ""
        unused = describe_unused(seen, contract, proposals[0] if proposals else None)
        raise ConfigError(f"nothing was heard{lacks} that fits the model of {answers.bundle}. {unused}")
    proposal = asked(proposals[0])
    tried = try_table([table.data() for table in proposal.tables], capture, contract)
    print("\n".join(describe_trial(tried, contract.window / contract.rate_hz)))
    if tried.problem or not tried.samples:
        raise ConfigError("no table was found that reads what was heard; edge-runtime listen shows more")
    if not tried.windows:
        print(no_window(tried, capture, contract))
    return proposal.tables


def _plain(topic: str) -> SourceTable:
    """Make a table for a topic that was not listened to: JSON, as most sensors send it."""
    return SourceTable(
        source=[Line("type", "mqtt"), Line("broker", "local"), Line("topics", [topic])],
        codec=[Line("type", "json", "what comes there was not looked at: edge-runtime run --check FILE --seconds 10")],
    )


def _text(
    place: Place, answers: Answers, tables: list[SourceTable], secret: Path | None, options: argparse.Namespace
) -> str:
    """Write the application."""
    folder = place.config.parent
    ends = ["[[sink]]", Line("type", "mqtt").text(), Line("broker", "local").text()]
    ends += [Line("topic", "edge/{key}/prediction").text(), ""]
    state = folder / "state" if options.state is None else options.state.absolute()
    if state.is_relative_to(folder):
        state = state.relative_to(folder)
    if answers.cloud is None:
        ends += ["[reading_log]", Line("path", str(state / "readings.db"), "begun windows outlive a restart").text()]
    else:
        ends += ["[cloud]", Line("url", answers.cloud.url).text(), Line("model", answers.cloud.model).text()]
        if answers.cloud.token_file is not None:
            ends.append(Line("token_file", os.path.relpath(answers.cloud.token_file, folder)).text())
        ends += ["", "[outbox]", Line("path", str(state / "outbox.db")).text()]
    if answers.home_assistant:
        ends += ["", "[home_assistant]", Line("broker", "local").text()]
    broker = dataclasses.replace(answers.broker, password_file=secret)
    return application(
        tables,
        broker,
        answers.bundle,
        folder,
        signed=answers.signed,
        trusted=options.trusted_keys,
        header=_HEADER,
        ends=ends,
    )


def _checked(config: AppConfig, broker: BrokerConfig, path: Path) -> int:
    """Check the application as `run --check`, with its state in a folder that goes, and the password as it is lent."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        outbox = config.outbox and dataclasses.replace(config.outbox, path=state / config.outbox.path.name)
        log = config.reading_log and dataclasses.replace(config.reading_log, path=state / config.reading_log.path.name)
        local = dataclasses.replace(config.broker["local"], password_file=broker.password_file)
        return check(dataclasses.replace(config, outbox=outbox, reading_log=log, broker={"local": local}), path)


# -- files -------------------------------------------------------------------------------------------------------------


def _service(config: AppConfig, place: Place, options: argparse.Namespace) -> tuple[str, list[str]]:
    """Make the unit, and the lines to type before it can start."""
    assert place.unit is not None
    try:
        wanted = ServiceConfig(
            app=place.config, python=Path(sys.executable).absolute(), name=options.name, user=options.user
        )
    except ValueError as error:
        raise ConfigError(f"init: {error}") from None
    unit, steps = unit_and_steps(config, wanted)
    if place.unit.parent != UNITS:
        steps.insert(0, f"sudo install -m 0644 {shlex.quote(str(place.unit))} {UNITS}")
    return unit, steps


def _free(path: Path) -> Path:
    """Return a path where nothing is: this one, or one with a number. A run that was killed may have left its file."""
    numbered = (path.with_stem(f"{path.stem}-{i}") for i in range(2, 1000))
    return next((one for one in (path, *numbered) if not one.exists()), path)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let signals that end the process wait for a moment."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _create(files: list[tuple[Path, str, int]]) -> None:
    """Put new files in their places: all of them, or none where that fails or is interrupted."""
    made: list[Path] = []
    try:
        for path, text, mode in files:
            with _uninterrupted():  # or a file would be there that is not known as ours
                durable_file.create(path, text.encode(), mode)
                made.append(path)
    except BaseException as error:
        for path in made:
            durable_file.remove(path)
        if isinstance(error, OSError):
            raise EdgeError(f"{path}: cannot be written: {error.strerror}; nothing was written") from None
        raise
