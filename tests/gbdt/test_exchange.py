"""The connections between the processes that grow trees together, with strangers on their sockets."""

import os
import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sinkprop.gbdt.cluster import mesh as mesh_module
from sinkprop.gbdt.cluster.mesh import Mesh, PeerLost
from sinkprop.gbdt.cluster.worker import _FITS, forget, listen

SECRET = b"s" * 32
SOON = 4.0  # seconds; strangers who are waited for one after the other take longer


def together(function, n):
    threads = [threading.Thread(target=function, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield lambda n: [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]


def connected(servers, *, secrets=None, addresses=None, patience=10.0):
    """The meshes of as many threads as there are servers; in its place, the error of a thread that failed."""
    addresses = addresses or [server.getsockname() for server in servers]
    made = [None] * len(servers)

    def connect(rank):
        secret = SECRET if secrets is None else secrets[rank]
        try:
            made[rank] = Mesh.connect(rank, addresses, servers[rank], secret, patience=patience)
        except PeerLost as error:
            made[rank] = error

    together(connect, len(servers))
    return made


def closed(meshes):
    for mesh in meshes:
        mesh.close()


def test_all_get_what_all_give(servers):
    made, found = connected(servers(3)), [None] * 3
    large = [os.urandom(3_000_000 * i) for i in range(3)]  # more than any buffer takes; of one, nothing

    def gather(rank):
        found[rank] = [made[rank].gather(large[rank], 6_000_000), made[rank].gather(bytes([rank]), 1)]

    together(gather, 3)
    assert all(item == [large, [b"\0", b"\1", b"\2"]] for item in found)
    assert made[2].sent == 2 * (2 * 16 + len(large[2]) + 1)
    closed(made)


def test_arrays_arrive_as_they_were(servers):
    made, found = connected(servers(2)), []
    given = np.arange(6, dtype="<f4").reshape(2, 3)[:, ::-1]

    def send(rank):
        if rank:
            made[1].send_array(0, given)
        else:
            found.append(made[0].receive_array(1, ("<f4", "<f8"), (5, 3)))

    together(send, 2)
    assert found[0].dtype == given.dtype
    assert np.array_equal(found[0], given)
    closed(made)


def test_a_lost_process_is_an_error_in_all_others(servers):
    made, found = connected(servers(3)), [None] * 3

    def gather(rank):
        if rank == 1:
            time.sleep(0.2)
            made[1].close()
            return
        try:
            made[rank].gather(b"x", 1)
        except PeerLost as error:
            found[rank] = error
            made[rank].close()

    together(gather, 3)
    assert isinstance(found[0], PeerLost)
    assert isinstance(found[2], PeerLost)
    with pytest.raises(PeerLost):
        made[0].gather(b"y", 1)


def test_a_process_that_says_nothing_is_waited_for_until_the_fit_ends(servers):
    ended = threading.Event()
    made = connected(servers(2))
    waiting = Mesh(0, made[0]._links, ended.is_set)
    threading.Timer(0.2, ended.set).start()
    began = time.monotonic()
    with pytest.raises(PeerLost, match="the fit has ended"):
        waiting.gather(b"x", 1)
    assert time.monotonic() - began < SOON
    closed(made)


# ---- strangers who connect


def garbage(link):
    link.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(range(256)) * 40)


def silence(link):
    pass


def trickle(link):
    def send():
        try:
            while True:
                link.send(b"t")
                time.sleep(0.3)
        except OSError:
            pass

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize(("behave", "n"), [(garbage, 3), (silence, 3), (trickle, 3), (silence, 200)])
def test_strangers_delay_nobody(servers, behave, n):
    here = servers(3)
    with ExitStack() as stack:

        def intrude():
            with suppress(OSError):  # all processes are connected, and their ports are closed
                for server in here * n:
                    link = stack.enter_context(socket.create_connection(server.getsockname(), timeout=5))
                    behave(link)

        # the sockets take 128 connections each before anybody accepts them: the others come meanwhile
        flood = threading.Thread(target=intrude)
        flood.start()
        if n < 100:
            flood.join()
        began = time.monotonic()
        made = connected(here)
        seconds = time.monotonic() - began
        for server in here:
            server.close()
        flood.join(10)
        assert not flood.is_alive()
    assert [mesh.size for mesh in made] == [3, 3, 3]
    assert seconds < SOON
    closed(made)


@pytest.mark.parametrize("behave", [silence, trickle])
def test_strangers_do_not_prolong_the_wait(servers, behave):
    (server,) = servers(1)
    address = server.getsockname()
    with socket.create_connection(address) as stranger:
        behave(stranger)
        began = time.monotonic()
        with pytest.raises(PeerLost, match="another process of the fit did not connect"):
            Mesh.connect(0, [address, ("127.0.0.1", 1)], server, SECRET, patience=0.8)
        assert time.monotonic() - began < 2.5


def test_nobody_answers(servers):
    (server,) = servers(1)
    with pytest.raises(PeerLost, match=r"nobody answers at 127\.0\.0\.1:1 \(.*refused"):
        Mesh.connect(1, [("127.0.0.1", 1), server.getsockname()], server, SECRET, patience=0.3)


def test_another_secret_is_not_let_in(servers):
    made = connected(servers(2), secrets=[SECRET, b"t" * 32], patience=1.0)
    assert all(isinstance(error, PeerLost) for error in made)


def test_a_stranger_who_answers_in_the_place_of_a_process_gets_nothing(servers):
    """The stranger's challenge is right, but it cannot prove itself."""
    server, impostor = servers(2)
    heard = []

    def answer():
        impostor.settimeout(3)
        link, _ = impostor.accept()
        with link:
            link.settimeout(1)
            link.sendall(b"sinkprop" + bytes(32))
            heard.append(link.recv(1000))
            link.sendall(bytes(32))
            try:
                heard.append(link.recv(1000))
            except OSError as error:
                heard.append(error)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(PeerLost, match="it is not a process of this fit"):
        Mesh.connect(1, [impostor.getsockname(), server.getsockname()], server, SECRET, patience=1.0)
    thread.join(5)
    assert len(heard[0]) == 80
    assert SECRET[:8] not in heard[0]
    assert heard[1] == b""  # the process has hung up


def relay(server, target, record):
    """Pass the bytes of one connection on to another address, both ways, and record those of the caller."""

    def carry(source, sink, keep):
        with suppress(OSError):
            while data := source.recv(4096):
                keep.append(data)
                sink.sendall(data)

    def serve():
        link, _ = server.accept()
        with link, socket.create_connection(target) as onward:
            back = threading.Thread(target=carry, args=(onward, link, []))
            back.start()
            carry(link, onward, record)
            with suppress(OSError):
                onward.shutdown(socket.SHUT_RDWR)
            back.join()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_recorded_greeting_is_of_no_use(servers):
    first, second, between = servers(3)
    record = []
    relayed = relay(between, first.getsockname(), record)
    made = [None, None]

    def connect(rank):
        there = (first if rank == 0 else between).getsockname()
        made[rank] = Mesh.connect(
            rank, [there, second.getsockname()], [first, second][rank], SECRET, patience=5
        )

    together(connect, 2)
    closed(made)
    relayed.join(5)
    greeting = b"".join(record)
    assert len(greeting) == 80
    assert SECRET[:8] not in greeting
    with socket.create_connection(first.getsockname()) as stranger:
        stranger.sendall(greeting)
        with pytest.raises(PeerLost, match="did not connect"):
            Mesh.connect(0, [first.getsockname(), second.getsockname()], first, SECRET, patience=0.5)


# ---- processes that send what is not due


def against(servers, data, ask):
    """Ask a mesh for something while the other side sends these bytes."""
    made = connected(servers(2))
    made[1]._links[0].sendall(data)
    try:
        return ask(made[0])
    finally:
        closed(made)


def framed(size, data=b"", number=0, mark=b"skpr"):
    return struct.pack("<4sIQ", mark, number, size) + data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (framed(1 << 62), r"announced a message of 4611686018427387904 bytes where at most 8 are due"),
        (framed(9, b"123456789"), "announced a message of 9 bytes"),
        (framed(8, b"12345678", number=1), "not the next message"),
        (framed(8, b"12345678", mark=b"HTTP"), "not the next message"),
        (framed(7, b"1234567"), "a part of a number"),
    ],
    ids=["huge", "large", "late", "unmarked", "odd"],
)
def test_messages_that_are_not_due(servers, data, words):
    with pytest.raises(PeerLost, match=words):
        against(servers, data, lambda mesh: mesh.gather_arrays(np.zeros(1), 1))


