"""The shared socket: who sees what, and what is left of it when the kernel takes little."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.io.mqtt import transport as transport_module
from edge_runtime.io.mqtt.packets import PINGRESP, V5, V311, Item, MalformedPacket, encode_pingresp, encode_publish
from edge_runtime.io.mqtt.transport import OVERSIZE, SkippingParser, Transport, decode_oversize


@pytest.fixture
def pair() -> Iterator[tuple[Transport, socket.socket]]:
    ours, theirs = socket.socketpair()
    transport = Transport(ours, V311, 1000)
    transport.setblocking(False)
    with theirs:
        yield transport, theirs
    transport.close()


def test_control_packets_reach_paho_when_they_are_handed_over(pair: tuple[Transport, socket.socket]) -> None:
    transport, theirs = pair
    theirs.sendall(encode_pingresp() + encode_publish(b"t", b"hello"))
    (ping, publish), more = transport.read()
    assert (ping, publish[:2], more) == ((PINGRESP, b""), (b"t", b"hello"), False)
    with pytest.raises(BlockingIOError):
        transport.recv(1)
    transport.hand_over((PINGRESP, b""))
    transport.hand_over((0x90, bytes(300)))
    assert transport.recv(2) == encode_pingresp()
    assert transport.recv(1000) == b"\x90\xac\x02" + bytes(300)
    with pytest.raises(BlockingIOError):
        transport.recv(1)
    transport.end()
    assert transport.recv(1) == b""


def test_nothing_to_read_is_no_packet_and_an_end_is_an_error(pair: tuple[Transport, socket.socket]) -> None:
    transport, theirs = pair
    assert transport.read() == ([], False)
    theirs.close()
    with pytest.raises(ConnectionError):
        transport.read()


@pytest.mark.parametrize(("waiting", "read", "more"), [(9, 9, False), (40, 40, False), (100, 80, True)])
def test_a_flood_is_read_in_several_pieces(
    waiting: int, read: int, more: bool, pair: tuple[Transport, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "RECEIVE_BYTES", 160)
    monkeypatch.setattr(transport_module, "FLOOD_BYTES", 640)
    transport, theirs = pair
    message = encode_publish(b"t", b"hi!")
    assert len(message) == 8
    theirs.sendall(message * waiting)
    items, waits = transport.read()
    assert (len(items), waits) == (read, more)


def test_packets_of_both_sides_leave_in_order_and_joined(pair: tuple[Transport, socket.socket]) -> None:
    transport, theirs = pair
    assert transport.send(bytearray(b"paho")) == 4
    transport.write(b"ours")
    assert transport.unsent == 8
    assert transport.flush()
    assert transport.flush()
    assert theirs.recv(100) == b"paho" + b"ours"
    assert (transport.offered, transport.written, transport.unsent) == (8, 8, 0)


def test_what_the_kernel_does_not_take_waits(pair: tuple[Transport, socket.socket]) -> None:
    transport, theirs = pair
    parts = [bytes([i]) * 100_000 for i in range(40)]
    for part in parts:
        transport.write(part)
    assert not transport.flush()
    assert 0 < transport.written < transport.offered == 4_000_000
    transport.write(b"end")
    received = bytearray()
    theirs.setblocking(False)
    while not transport.flush():
        received += theirs.recv(2**20)
    theirs.setblocking(True)
    while len(received) < 4_000_003:
        received += theirs.recv(2**20)
    assert received == b"".join(parts) + b"end"


def test_closing_sends_what_waits(pair: tuple[Transport, socket.socket]) -> None:
    transport, theirs = pair
    transport.send(b"\xe0\x00")
    transport.close()
    assert theirs.recv(10) == b"\xe0\x00"
    assert theirs.recv(10) == b""


@given(st.data())
def test_skipping_gives_the_same_around_a_large_message_however_it_is_cut(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([V311, V5]))
    wanted: list[Item] = []
    stream = b""
    for i in range(data.draw(st.integers(1, 6))):
        qos = data.draw(st.integers(0, 2))
        topic = b"topic" * data.draw(st.integers(1, 40))
        size = data.draw(st.sampled_from([0, 5, 100, 790, 1500, 20_000]))
        packet = encode_publish(topic, bytes(size), qos, i + 1 if qos else 0, version=version)
        stream += packet
        if len(packet) <= 1000:
            wanted.append((topic, bytes(size), i + 1 if qos else 0, qos, 0, None))
        else:
            wanted.append((topic, b"", i + 1 if qos else 0, qos, 0, None))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    parser = SkippingParser(version, 1000)
    got: list[Item] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += parser.feed(stream[start:end])
        assert parser.pending_bytes <= 1000
    assert [decode_oversize(item[1]) if item[0] == OVERSIZE else item for item in got] == wanted


def test_only_messages_are_skipped() -> None:
    with pytest.raises(MalformedPacket, match="over the limit"):
        SkippingParser(V311, 1000).feed(b"\x90\x80\x10" + bytes(2048))
    with pytest.raises(MalformedPacket, match="cut short"):
        SkippingParser(V311, 1000).feed(b"\x30\x80\x10\xff\xff" + bytes(2046) + bytes(70_000))


def test_the_last_acknowledgements_arrive_although_unread_messages_lie_in_the_socket() -> None:
    """A broker in full flood: without the farewell its next write fails, and it reads nothing more."""
    heard = bytearray()
    failures: list[OSError] = []

    def flood(theirs: socket.socket) -> None:
        with theirs:
            try:
                theirs.sendall(encode_publish(b"t", bytes(1000)) * 4000)
                while data := theirs.recv(1000):
                    heard.extend(data)
            except OSError as error:
                failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        broker = threading.Thread(target=flood, args=(listener.accept()[0],))
        broker.start()
        transport = Transport(ours, V311, 1000)
        transport.setblocking(False)
        transport.write(encode_pingresp() * 20)
        transport.farewell_s = 30.0
        transport.close()
        broker.join()
    assert (bytes(heard), failures) == (encode_pingresp() * 20, [])
