"""Control spool: how an operator's command reaches a running application, by files in a folder of the application.

::

    NAME            the request; whole from the moment it is seen
    NAME.answer     what was done, where the command waits for it

No socket is opened for it, and a user may not ask for more than they could do themselves: a request counts only if it
is a file of the application's own user, which others cannot write. That user could replace the outbox itself, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from edge_runtime.base.system import durable_file
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError

log = logging.getLogger(__name__)

_MAX_BYTES = 4 * 2**20
_LOOK_S = 0.05


class Spool:
    """The place of one request at a time.

    Args:
        request: the file; its folder must exist.
        answer: the file of the answer; None where no command waits for one.
    """

    def __init__(self, request: Path, answer: Path | None = None) -> None:
        self._request = request
        self._answer = answer or request.with_name(f"{request.name}.answer")

    # -- the command -------------------------------------------------------------------------------------------------

    def post(self, document: object) -> None:
        """Leave a request, in the place of one that was not taken yet; it is on the disk on return.

        Raises:
            OSError: it cannot be left there.
        """
        durable_file.write(self._request, orjson.dumps(document))

    def ask(self, document: Mapping[str, Any], clock: Clock, timeout_s: float) -> dict[str, Any] | None:
        """Leave a request, and wait for its answer.

        Args:
            document: what is wanted; a ``name`` is added, by which the answer is known.
            clock: monotonic time for the time-out.
            timeout_s: how long the application may take.

        Returns:
            The answer; None if none came, and the request was taken back.

        Raises:
            FileExistsError: another request waits.
            OSError: it cannot be left there.
        """
        name = uuid.uuid4().hex
        own = self._request.with_name(f"{self._request.name}.{name}")
        durable_file.write(own, orjson.dumps({"name": name, **document}))
        try:
            os.link(own, self._request)  # unlike a rename, it replaces nothing
        finally:
            own.unlink()
        give_up = clock.monotonic() + timeout_s
        while clock.monotonic() < give_up:
            found = _read(self._answer)
            if found is not None and found.get("name") == name:
                self._answer.unlink(missing_ok=True)
                return found
            clock.sleep(_LOOK_S)
        self.remove()
        return None

    def ask_running(
        self, document: Mapping[str, Any], clock: Clock, timeout_s: float, what: str = ""
    ) -> dict[str, Any]:
        """Ask as `ask` does, and make one line for the user of what goes wrong.

        Args:
            document: request, as in `ask`.
            clock: monotonic time, as in `ask`.
            timeout_s: longest wait, as in `ask`.
            what: the application needs besides running, as a question behind ``does it run``.

        Raises:
            StoreError: it could not be asked, did not answer, or answered with an ``error``.
        """
        try:
            answer = self.ask(document, clock, timeout_s)
        except FileExistsError:
            raise StoreError("another command waits for the application already; try again") from None
        except OSError as error:
            raise StoreError(f"cannot leave a request {self._request}: {error.strerror}; check permissions") from error
        if answer is None:
            raise StoreError(
                f"no application took {self._request.name} in {self._request.parent} within {timeout_s:g} s; does it "
                f"run{what}?"
            )
        if error_text := answer.get("error"):
            raise StoreError(str(error_text))
        return answer

    # -- the application ---------------------------------------------------------------------------------------------

    def read(self) -> dict[str, Any] | None:
        """Read the request; None where there is none, or none that may be obeyed."""
        return _read(self._request)

    def remove(self) -> None:
        """Take the request away.

        Raises:
            OSError: it stays.
        """
        self._request.unlink(missing_ok=True)

    def serve(self, handle: Callable[[dict[str, Any]], Mapping[str, Any]]) -> bool:
        """Do what is asked for, if anything is, and answer; to be called now and then, behind a `Barrier`.

        Args:
            handle: does it, and returns the answer.

        Returns:
            Whether there was a request.

        Raises:
            Exception: what `handle` raises; the request is removed, so that it is not met again.
        """
        if not os.path.lexists(self._request):  # a single stat where there is no request
            return False
        try:
            asked = self.read()
            if asked is None:
                log.warning("control: removed a request that is not this user's own: path=%s", self._request)
            else:
                durable_file.write(self._answer, orjson.dumps({**handle(asked), "name": asked.get("name")}))
            self.remove()
        except OSError as error:
            log.warning("control: could not answer a request: path=%s error=%s", self._request, error.strerror)
            with contextlib.suppress(OSError):
                self.remove()
        except Exception:
            self.remove()
            raise
        return True


def _read(path: Path) -> dict[str, Any] | None:
    """Read an object from a plain file that only this user can have written; None otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or others_write:
            return None
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        return None
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
