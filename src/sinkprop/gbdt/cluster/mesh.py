"""Connections between the processes that grow trees together, over which LightGBM's sums are exchanged.

With LightGBM's own sockets, the loss of one process makes the others wait forever, or end. So this module
provides functions that LightGBM calls instead to sum histograms over the processes. If a process is lost, all
others raise an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from sinkprop.common.types import Floats, Singles
from sinkprop.gbdt.boosters import lightgbm_module

__all__ = ["Mesh", "PeerLost", "on_a_grid", "rounded"]


_Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)
_GREETING = struct.Struct("<16si")
_SILENCE = 30  # seconds without an answer after which a machine with an open connection counts as lost

_Sizes = ctypes.POINTER(ctypes.c_int)
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
_ReduceScatter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, _Sizes, _Sizes, ctypes.c_int,
    ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_Allgather = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, _Sizes, _Sizes, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)


class PeerLost(ConnectionError):  # noqa: N818  # not named "Error": this process made no mistake
    """Another process of the fit was lost."""


class Mesh:
    """Connections from this process to all other processes of a fit.

    The processes are numbered from 0; `rank` is the number of this process. `sent` counts the bytes sent to
    the others. After the loss of a process, LightGBM's requests are answered as if this process were alone,
    so that LightGBM's call returns; `check` then raises `PeerLost`.
    """

    def __init__(self, rank: int, links: Mapping[int, socket.socket]) -> None:
        self.rank, self.size = rank, len(links) + 1
        self._links = dict(links)
        self._lost: PeerLost | None = None
        self._lock = threading.Lock()
        self.sent = 0
        for link in self._links.values():
            _prepare(link)

    @staticmethod
    def connect(
        rank: int,
        addresses: Sequence[tuple[str, int]],
        listener: socket.socket,
        token: bytes,
        *,
        patience: float = 120.0,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Mesh:
        """Connect to the processes at these addresses; `listener` listens at the address of this process.

        token     Secret of 16 bytes that only the processes of the fit have.
        patience  Seconds to wait for all processes to connect.
        given_up  Function that says whether to stop waiting.
        """
        links: dict[int, socket.socket] = {}
        deadline = time.monotonic() + patience
        try:
            for peer in range(rank):
                links[peer] = _call(addresses[peer], deadline, given_up)
                links[peer].sendall(_GREETING.pack(token, rank))
            while len(links) < len(addresses) - 1:
                link, peer = _answer(listener, token, deadline, given_up)
                links[peer] = link
        except BaseException:
            for link in links.values():
                link.close()
            raise
        return Mesh(rank, links)

    def close(self) -> None:
        """Close all connections. Pending transfers then fail, in this process and in the others."""
        with self._lock:
            for link in self._links.values():
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
                link.close()

    def end(self) -> None:
        """Shut down the connections without closing them; any thread may call it.

        A thread that is waiting for a transfer then fails, and closes the connections itself.
        """
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def check(self) -> None:
        """Raise `PeerLost` if a process was lost."""
        if self._lost is not None:
            raise self._lost

    def gather(self, data: bytes) -> list[bytes]:
        """Send `data` to all other processes; returns the data of every process, in order of rank."""
        self.check()
        sizes = [bytearray(8) for _ in range(self.size)]
        own = struct.pack("<q", len(data))
        self._exchange(dict.fromkeys(self._links, memoryview(own)), self._views(sizes))
        found = [
            bytearray(struct.unpack("<q", size)[0] if i != self.rank else 0) for i, size in enumerate(sizes)
        ]
        self._exchange(dict.fromkeys(self._links, memoryview(data)), self._views(found))
        return [data if i == self.rank else bytes(item) for i, item in enumerate(found)]

    def gather_arrays(self, values: Floats) -> list[Floats]:
        """Like `gather`, for arrays of floats; their lengths may differ between the processes."""
        return [
            np.frombuffer(item) for item in self.gather(np.ascontiguousarray(values, np.float64).tobytes())
        ]

    def send(self, peer: int, data: bytes | memoryview) -> None:
        """Send bytes to process `peer`, which must call `receive`."""
        self.check()
        self._exchange({peer: memoryview(struct.pack("<q", len(data)))}, {})
        self._exchange({peer: memoryview(data)}, {})

    def receive(self, peer: int) -> bytearray:
        """Receive the bytes that process `peer` sends by `send`."""
        self.check()
        size = bytearray(8)
        self._exchange({}, {peer: memoryview(size)})
        data = bytearray(struct.unpack("<q", size)[0])
        self._exchange({}, {peer: memoryview(data)})
        return data

    def _views(self, buffers: Sequence[bytearray]) -> dict[int, memoryview]:
        return {peer: memoryview(buffers[peer]) for peer in self._links}

    def _exchange(self, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None:
        """Send out[i] to each process i, and fill the buffer into[i] with the bytes that process i sends."""
        leaving = {peer: view for peer, view in out.items() if len(view)}
        coming = {peer: view for peer, view in into.items() if len(view)}
        self.sent += sum(map(len, leaving.values()))
        try:
            while True:
                for peer, view in list(leaving.items()):
                    if not len(rest := view[self._send(peer, view) :]):
                        del leaving[peer]
                    else:
                        leaving[peer] = rest
                for peer, view in list(coming.items()):
                    if not len(rest := view[self._receive(peer, view) :]):
                        del coming[peer]
                    else:
                        coming[peer] = rest
                if not leaving and not coming:
                    return
                self._wait(leaving, coming)
        except (OSError, ValueError) as error:  # the connection was reset, or closed in this process
            if self._lost is None:
                self._lost = (
                    error if isinstance(error, PeerLost) else PeerLost(f"a connection broke: {error}")
                )
            self.close()
            raise self._lost from None

    def _send(self, peer: int, view: memoryview) -> int:
        try:
            return self._links[peer].send(view)
        except BlockingIOError:
            return 0

    def _receive(self, peer: int, view: memoryview) -> int:
        try:
            n = self._links[peer].recv_into(view)
        except BlockingIOError:
            return 0
        if n == 0:
            raise PeerLost(f"process {peer} of the fit closed its connection")
        return n

    def _wait(self, leaving: Mapping[int, Any], coming: Mapping[int, Any]) -> None:
        with _Selector() as selector:
            for peer in {*leaving, *coming}:
                events = (selectors.EVENT_WRITE if peer in leaving else 0) | (
                    selectors.EVENT_READ if peer in coming else 0
                )
                selector.register(self._links[peer], events)
            selector.select()

    @contextlib.contextmanager
    def lightgbm(self) -> Iterator[None]:
        """Context in which LightGBM, in this thread, sums over all processes through these connections."""
        basic = lightgbm_module().basic
        functions = _ReduceScatter(self._reduce_scatter), _Allgather(self._allgather)
        pointers = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
        basic._safe_call(basic._LIB.LGBM_NetworkInitWithFunctions(self.size, self.rank, *pointers))
        try:
            yield
        finally:
            basic._safe_call(basic._LIB.LGBM_NetworkFree())

    def _reduce_scatter(
        self,
        given: int,
        given_size: int,
        type_size: int,
        starts: Any,
        sizes: Any,
        n: int,
        output: int,
        output_size: int,
        reducer: Any,
    ) -> None:
        """Sum the inputs of all processes, and write this process's block of the sum to `output`.

        LightGBM calls it in every process. The input of a process starts at the address `given` and has one
        block per process: block i has sizes[i] bytes and starts at byte starts[i]. `reducer` points to
        LightGBM's function that adds two blocks. Blocks are added in order of the rank of their process.
        """
        own, size = given + starts[self.rank], sizes[self.rank]
        if self._lost is None:
            blocks = {peer: _view(given + starts[peer], sizes[peer]) for peer in self._links}
            came = {peer: bytearray(size) for peer in self._links}
            with contextlib.suppress(PeerLost):
                self._exchange(blocks, {peer: memoryview(data) for peer, data in came.items()})
                add = _Reduce(reducer[0])
                places = {
                    peer: ctypes.addressof(ctypes.c_char.from_buffer(came[peer])) for peer in came if size
                }
                places[self.rank] = own
                for peer in range(1, n if size else 0):
                    add(places[peer], places[0], type_size, size)
                ctypes.memmove(output, places[0], size)
                return
        ctypes.memmove(output, own, size)

    def _allgather(
        self, given: int, given_size: int, starts: Any, sizes: Any, n: int, output: int, output_size: int
    ) -> None:
        """Send this process's block to all others, and write the blocks of all processes to `output`.

        LightGBM calls it in every process. The block of this process starts at the address `given`. In the
        output, the block of process i has sizes[i] bytes and starts at byte starts[i].
        """
        own = ctypes.string_at(given, sizes[self.rank])  # copy the input, because it may overlap the output
        ctypes.memmove(output + starts[self.rank], own, len(own))
        if self._lost is None:
            into = {peer: _view(output + starts[peer], sizes[peer]) for peer in self._links}
            with contextlib.suppress(PeerLost):
                self._exchange(dict.fromkeys(self._links, memoryview(own)), into)
                return
        for peer in self._links:
            alike = own if sizes[peer] == len(own) else bytes(sizes[peer])
            ctypes.memmove(output + starts[peer], alike, len(alike))

    def __enter__(self) -> Mesh:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _view(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(b"")


def _prepare(link: socket.socket) -> None:
    """Set socket options: send small messages without delay, and fail if the other machine stays silent."""
    link.setblocking(False)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _SILENCE // 3),
        ("TCP_KEEPINTVL", _SILENCE // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 1000 * _SILENCE),
    ):
        if hasattr(socket, name):  # not every operating system has these options
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _call(address: tuple[str, int], deadline: float, given_up: Callable[[], bool]) -> socket.socket:
    """Connect to the process at an address, trying again until the deadline."""
    while True:
        try:
            return socket.create_connection(address, timeout=5)
        except OSError as error:
            if time.monotonic() > deadline or given_up():
                raise PeerLost(f"nobody answers at {address[0]}:{address[1]} ({error})") from None
        time.sleep(0.05)


def _answer(
    listener: socket.socket, token: bytes, deadline: float, given_up: Callable[[], bool]
) -> tuple[socket.socket, int]:
    """Accept a connection from a process with the token; returns the connection and that process's rank."""
    listener.settimeout(0.2)
    while True:
        try:
            link, _ = listener.accept()
        except TimeoutError:
            if time.monotonic() > deadline or given_up():
                raise PeerLost("another process of the fit did not connect") from None
            continue
        link.settimeout(5)
        greeting = b""
        with contextlib.suppress(OSError):
            while len(greeting) < _GREETING.size and (part := link.recv(_GREETING.size - len(greeting))):
                greeting += part
        if len(greeting) == _GREETING.size:
            given, peer = _GREETING.unpack(greeting)
            if given == token:
                return link, peer
        link.close()  # the connection is not from a process of this fit


