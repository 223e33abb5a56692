"""Many clients of one kind in a process: ``crowd.py PORT KIND NUMBER``; orders come on standard input.

Standard library only. Each order is answered with a line of JSON.

    kept    connections that stay; "all": each asks once, "new": as many new connections ask once
    silent  connections that never send a byte
    drip    "start": each sends a byte of its headers every second
    bodies  a number: new connections announce a body of so many bytes, and send all but one
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

PATIENCE_S = 120.0
REQUEST = b"GET /v2/models/tiny/ready HTTP/1.1\r\nHost: fleet\r\n\r\n"
SLOW = b"GET /v2/models/tiny/ready HTTP/1.1\r\nHost: fleet\r\nX-Slow: " + b"x" * 10_000


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def asked(sock: socket.socket) -> bool:
    """Whether a request on this connection gets its answer."""
    try:
        sock.sendall(REQUEST)
        return sock.recv(65536).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def asked_anew(port: int) -> bool:
    with connect(port) as sock:
        return asked(sock)


def asked_together(socks: list[socket.socket]) -> int:
    """All of them ask, then all of them read."""
    for sock in socks:
        sock.sendall(REQUEST)
    return sum(sock.recv(65536).startswith(b"HTTP/1.1 200 ") for sock in socks)


def drip(socks: list[socket.socket]) -> None:
    for at in range(len(SLOW)):
        for sock in list(socks):
            try:
                sock.send(SLOW[at : at + 1])
            except OSError:  # cut off, as it should be: its place is taken by the next one
                socks.remove(sock)
        time.sleep(1.0)


def send_bodies(port: int, number: int, length: int) -> dict[str, int]:
    """Announce and send; what is refused, and how many bytes went out."""
    head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: fleet\r\nContent-Length: {length}\r\n\r\n".encode()
    refused = sent = 0
    for _ in range(number):
        sock = connect(port)
        KEPT.append(sock)
        sock.sendall(head)
        if length > 1_000_000:
            refused += sock.recv(100).startswith(b"HTTP/1.1 413 ")
            continue
        sock.sendall(b" " * (length - 1))
        sent += length - 1
    return {"refused": refused, "sent": sent}


KEPT: list[socket.socket] = []


def main() -> None:
    port, kind, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    socks = [] if kind == "bodies" else [connect(port) for _ in range(number)]
    print(json.dumps({"ready": number}), flush=True)
    for order in map(str.strip, sys.stdin):
        if kind == "kept":
            answered = asked_together(socks) if order == "all" else sum(asked_anew(port) for _ in range(number))
            answer = {"answered": answered}
        elif kind == "drip":
            threading.Thread(target=drip, args=(socks,), daemon=True).start()
            answer = {}
        else:
            answer = send_bodies(port, number, int(order))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
