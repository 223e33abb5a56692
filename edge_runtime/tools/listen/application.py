"""Text of a whole application around proposed sources: what ``edge-runtime run --check`` accepts as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.model.bundle.shipped import written
from edge_runtime.tools.listen.table import Line, SourceTable

HEADER = "# Written by edge-runtime listen; each guess says what it rests on. Change what you know better."


def application(
    tables: Sequence[SourceTable],
    broker: BrokerConfig,
    bundle: Path | None,
    folder: Path,
    *,
    signed: bool = False,
    trusted: Sequence[Path] = (),
    header: str = HEADER,
    ends: Sequence[str] = (),
) -> str:
    """Write the application.

    Args:
        tables: the sources.
        broker: settings with which it was listened to.
        bundle: the model's bundle; None writes no model and no sink, which is what ``edge-runtime record`` takes.
        folder: the folder of the file to be; the bundle is named from there.
        signed: the bundle carries a signature, so nothing is written that would run it without.
        trusted: public keys, one of which must have signed it.
        header: first line.
        ends: lines behind the sources, in place of a sink that prints.
    """
    parts = [header, ""]
    if bundle is not None:
        parts += ["[model]", Line("bundle", written(bundle, folder)).text()]
        if trusted:
            parts.append(Line("trusted_keys", [os.path.relpath(key, folder) for key in trusted]).text())
        elif signed:
            parts += ['# trusted_keys = ["release.pub.pem"]  # the public key of its signer: docs/signing.md']
        else:
            parts += [Line("unsigned", "allow", "this bundle is not signed").text()]
        parts.append("")
    parts += ["[broker.local]", Line("url", broker.url).text()]
    if broker.username:
        parts.append(Line("username", broker.username).text())
    if broker.password_file is not None:
        parts.append(Line("password_file", os.path.relpath(broker.password_file, folder)).text())
    parts.append("")
    parts += [table.text() for table in tables]
    if ends:
        parts += ends
    elif bundle is not None:
        parts += ["[[sink]]", Line("type", "stdout").text()]
    return "\n".join(parts).rstrip() + "\n"