def on_a_grid(values: Singles, largest: float, n: int) -> Singles:
    """Round values to multiples of a power of 2 that makes sums of up to n of them exact in 64-bit floats.

    Their sum is then the same in any order and over any number of processes. `largest` is the largest
    absolute value of all processes. For n below 2**28, values near `largest` do not change, because 32-bit
    floats of that size already are such multiples.

    >>> on_a_grid(np.array([1.0, 0.375, 2.0**-45], np.float32), 1.0, 1000)
    array([1.   , 0.375, 0.   ], dtype=float32)
    """
    if not largest > 0:
        return values
    step = 2.0 ** (math.frexp(largest)[1] + int(n).bit_length() - 53)
    wide: Floats = values.astype(np.float64) / step
    return (np.rint(wide, out=wide) * step).astype(np.float32)


def rounded(
    derivatives: Callable[[Floats], tuple[Singles, Singles]], mesh: Mesh, n: int
) -> Callable[[Floats], tuple[Singles, Singles]]:
    """Make a function that computes derivatives and rounds them by `on_a_grid`.

    All processes round to multiples of the same number. Sums of the rounded derivatives are therefore exact,
    and do not depend on the number of processes.

    n  Number of documents of all processes.
    """

    def evaluated(scores: Floats) -> tuple[Singles, Singles]:
        gradient, hessian = derivatives(scores)
        own = np.array([np.abs(gradient).max(initial=0), hessian.max(initial=0)], dtype=np.float64)
        most = np.max(mesh.gather_arrays(own), axis=0)
        return on_a_grid(gradient, most[0], n), on_a_grid(hessian, most[1], n)

    return evaluated
