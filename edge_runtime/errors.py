"""Every error this package raises on purpose, as one tree.

::

    EdgeError
    ├─ ConfigError                 fix the file or the command line; exit code 2
    ├─ BundleError                 keep running the old bundle, or do not start
    │   ├─ ManifestError           the manifest is malformed or asks for something unknown
    │   ├─ SignatureError          no signature, none of a trusted key, or changed since
    │   ├─ IntegrityError          a size, digest or name is not what the manifest states
    │   ├─ IncompatibleError       no variant of the bundle can run on this machine
    │   └─ UpdateRefused           count it by `reason`; what runs goes on running
    ├─ InputError                  count it by `reason`, drop the message, carry on; never retry
    ├─ EngineError                 fall back to the next engine, then stop
    ├─ StoreError                  the outbox
    │   ├─ StoreInUse              another process has it open; ask that one, or stop it
    │   ├─ StoreUnusable           its path or permissions are wrong; waiting does not help
    │   ├─ StoreFull               apply the configured policy
    │   └─ StoreCorrupt            set the file aside, start a new one, log it
    ├─ CloudError
    │   ├─ CloudUnavailable        keep the hard case, back off, try again
    │   └─ CloudRejected           never retry; the hard case goes to the dead letters
    └─ ConnectionFailed            a broker or server cannot be reached or refuses us

A message says what is wrong and what to do about it, in one line; facts ride as attributes, so no caller parses text.
"""

from __future__ import annotations

from typing import Final, Literal

ADVICE: Final = 1000
"""Limit of `one_line` for our own errors: what to do about them comes last, and may not be cut off."""


class EdgeError(Exception):
    """Base of all errors raised on purpose by edge-runtime."""


class ConfigError(EdgeError):
    """The configuration or the command line is wrong; the user can fix it."""


class BundleError(EdgeError):
    """A bundle cannot be used."""


class ManifestError(BundleError):
    """The manifest is malformed or asks for something this version does not know."""


class SignatureError(BundleError):
    """A bundle is not signed, or its signature does not hold, or is not by anybody who is trusted."""


class IntegrityError(BundleError):
    """A file of the bundle is not what the manifest says it is."""


class IncompatibleError(BundleError):
    """No variant of the bundle runs here."""


class UpdateRefused(BundleError):  # noqa: N818 - an outcome, not a malfunction
    """A bundle, or the news of one, that does not become what runs here.

    Attributes:
        reason: short snake_case word under which it is counted, for example ``older``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class InputError(EdgeError):
    """A message that cannot become a reading.

    Attributes:
        reason: short snake_case word under which the refusal is counted, for example ``not_finite``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class EngineError(EdgeError):
    """An inference engine is missing, or failed to load or run a model.

    Attributes:
        how: ``raised``, ``hung`` (no answer in time) or ``died`` (it took its process with it).
    """

    def __init__(self, message: str, how: Literal["raised", "hung", "died"] = "raised") -> None:
        super().__init__(message)
        self.how = how


class StoreError(EdgeError):
    """The outbox could not do what was asked; nothing that it acknowledged is affected."""


class StoreInUse(StoreError):  # noqa: N818 - a state, not a mistake
    """Another process owns the outbox."""


class StoreUnusable(StoreError):  # noqa: N818 - a state, not a mistake
    """A wrong file, type or permission at the outbox's path: a person has to change it; the disk is not at fault."""


class StoreFull(StoreError):  # noqa: N818 - a state, named as the policy that answers it
    """The outbox is at its limit and its policy is to reject."""


class StoreCorrupt(StoreError):  # noqa: N818
    """The outbox file is damaged beyond what SQLite can open.

    Attributes:
        set_aside: where the damaged file was moved to, or None while it is still in place.
    """

    def __init__(self, message: str, set_aside: str | None = None) -> None:
        super().__init__(message)
        self.set_aside = set_aside


class CloudError(EdgeError):
    """The cloud endpoint did not answer a hard case."""


class CloudUnavailable(CloudError):  # noqa: N818
    """A failure that time may heal: network, overload, a server that restarts.

    Attributes:
        retry_after_s: how long the server asked us to wait, or None.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CloudRejected(CloudError):  # noqa: N818
    """A failure that trying again cannot heal: the request itself is refused.

    Attributes:
        status: HTTP status code, or None where the answer was unreadable.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ConnectionFailed(EdgeError):  # noqa: N818
    """A broker or server cannot be reached, or refuses our credentials."""


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """Render an error, or a text from elsewhere, as one line that any log, message and database takes.

    Args:
        error: an exception without a text becomes the name of its class.
        limit: most characters; a longer text is cut, and ends with three dots.
    """
    encodable = str(error).encode("utf-8", "replace").decode()  # half a surrogate pair can be written nowhere
    text = " ".join(encodable.split())
    if not text and isinstance(error, BaseException):
        text = type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
