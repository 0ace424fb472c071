"""Connections to the other processes of a fit, made only after both sides have proved that they belong to it.

The processes share a secret, which they got from Dask and which they never send to each other. The process
that accepts a connection sends a random number. The one that called answers with its rank, a random number of
its own and a proof, which is the HMAC-SHA256 of both numbers, both ranks and the direction. Then the first
proves itself in the same way. All connections are made at the same time, so that a stranger who stays silent
delays nobody.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

__all__ = ["PeerLost", "Selector", "connections", "listening_socket"]


Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)

_MAGIC = b"sinkprop"
_NONCE, _PROOF = 32, 32  # bytes
_REPLY = struct.Struct(f"<8sII{_NONCE}s{_PROOF}s")
_CALL, _ANSWER = b"call", b"answer"  # directions
_HALF_OPEN = 64  # accepted connections whose greeting may be incomplete, if the fit has no more processes
_GREETING = 5.0  # seconds after which an incomplete greeting is given up, however many bytes arrive
_RETRY = 0.05  # seconds between two calls of the same process
_WAKE = 0.2  # seconds between two checks whether the fit has ended

# A dialog yields (bytes to send, number of bytes to receive then) and returns the rank of the other process,
# or None for a stranger.
_Dialog: TypeAlias = Generator[tuple[bytes, int], bytes, int | None]


class PeerLost(ConnectionError):  # noqa: N818  # not named "Error": this process made no mistake
    """Another process of the fit was lost."""


def listening_socket(host: str) -> socket.socket:
    """Socket that listens at a free port of one address of this machine."""
    (family, *_), *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    return socket.create_server((host, 0), family=family, backlog=128)


def connections(
    rank: int,
    addresses: Sequence[tuple[str, int]],
    listener: socket.socket,
    secret: bytes,
    *,
    patience: float,
    given_up: Callable[[], bool],
) -> dict[int, socket.socket]:
    """Connect to all other processes of a fit; returns {rank: connection}.

    Each process calls those of lower rank. Raises `PeerLost` if a connection is missing at the end.

    rank       Number of this process.
    addresses  Host and port of every process.
    listener   Socket that listens at the address of this process.
    secret     Secret that only the processes of the fit have.
    patience   Seconds to wait for all connections together.
    given_up   Function that says whether to stop waiting.
    """
    with contextlib.closing(_Connecting(rank, addresses, listener, secret)) as connecting:
        return connecting.run(time.monotonic() + patience, given_up)


class _Greeting:
    """A connection on which a dialog is under way.

    peer      Rank of the process that was called; None if the connection was accepted.
    deadline  Time at which the greeting is given up.
    """

    def __init__(self, link: socket.socket, dialog: _Dialog, peer: int | None) -> None:
        self.link, self.peer = link, peer
        self.deadline = time.monotonic() + _GREETING
        self._dialog = dialog
        self._out, self._wanted = next(dialog)
        self._came = b""

    @property
    def events(self) -> int:
        return selectors.EVENT_WRITE if self._out else selectors.EVENT_READ

    def step(self) -> tuple[bool, int | None]:
        """Send and receive all that is possible now; returns whether the dialog has ended, and its result."""
        try:
            while True:
                if self._out:
                    self._out = self._out[self.link.send(self._out) :]
                elif len(self._came) < self._wanted:
                    part = self.link.recv(self._wanted - len(self._came))
                    if not part:
                        raise ConnectionError("it closed the connection")
                    self._came += part
                else:
                    came, self._came = self._came, b""
                    self._out, self._wanted = self._dialog.send(came)
        except BlockingIOError:
            return False, None
        except StopIteration as end:
            return True, end.value


class _Connecting:
    """All connections of one process while they are being made."""

    def __init__(
        self, rank: int, addresses: Sequence[tuple[str, int]], listener: socket.socket, secret: bytes
    ) -> None:
        self._rank, self._addresses, self._listener, self._secret = rank, addresses, listener, secret
        self._links: dict[int, socket.socket] = {}
        self._call_at = dict.fromkeys(range(rank), 0.0)  # time of the next call, for processes not yet called
        self._errors: dict[int, str] = {}
        self._selector = Selector()

    def close(self) -> None:
        """Close everything but the connections that `run` has returned."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.fileobj.close()
        for link in self._links.values():
            link.close()
        self._selector.close()

    def run(self, deadline: float, given_up: Callable[[], bool]) -> dict[int, socket.socket]:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while len(self._links) < len(self._addresses) - 1:
            now = time.monotonic()
            if now > deadline or given_up():
                raise self._missing()
            for peer in [peer for peer, at in self._call_at.items() if at <= now]:
                self._call(peer)
            for greeting in self._greetings():
                if greeting.deadline < now:
                    self._give_up(greeting, "its greeting is incomplete")
            wake = min(now + _WAKE, deadline, *self._call_at.values())
            for key, _ in self._selector.select(max(0.0, wake - now)):
                if key.data is None:
                    self._accept()
                elif key.fileobj.fileno() >= 0:  # not closed since by `_accept`
                    self._step(key.data)
        links, self._links = self._links, {}
        return links

    def _greetings(self) -> list[_Greeting]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _missing(self) -> PeerLost:
        for peer in range(self._rank):
            if peer not in self._links:
                host, port = self._addresses[peer][:2]
                return PeerLost(f"nobody answers at {host}:{port} ({self._errors.get(peer, 'too slow')})")
        return PeerLost("another process of the fit did not connect")

    def _call(self, peer: int) -> None:
        """Begin to connect to a process."""
        del self._call_at[peer]
        host, port = self._addresses[peer][:2]
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        link = socket.socket(family, kind, protocol)
        link.setblocking(False)
        code = link.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            link.close()
            self._call_again(peer, os.strerror(code))
            return
        greeting = _Greeting(link, self._calling(peer), peer)
        self._selector.register(link, selectors.EVENT_READ | selectors.EVENT_WRITE, greeting)

    def _call_again(self, peer: int, why: str) -> None:
        self._errors[peer] = why
        self._call_at[peer] = time.monotonic() + _RETRY

    def _accept(self) -> None:
        """Accept a connection; if too many greetings are incomplete, the oldest is given up."""
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # the caller has gone already, or this process has too many open files
            time.sleep(_RETRY)
            return
        link.setblocking(False)
        accepted = [greeting for greeting in self._greetings() if greeting.peer is None]
        if len(accepted) >= max(_HALF_OPEN, 2 * len(self._addresses)):
            self._give_up(min(accepted, key=lambda each: each.deadline), "")
        greeting = _Greeting(link, self._answering(), None)
        self._selector.register(link, greeting.events, greeting)

    def _step(self, greeting: _Greeting) -> None:
        try:
            ended, peer = greeting.step()
        except OSError as error:
            self._give_up(greeting, error.strerror or str(error))
            return
        if not ended:
            self._selector.modify(greeting.link, greeting.events, greeting)
        elif peer is None:
            self._give_up(greeting, "it is not a process of this fit")
        else:
            self._selector.unregister(greeting.link)
            if peer in self._links:  # the process has called again, because its first call failed there
                self._links[peer].close()
            self._links[peer] = greeting.link

    def _give_up(self, greeting: _Greeting, why: str) -> None:
        self._selector.unregister(greeting.link)
        greeting.link.close()
        if greeting.peer is not None:
            self._call_again(greeting.peer, why)

    def _calling(self, peer: int) -> _Dialog:
        challenge = yield b"", len(_MAGIC) + _NONCE
        if not challenge.startswith(_MAGIC):
            return None
        nonces = challenge[len(_MAGIC) :], secrets.token_bytes(_NONCE)
        proof = self._proof(_CALL, self._rank, peer, *nonces)
        answer = yield _REPLY.pack(_MAGIC, self._rank, peer, nonces[1], proof), _PROOF
        expected = self._proof(_ANSWER, self._rank, peer, *nonces)
        return peer if hmac.compare_digest(answer, expected) else None

    def _answering(self) -> _Dialog:
        nonce = secrets.token_bytes(_NONCE)
        reply = yield _MAGIC + nonce, _REPLY.size
        magic, caller, called, other, proof = _REPLY.unpack(reply)
        if magic != _MAGIC or called != self._rank or not self._rank < caller < len(self._addresses):
            return None
        if not hmac.compare_digest(proof, self._proof(_CALL, caller, called, nonce, other)):
            return None
        yield self._proof(_ANSWER, caller, called, nonce, other), 0
        return int(caller)

    def _proof(self, direction: bytes, caller: int, called: int, *nonces: bytes) -> bytes:
        text = b"".join([_MAGIC, direction, struct.pack("<II", caller, called), *nonces])
        return hmac.new(self._secret, text, hashlib.sha256).digest()
