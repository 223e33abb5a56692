"""``edge-export keys``: pairs of keys, and signed sets of trusted keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_export.cli.sign import Signing, password
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import ExistingFile, OutputFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, family

family(
    __name__,
    "keys",
    "make a pair of keys, or show which one a file holds",
    "Make a pair of keys for signing, or show the id of a key. Nothing secret is ever printed.",
    "keys new release.pem",
)


@dataclass(frozen=True, kw_only=True)
class NewKeyOptions(CommandOptions):
    file: Path = operand("the private key's file, which is made", "NAME.pem")
    password_file: ExistingFile | None = arguments.key_password()


@dataclass(frozen=True, kw_only=True)
class ShowKeyOptions(CommandOptions):
    file: ExistingFile = operand("a public or a private key", "KEY.pem")
    password_file: ExistingFile | None = arguments.key_password()


@dataclass(frozen=True, kw_only=True)
class KeySetOptions(CommandOptions):
    out: OutputFile = option("what is written, to be published retained", metavar="KEYS.json")
    version: int = option("higher than that of the set before; the first is 1", metavar="N")
    threshold: int = option("how many of these keys the next set will need", 1, "N")
    trusted_key: tuple[ExistingFile, ...] = option("public key of the set; may be repeated", metavar="KEY.pub.pem")
    key: tuple[ExistingFile, ...] = option("private key that signs the set; may be repeated", metavar="KEY.pem")
    password_file: ExistingFile | None = arguments.key_password()


@command("keys new", "make NAME.pem, which signs, and NAME.pub.pem, which devices are given")
def new(options: NewKeyOptions) -> CommandAnswer:
    """Make a pair of keys."""
    from edge_export.package.sign import new_key  # noqa: PLC0415 - cryptography, only when it is needed

    made, public = new_key(options.file, password(options.password_file)), options.file.with_suffix(".pub.pem")
    lines = [
        f"{options.file}: signs; keep it to yourself, and a copy of it somewhere safe",
        f"{public}: devices trust {made}",
    ]
    return CommandAnswer({"private": options.file, "public": public, "id": str(made)}, lines)


@command("keys show", "the id of a public or private key, as bundles and devices name it")
def show(options: ShowKeyOptions) -> CommandAnswer:
    """Show the id of a key."""
    from edge_runtime.model.bundle.signature import load_key  # noqa: PLC0415

    try:
        data = options.file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{options.file}: cannot be read: {error.strerror}") from error
    kind, public = "public", ""
    if b"PRIVATE KEY" in data:
        private = Signing(key=options.file, password_file=options.password_file).load()
        assert private is not None
        kind, public = "private", str(private.public)
    else:
        public = str(load_key(options.file))
    line = f"{options.file}: {kind} key {'of ' if kind == 'private' else ''}{public}"
    return CommandAnswer({"file": options.file, "kind": kind, "id": public}, line)


@command(
    "keys set",
    "a signed set of keys, which replaces the ones that devices trust",
    renamed={"--trust": "--trusted-key", "--sign": "--key"},
)
def key_set(options: KeySetOptions) -> CommandAnswer:
    """Make a signed set."""
    from edge_export.package import trusted_keys  # noqa: PLC0415
    from edge_export.package.sign import SigningKey  # noqa: PLC0415
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415

    secret = password(options.password_file)
    signers = [SigningKey(path, secret) for path in options.key]
    keys = load_keys(options.trusted_key)
    made = trusted_keys.key_set(keys, options.version, signers, threshold=options.threshold)
    try:
        options.out.write_bytes(made)
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    line = f"{options.out}: version {options.version}, {len(keys)} keys, {len(signers)} signatures"
    document = {"file": options.out, "version": options.version, "keys": len(keys), "signatures": len(signers)}
    return CommandAnswer(document, line)
