"""The running application that a command asks: how it is named, reached, and said not to run."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import ExistingFile, Seconds, app_file
from edge_runtime.tools.cli.options import operand, option

if TYPE_CHECKING:
    from edge_runtime.operate.observe.asking import Asker


def app_name(text: str) -> Path | str:
    """Parse the name of an application: as `app_file`, or the URL of its page.

    Raises:
        argparse.ArgumentTypeError: it is none of them.
    """
    if "://" not in text:
        return app_file(text)
    url = urlsplit(text)
    if url.scheme != "http" or not url.hostname or url.port == 0:
        raise argparse.ArgumentTypeError(f"{text}: the page of an application is at http://ADDRESS:PORT")
    return text


@dataclass(frozen=True, kw_only=True)
class Running:
    """The running application."""

    app: Annotated[Path | str, app_name] = operand("its app.toml, its folder, or the URL of its page", "APP")
    wait: Seconds = arguments.wait()
    token_file: ExistingFile | None = option("file with the token of the page, where APP is a URL", None, "FILE")

    def asker(self) -> Asker:
        """Return what asks it.

        Raises:
            ConfigError: it cannot be asked, by its configuration; or the token cannot be read.
        """
        from edge_runtime.app.config import load_config  # noqa: PLC0415 - numpy and the rest, only when needed
        from edge_runtime.base.system.secrets import SecretFile  # noqa: PLC0415
        from edge_runtime.clock import SystemClock  # noqa: PLC0415
        from edge_runtime.operate.observe.asking import Asker  # noqa: PLC0415

        place = self.app if isinstance(self.app, str) else load_config(self.app).socket_file
        token = "" if self.token_file is None else SecretFile(self.token_file, "--token-file").value()
        return Asker(place, SystemClock(), self.wait, token)
