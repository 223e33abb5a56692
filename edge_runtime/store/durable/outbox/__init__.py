"""The durable outbox: hard cases wait here for the cloud, over restarts, power cuts and full disks.

::

    records         what goes in and comes out
    outbox          Outbox: put, take, ack, dead letters
    adopting        an Outbox that sends what others left, too
    queries         the statements behind them
    session         one open file: lock, transactions, healing after errors
    path_checks     paths that can never be a store's
    open_db         creation, checks, upgrade
    recovery        damaged files: set aside, readable cases carried over
    closings        ends of cases: what consumers are told, and what repeats are told again
    read_only_copy  looking into an outbox that another process owns
    control         asking its owner to retry or drop dead letters
    schema          tables, ledger, checksums

The only package that knows SQL.
"""

from __future__ import annotations

from edge_runtime.store.durable.config import OutboxConfig, WhenFull
from edge_runtime.store.durable.outbox.outbox import Outbox
from edge_runtime.store.durable.outbox.records import (
    DELIVERED,
    TRUSTED_ATTEMPTS,
    Closing,
    DeadLetter,
    HardCase,
    OutboxCounts,
    PutResult,
)
from edge_runtime.store.durable.outbox.recovery import Damage

__all__ = [
    "DELIVERED",
    "TRUSTED_ATTEMPTS",
    "Closing",
    "Damage",
    "DeadLetter",
    "HardCase",
    "Outbox",
    "OutboxConfig",
    "OutboxCounts",
    "PutResult",
    "WhenFull",
]