@pytest.mark.parametrize(
    "description",
    [
        b'{"dtype": "|O", "shape": [1]}',
        b'{"dtype": "<f8", "shape": [1, 1]}',
        b'{"dtype": "<f8", "shape": [4611686018427387904]}',
        b'{"dtype": "<f8", "shape": [-1]}',
        b'{"dtype": "<f8", "shape": [1.0]}',
        b'{"dtype": "<f8", "shape": 1}',
        b'{"dtype": "<f8"}',
        b"\x80\x05K\x01.",
        b"[]",
    ],
)
def test_arrays_that_are_not_due(servers, description):
    data = framed(len(description), description)
    with pytest.raises(PeerLost, match="an array that is not due"):
        against(servers, data, lambda mesh: mesh.receive_array(1, ("<f8",), (3,)))


def test_an_array_with_fewer_bytes_than_announced(servers):
    description = b'{"dtype": "<f8", "shape": [2]}'
    data = framed(len(description), description) + framed(8, b"12345678", number=1)
    with pytest.raises(PeerLost, match="sent 8 bytes of an array of 16"):
        against(servers, data, lambda mesh: mesh.receive_array(1, ("<f8",), (3,)))


def test_nothing_between_processes_is_pickled():
    folder = Path(mesh_module.__file__).parent
    for word in ("pickle", "marshal", "shelve"):
        assert [path.name for path in folder.glob("*.py") if word in path.read_text()] == []


def test_a_worker_listens_at_its_own_address_only():
    worker = SimpleNamespace(address="tcp://127.0.0.1:40001")
    try:
        (host, port), _ = listen("test", 2, dask_worker=worker)
        assert host == "127.0.0.1"
        socket.create_connection((host, port), timeout=1).close()
        with pytest.raises(OSError, match=r"refused|timed out"):  # another address of the same machine
            socket.create_connection(("127.0.0.2", port), timeout=1)
    finally:
        forget("test")
    assert "test" not in _FITS


def test_a_worker_that_cannot_listen_at_its_address_says_so():
    worker = SimpleNamespace(address="tcp://192.0.2.1:40001")  # an address that no machine has
    try:
        with pytest.raises(ValueError, match=r"^192\.0\.2\.1: Cannot assign requested address"):
            listen("test", 1, dask_worker=worker)
    finally:
        forget("test")


def test_a_port_for_a_task_that_never_starts_is_closed(monkeypatch):
    monkeypatch.setattr("sinkprop.gbdt.cluster.worker._UNUSED", 0.1)
    (address,) = listen("test", 1, dask_worker=SimpleNamespace(address="tcp://127.0.0.1:40001"))
    deadline = time.monotonic() + 10
    while "test" in _FITS:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)
