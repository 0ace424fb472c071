"""Connections between the processes that grow trees together, over which LightGBM's sums are exchanged.

With LightGBM's own sockets, the loss of one process makes the others wait forever, or end. So this module
provides functions that LightGBM calls instead to sum histograms over the processes. If a process is lost, all
others raise an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats, Singles
from sinkprop.gbdt.boosters import lightgbm_module
from sinkprop.gbdt.cluster.greeting import PeerLost, Selector, connections

__all__ = ["Mesh", "PeerLost", "on_a_grid", "rounded"]


_SILENCE = 30  # seconds without an answer after which a machine with an open connection counts as lost
_WAKE = 1.0  # seconds between two checks whether the fit has ended
_HEADER = struct.Struct("<4sIQ")  # mark, number of the message on this connection, size of the message
_MARK = b"skpr"
_SMALL = 1 << 14  # messages up to this size are sent together with their header
_DESCRIPTION = 256  # maximum size of the description of an array

_Sizes = ctypes.POINTER(ctypes.c_int)
_Reduce = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
_ReduceScatter = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, _Sizes, _Sizes, ctypes.c_int,
    ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_Allgather = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, _Sizes, _Sizes, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)


class _Incoming:
    """A message that is being received from a process.

    It begins with a header, which is checked before any memory is allocated for the message.

    peer    Rank of that process.
    number  Number of the message on the connection.
    most    Maximum size of the message in bytes.
    exact   Buffer that the message must fill; None if the message may have any size up to `most`.
    """

    def __init__(self, peer: int, number: int, most: int, exact: memoryview | None = None) -> None:
        self._peer, self._number, self._most, self._exact = peer, number, most, exact
        self._header = bytearray(_HEADER.size)
        self.rest = memoryview(self._header)
        self.data = memoryview(b"")
        self._begun = False

    def advance(self, n: int) -> bool:
        """Record that the first n bytes of `rest` have arrived; returns whether the message is complete."""
        self.rest = self.rest[n:]
        if not len(self.rest) and not self._begun:
            self.data, self._begun = self._body(), True
            self.rest = self.data
        return not len(self.rest)

    def _body(self) -> memoryview:
        mark, number, size = _HEADER.unpack(self._header)
        if mark != _MARK or number != self._number:
            raise PeerLost(f"process {self._peer} of the fit sent bytes that are not the next message")
        if size > self._most or (self._exact is not None and size != len(self._exact)):
            allowed = f"{'at most ' if self._exact is None else ''}{self._most}"
            raise PeerLost(
                f"process {self._peer} of the fit announced a message of {size} bytes where {allowed} are due"
            )
        return memoryview(bytearray(size)) if self._exact is None else self._exact


class Mesh:
    """Connections from this process to all other processes of a fit.

    The processes are numbered from 0; `rank` is the number of this process. `sent` counts the bytes sent to
    the others. After the loss of a process, LightGBM's requests are answered as if this process were alone,
    so that LightGBM's call returns; `check` then raises `PeerLost`.
    """

    def __init__(
        self, rank: int, links: Mapping[int, socket.socket], given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self.rank, self.size = rank, len(links) + 1
        self._links = dict(links)
        self._given_up = given_up
        self._numbers = {peer: [0, 0] for peer in links}  # messages sent to and received from each process
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
        secret: bytes,
        *,
        patience: float = 120.0,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Mesh:
        """Connect to the processes at these addresses; `listener` listens at the address of this process.

        secret    Secret that only the processes of the fit have.
        patience  Seconds to wait for all processes to connect.
        given_up  Function that says whether to stop waiting, here and later for messages.
        """
        links = connections(rank, addresses, listener, secret, patience=patience, given_up=given_up)
        return Mesh(rank, links, given_up)

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

    def gather(self, data: bytes, most: int) -> list[bytes]:
        """Send `data` to all other processes; returns the data of every process, in order of rank.

        most  Maximum size in bytes of the data of a process.
        """
        self.check()
        found = self._exchange(dict.fromkeys(self._links, memoryview(data)), dict.fromkeys(self._links, most))
        return [data if i == self.rank else bytes(found[i]) for i in range(self.size)]

    def gather_arrays(self, values: Floats, most: int) -> list[Floats]:
        """Like `gather`, for arrays of at most `most` floats; their lengths may differ."""
        found = self.gather(np.ascontiguousarray(values, np.float64).tobytes(), 8 * most)
        if any(len(item) % 8 for item in found):
            raise PeerLost("a process of the fit sent a part of a number")
        return [np.frombuffer(item) for item in found]

    def send(self, peer: int, data: bytes | memoryview) -> None:
        """Send bytes to process `peer`, which must call `receive`."""
        self.check()
        self._exchange({peer: memoryview(data)}, {})

    def receive(self, peer: int, most: int) -> memoryview:
        """Receive the bytes, at most `most` of them, that process `peer` sends by `send`."""
        self.check()
        return self._exchange({}, {peer: most})[peer]

    def send_array(self, peer: int, values: NDArray[Any]) -> None:
        """Send an array to process `peer`, which must call `receive_array`."""
        description = {"dtype": values.dtype.str, "shape": values.shape}
        self.send(peer, json.dumps(description).encode())
        self.send(peer, np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def receive_array(self, peer: int, types: Sequence[str], most: tuple[int, ...]) -> NDArray[Any]:
        """Receive the array that process `peer` sends by `send_array`.

        types  Permitted types of its items.
        most   Maximum length of each of its dimensions.
        """
        text = bytes(self.receive(peer, _DESCRIPTION))
        try:
            description = json.loads(text)
            dtype, shape = description["dtype"], description["shape"]
            permitted = (
                dtype in types
                and len(shape) == len(most)
                and all(type(n) is int and 0 <= n <= limit for n, limit in zip(shape, most, strict=True))
            )
        except (ValueError, KeyError, TypeError):
            permitted = False
        if not permitted:
            raise PeerLost(f"process {peer} of the fit announced an array that is not due: {text!r}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        data = self.receive(peer, size)
        if len(data) != size:
            raise PeerLost(f"process {peer} of the fit sent {len(data)} bytes of an array of {size}")
        return np.frombuffer(data, dtype).reshape(shape)

    def _exchange(
        self, out: Mapping[int, memoryview], into: Mapping[int, int | memoryview]
    ) -> dict[int, memoryview]:
        """Send the message out[i] to each process i, and receive one from each process in `into`.

        into[i] is the maximum size of the message from process i, or a buffer that it must fill. Returns the
        messages by rank.
        """
        leaving = {peer: self._framed(peer, view) for peer, view in out.items()}
        coming = {peer: self._incoming(peer, due) for peer, due in into.items()}
        pending = dict(coming)
        self.sent += sum(len(part) for parts in leaving.values() for part in parts)
        try:
            while True:
                for peer, parts in list(leaving.items()):
                    parts[0] = parts[0][self._send(peer, parts[0]) :]
                    while parts and not len(parts[0]):
                        del parts[0]
                    if not parts:
                        del leaving[peer]
                for peer, message in list(pending.items()):
                    if message.advance(self._receive(peer, message.rest)):
                        del pending[peer]
                if not leaving and not pending:
                    return {peer: message.data for peer, message in coming.items()}
                self._wait(leaving, pending)
        except (OSError, ValueError) as error:  # the connection was reset, or closed in this process
            if self._lost is None:
                self._lost = (
                    error if isinstance(error, PeerLost) else PeerLost(f"a connection broke: {error}")
                )
            self.close()
            raise self._lost from None

    def _framed(self, peer: int, data: memoryview) -> list[memoryview]:
        """Return the parts of a message to be sent one after the other: header and data."""
        numbers = self._numbers[peer]
        header = _HEADER.pack(_MARK, numbers[0], len(data))
        numbers[0] = (numbers[0] + 1) % (1 << 32)
        if len(data) <= _SMALL:
            return [memoryview(header + data)]
        return [memoryview(header), data]

    def _incoming(self, peer: int, due: int | memoryview) -> _Incoming:
        numbers = self._numbers[peer]
        number, numbers[1] = numbers[1], (numbers[1] + 1) % (1 << 32)
        if isinstance(due, int):
            return _Incoming(peer, number, due)
        return _Incoming(peer, number, len(due), due)

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
        """Wait until one of these connections is ready."""
        with Selector() as selector:
            for peer in {*leaving, *coming}:
                events = (selectors.EVENT_WRITE if peer in leaving else 0) | (
                    selectors.EVENT_READ if peer in coming else 0
                )
                selector.register(self._links[peer], events)
            while not selector.select(_WAKE):
                if self._given_up():
                    raise PeerLost("the fit has ended")

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
        most = np.max(mesh.gather_arrays(own, 2), axis=0)
        return on_a_grid(gradient, most[0], n), on_a_grid(hessian, most[1], n)

    return evaluated
