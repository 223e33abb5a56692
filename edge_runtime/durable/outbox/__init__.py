"""The durable outbox: hard cases wait here for the cloud, over restarts, power cuts and full disks.

::

    records    what goes in and comes out, and the limits
    outbox     Outbox: put, take, settle, dead letters
    rows       the statements behind them
    session    one open file: lock, transactions, healing after errors
    placing    paths that can never be a store's
    opening    creation, checks, upgrade
    salvage    what happens to a damaged file
    closings   how cases ended: what consumers are told, and what repeats are told again
    snapshot   looking into an outbox that somebody else owns
    requests   asking its owner to retry or drop dead letters
    schema     tables, ledger, checksums

The only package that knows SQL.
"""

from __future__ import annotations

from edge_runtime.durable.config import OutboxConfig, WhenFull
from edge_runtime.durable.outbox.outbox import Outbox
from edge_runtime.durable.outbox.records import (
    DELIVERED,
    TRUSTED_ATTEMPTS,
    Closing,
    Counts,
    DeadLetter,
    HardCase,
    PutResult,
)
from edge_runtime.durable.outbox.recovery import Damage

__all__ = [
    "DELIVERED",
    "TRUSTED_ATTEMPTS",
    "Closing",
    "Counts",
    "Damage",
    "DeadLetter",
    "HardCase",
    "Outbox",
    "OutboxConfig",
    "PutResult",
    "WhenFull",
]
