"""Frames as a sender makes them: COBS and CRC-16, by their papers."""

from __future__ import annotations

import binascii
import struct


def stuffed(message: bytes) -> bytes:
    """COBS by the paper's definition: each run of up to 254 non-zero bytes behind its length plus one."""
    out = bytearray()
    runs = message.split(b"\0")
    for number, run in enumerate(runs):
        while len(run) >= 254:
            out += b"\xff" + run[:254]
            run = run[254:]  # noqa: PLW2901
            if not run and number == len(runs) - 1:
                break
        else:
            out += bytes([len(run) + 1]) + run
    return bytes(out) + b"\0"


def crc16(message: bytes) -> bytes:
    return message + struct.pack("<H", binascii.crc_hqx(message, 0))
