"""Work of ``edge-runtime init``: the application that the answers make, and files that are whole or absent."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.base.system import durable_file
from edge_runtime.base.system.progress import Progress
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.tools.cli.init_options import InitOptions
from edge_runtime.tools.cli.init_questions import LISTEN, InitAnswers
from edge_runtime.tools.cli.install_service import UNITS, unit_and_steps
from edge_runtime.tools.cli.listen import asked
from edge_runtime.tools.cli.program import CommandAnswer
from edge_runtime.tools.cli.run import check
from edge_runtime.tools.cli.systemd_unit import ServiceConfig, paths_of
from edge_runtime.tools.listen.application import application
from edge_runtime.tools.listen.broker import watch
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.propose import observations_of, propose
from edge_runtime.tools.listen.report import counted, describe_trial, describe_unused, no_window
from edge_runtime.tools.listen.table import Line, SourceTable
from edge_runtime.tools.listen.trial import try_table

_HEADER: Final = "# Written by edge-runtime init. Every setting, with a comment: edge-runtime run --print-default"
_SLACK_S: Final = 0.1
"""Listening that ends earlier than this was interrupted."""


@dataclass(frozen=True, slots=True)
class SetupFiles:
    """Places of the files.

    Attributes:
        config: the application's file, absolute.
        unit: the unit's; None writes none.
    """

    config: Path
    unit: Path | None


def place_of(options: InitOptions) -> SetupFiles:
    """Choose where the files go, before anything is asked.

    Raises:
        ConfigError: one of them is there already, or its folder is not.
    """
    config = options.app.absolute()
    folder = options.units or (UNITS if os.access(UNITS, os.W_OK) else config.parent)
    unit = None if options.no_service else folder.absolute() / f"{options.name}.service"
    if config.exists():
        raise ConfigError(
            f"{options.app}: exists already, and is left as it is; name another file, or write its unit with: "
            f"edge-runtime install-service {options.app}"
        )
    for path in filter(None, (config, unit)):
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: the folder {path.parent} does not exist; make it first")
    if unit is not None and unit.exists():
        raise ConfigError(f"{unit}: exists already, and is left as it is; take another --name, or --no-service")
    return SetupFiles(config, unit)


# -- the application ---------------------------------------------------------------------------------------------------


def write(place: SetupFiles, answers: InitAnswers, options: InitOptions) -> CommandAnswer:
    """Find the source, check the application, and write the files.

    Returns:
        What was written; or what the check found, with exit code 1, if the application does not work here.

    Raises:
        EdgeError: the broker is silent or away, the check refuses something, or a file cannot be written.
    """
    with _unwritten(answers) as broker:
        heard = answers.topic == LISTEN
        tables = _listened(answers, broker, options.seconds) if heard else (_plain(answers.topic),)
        secret = _free(place.config.with_suffix(".password")) if answers.password else answers.broker.password_file
        text = _text(place, answers, tables, secret, options)
        config = parse(text, place.config)
        checked = _checked(config, broker, place.config)
        if checked.code:
            return checked
    files = [(secret, answers.password + "\n", 0o600)] if answers.password and secret else []
    files.append((place.config, text, 0o644))
    steps = [f"mkdir -p {shlex.quote(str(one))}" for one in paths_of(config, place.config).written]
    steps.append(f"edge-runtime run {shlex.quote(str(options.app))}")
    if place.unit is not None:
        unit, steps = _service(config, place, options)
        if answers.password:
            steps.insert(-2, f"sudo chown {options.user} {shlex.quote(str(secret))}")
        elif secret is not None:
            steps.insert(-2, f"# {secret} must be readable by {options.user}")
        files.append((place.unit, unit, 0o644))
    _create(files)
    wrote = [path for path, *_ in files]
    lines = [*checked.lines, *(f"wrote {path}" for path in wrote), "next:", *steps]
    return CommandAnswer({"wrote": wrote, "next": steps, "check": checked.document}, lines)


@contextmanager
def _unwritten(answers: InitAnswers) -> Iterator[BrokerConfig]:
    """Lend the broker's settings with the password in a file that is on no disk and in no folder."""
    if not answers.password:
        yield answers.broker
        return
    with os.fdopen(os.memfd_create("password"), "w") as file:
        print(answers.password, file=file, flush=True)
        yield dataclasses.replace(answers.broker, password_file=Path(f"/proc/self/fd/{file.fileno()}"))


def _listened(answers: InitAnswers, broker: BrokerConfig, seconds: float) -> Sequence[SourceTable]:
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
    place: SetupFiles, answers: InitAnswers, tables: Sequence[SourceTable], secret: Path | None, options: InitOptions
) -> str:
    """Write the application."""
    folder = place.config.parent
    ends = ["[[sink]]", Line("type", "mqtt").text(), Line("broker", "local").text()]
    ends += [Line("topic", "edge/{key}/prediction").text(), ""]
    state = state_folder(place, options)
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
        trusted=options.trusted_key,
        header=_HEADER,
        ends=ends,
    )


def state_folder(place: SetupFiles, options: InitOptions) -> Path:
    """Choose where the application keeps its state; no program keeps any below /etc."""
    if options.state is not None:
        return Path(options.state.absolute())
    if place.config.is_relative_to("/etc"):
        return Path("/var/lib") / str(options.name)
    return place.config.parent / "state"


def _checked(config: AppConfig, broker: BrokerConfig, path: Path) -> CommandAnswer:
    """Check the application as `run --check`, with its state in a folder that goes, and the password as it is lent."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        outbox = config.outbox and dataclasses.replace(config.outbox, path=state / config.outbox.path.name)
        log = config.reading_log and dataclasses.replace(config.reading_log, path=state / config.reading_log.path.name)
        local = dataclasses.replace(config.broker["local"], password_file=broker.password_file)
        return check(dataclasses.replace(config, outbox=outbox, reading_log=log, broker={"local": local}), path)


# -- files -------------------------------------------------------------------------------------------------------------


def _service(config: AppConfig, place: SetupFiles, options: InitOptions) -> tuple[str, list[str]]:
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
        with _uninterrupted():  # an interrupt that came meanwhile takes them back; whatever ends us finds all there
            for path, text, mode in files:
                durable_file.create(path, text.encode(), mode)
                made.append(path)
    except BaseException as error:
        for path in made:
            durable_file.remove(path)
        if isinstance(error, OSError):
            raise EdgeError(f"{path}: cannot be written: {error.strerror}; nothing was written") from None
        raise
