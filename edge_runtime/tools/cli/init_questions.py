"""Questions of ``edge-runtime init``: answered by options, at a terminal, or by lines on standard input."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from edge_runtime.cloud.config import CloudConfig
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.packets import validate_topic_filter
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.manifest import Manifest
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from edge_runtime.model.bundle.shipped import SHIPPED
from edge_runtime.tools.cli.arguments import bundle_path
from edge_runtime.tools.cli.init_options import InitOptions
from edge_runtime.tools.listen.broker import broker_config

T = TypeVar("T")

LISTEN: Final = "listen"
NONE: Final = "none"
_NEEDED: Final = ("broker", "topic", "bundle")
"""InitOptions without an answer of their own, in the order of the questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitAnswers:
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


def answers_of(options: InitOptions) -> InitAnswers:
    """Take the answers from the options, and ask for the others.

    Raises:
        ConfigError: an answer is wrong (at a terminal it is asked for again), or one is missing.
        EOFError: the person at the terminal left.
    """
    broker = _answer(
        options,
        "broker",
        "Broker (host, USER@host or URL)",
        "localhost",
        lambda text: broker_config(text, options.password_file),
    )
    topic = _answer(options, "topic", f"Topic of the readings, or {LISTEN} to find them", LISTEN, _topic)
    names = f"Bundle: a file, or one of {', '.join(SHIPPED)}"
    bundle = _answer(options, "bundle", names, next(iter(SHIPPED)), _bundle)
    with open_bundle(bundle) as opened:
        manifest, signed = opened.manifest, SIGNATURE in opened.names
    if signed and not options.trusted_key:
        raise ConfigError(f"{bundle}: is signed; give the public key of its signer: --trusted-key KEY.pub.pem")
    model = options.cloud_model or f"{manifest.name}-teacher"
    cloud = _answer(
        options, "cloud", "Cloud: URL of the server for hard cases", NONE, lambda text: _cloud(text, model, options)
    )
    home_assistant = _answer(options, "home_assistant", "Show it in Home Assistant, yes or no", "no", _yes)
    needs_password = broker.username and not options.password_file
    if needs_password and not _terminal():
        raise ConfigError(f"init: user {broker.username} needs a password; give --password-file FILE")
    return InitAnswers(
        broker=broker,
        password=_password(broker.username) if needs_password else "",
        topic=topic,
        bundle=bundle,
        manifest=manifest,
        signed=signed,
        cloud=cloud,
        home_assistant=home_assistant,
    )


def _terminal() -> bool:
    """Tell whether a person can be asked again."""
    return sys.stdin is not None and sys.stdin.isatty()


def _answer(options: InitOptions, name: str, question: str, default: str, read: Callable[[str], T]) -> T:
    """Return what an option says, or else the answer to its question; an empty one is the default.

    At a terminal it is asked until the answer can be used. Elsewhere a wrong one is refused, and where the lines end,
    the default of what need not be asked holds.
    """
    given = getattr(options, name)
    if given is not None:
        return read(_plain(str(given)))
    while _terminal():
        try:
            return read(_plain(_line(f"{question} [{default}]: ")) or default)
        except EdgeError as error:
            print(f"  {error}")
    try:
        text = _plain(_line("")) or default
    except EOFError:
        if name in _NEEDED:
            missing = [one for one in _NEEDED[_NEEDED.index(name) :] if getattr(options, one) is None]
            raise ConfigError(
                f"init: standard input holds no answer to: {question}; give "
                f"{', '.join(f'--{one}' for one in missing)}, or a line for each"
            ) from None
        text = default
    answer = read(text)
    print(f"{question}: {text}")
    return answer


def _line(prompt: str) -> str:
    if sys.stdin is None:  # closed by the one who started us
        raise EOFError
    try:
        return input(prompt)
    except UnicodeDecodeError:
        return "\ufffd"


def _plain(text: str) -> str:
    text = text.strip()
    if not text.isprintable() or "\ufffd" in text:
        raise ConfigError("an answer holds bytes that are no text; type it again")
    return text


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


def _cloud(text: str, model: str, options: InitOptions) -> CloudConfig | None:
    if text == NONE:
        return None
    try:
        return CloudConfig(url=text, model=model, token_file=options.cloud_token_file)
    except ValueError as error:
        raise ConfigError(f"cloud: {error}") from None


def _yes(text: str) -> bool:
    known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
    if text.lower() not in known:
        raise ConfigError(f"'{text}': answer yes or no")
    return known[text.lower()]


def _password(user: str) -> str:
    while True:
        password = getpass.getpass(f"Password of {user} (not shown): ").strip()
        if password and password.isascii() and password.isprintable():
            return password
        print("  one line of printable ASCII is needed")
