"""``edge-export sign``, and the options by which every command is given a private key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_export.package.rewrite import Signer
    from edge_export.package.sign import SigningKey


@dataclass(frozen=True, kw_only=True)
class Signing:
    """The key that signs."""

    key: ExistingFile | None = option("private key that signs the bundle", None, "KEY.pem")
    password_file: ExistingFile | None = arguments.key_password()

    def load(self) -> SigningKey | None:
        """Load the key that was named; None where none was.

        Raises:
            ConfigError: it cannot be used.
        """
        from edge_export.package.sign import SigningKey  # noqa: PLC0415 - cryptography, only where something is signed

        return None if self.key is None else SigningKey(self.key, password(self.password_file))

    def again(self, bundle: Path, what: str, advice: str = "") -> tuple[Signer | None, str]:
        """Return what signs a bundle again once its manifest has changed, and words for who signs it.

        Args:
            bundle: the file.
            what: words for what is written into it, in the plural.
            advice: more to do in place of ``--key``.

        Raises:
            ConfigError: it is signed, and no key is named.
            BundleError: it is not signed by this key: a new signature vouches for the whole file.
        """
        from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy, only when needed

        key = self.load()
        with open_bundle(bundle) as opened:
            signed = opened.signature != "unsigned"
        if key is None:
            if signed:
                raise ConfigError(
                    f"{bundle} is signed, and {what} in it break the signature: give --key KEY.pem{advice}"
                )
            return None, "unsigned"
        if signed:
            open_bundle(bundle, trusted=[key.public]).close()

        def sign(path: Path) -> None:
            from edge_export.package.sign import sign_bundle  # noqa: PLC0415

            sign_bundle(path, key)

        return sign, f"signed by {key.public}"


@dataclass(frozen=True, kw_only=True)
class NeededSigning(Signing):
    """The key that signs."""

    key: ExistingFile = option("private key that signs the bundle", metavar="KEY.pem")


@dataclass(frozen=True, kw_only=True)
class SignOptions(CommandOptions):
    bundles: tuple[BundlePath, ...] = arguments.bundle()
    signing: NeededSigning
    signature: ExistingFile | None = option(
        "made elsewhere over the unpacked bundle; needs its public key as --key", None, "FILE"
    )


@command(
    "sign",
    "sign bundles",
    "Sign bundles in place; a signature that they have is replaced. Signing twice changes nothing.",
    "sign watch.edge --key release.pem",
)
def run(options: SignOptions) -> CommandAnswer:
    """Sign, and tell by which key."""
    from edge_export.package.sign import attach, sign_bundle  # noqa: PLC0415 - cryptography, only when it is needed
    from edge_runtime.model.bundle.signature import load_key  # noqa: PLC0415

    if options.signature is not None:
        if len(options.bundles) != 1:
            raise ConfigError("--signature belongs to one bundle; name that one alone")
        by = str(load_key(options.signing.key))
        attach(options.bundles[0], options.signature.read_bytes(), load_key(options.signing.key))
    else:
        key = options.signing.load()
        assert key is not None
        by = str(key.public)
        for bundle in options.bundles:
            sign_bundle(bundle, key)
    lines = [f"{bundle}: signed by {by}" for bundle in options.bundles]
    return CommandAnswer({"bundles": options.bundles, "signed_by": by}, lines)


def password(file: Path | None) -> bytes | None:
    """Read a password from a file, without its line end; None where no file was named.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    if file is None:
        return None
    try:
        found = file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{file}: is empty; write the password into it")
    return found
