"""Mutations of files: bytes and digits that change, and JSON values that become others."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from formats import Content, network_bytes

_NUMBERS = (
    "0",
    "-1",
    "1e308",
    "-1e-308",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "1e999",
)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**300, 0.5, -0.0, 1e308,
    "", "nan", "x" * 1000, "\u2028",
    [], {}, [[]], [None], {"float": "nan"}, {"float": "inf"}, {"tuple": [1]}, [1, "a"], {"dtype": "float64"},
)  # fmt: skip


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def change_byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(1) + data[at + 1 :]


def change_word(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(0, max(1, len(data) - 8), 4)
    value = rng.choice((0, 1, 2, 255, 2**31 - 1, 2**31, 2**32 - 1, rng.getrandbits(32)))
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


def insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]


def delete(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 1, 4, 8, 64)) :]


def duplicate(data: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice((1, 8, 64, 500))
    return data[: at + length] + data[at : at + length] + data[at + length :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def change_digit(data: bytes, rng: random.Random) -> bytes:
    places = [match.start() for match in re.finditer(rb"[0-9]", data)]
    if not places:
        return flip_bit(data, rng)
    at = rng.choice(places)
    return data[:at] + str(rng.randrange(10)).encode() + data[at + 1 :]


def change_number(data: bytes, rng: random.Random) -> bytes:
    places = list(re.finditer(rb"-?[0-9][0-9.e+-]*", data))
    if not places:
        return change_word(data, rng)
    found = rng.choice(places)
    return data[: found.start()] + rng.choice(_NUMBERS).encode() + data[found.end() :]


def repeat_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def swap_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip_bit, change_byte, change_word, insert, delete, duplicate, truncate, change_digit, change_digit,
    change_number, change_number, repeat_line, swap_lines,
)  # fmt: skip


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Return JSON data in which one value somewhere was replaced, removed, moved, or renamed."""
    inner = isinstance(value, dict | list) and len(value) > 0
    if not inner or rng.random() < 0.1:
        return _other(value, rng)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, changed = rng.choice(keys), (dict(value) if isinstance(value, dict) else list(value))
    kind = rng.random()
    if kind < 0.08:
        del changed[key]
    elif kind < 0.14:
        other = rng.choice(keys)
        changed[key], changed[other] = value[other], value[key]
    elif kind < 0.18 and isinstance(changed, dict):
        changed = {("other" if k == key else k): v for k, v in value.items()}
    elif kind < 0.22 and isinstance(changed, list):
        changed.insert(key, value[rng.choice(keys)])
    else:
        changed[key] = mutate_json(value[key], rng)
    return changed


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, str) and value and rng.random() < 0.6:
        mutation = rng.choice((change_digit, change_number, delete, duplicate, repeat_line, swap_lines))
        return mutation(value.encode(), rng).decode("utf-8", "replace")
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-2, -1, 1, 2, 100))
    if isinstance(value, float) and rng.random() < 0.5:
        return value * rng.choice((-1.0, 0.0, 1.5, 1e10, 1e300))
    return rng.choice(_VALUES)


def _json_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes of a model, a manifest, a comparison or a network in which a JSON value is another."""
    if data[8:9] == b"{" and data[:1] != b"{":
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        if rng.random() < 0.5:
            metadata = header["__metadata__"]
            metadata["model"] = _json_bytes(metadata["model"].encode(), rng).decode()
        else:
            changed = mutate_json({k: v for k, v in header.items() if k != "__metadata__"}, rng)
            header = {"__metadata__": header["__metadata__"]} | (changed if isinstance(changed, dict) else {})
        return network_bytes(header, data[8 + length :])
    fields = json.loads(data)
    if not (isinstance(fields, dict) and "sha256" in fields):
        return json.dumps(mutate_json(fields, rng)).encode()
    # the first two fields and the checksum stay in their places: anything else is refused at once
    fixed = {k: v for k, v in fields.items() if k in ("format", "version")}
    changed = mutate_json({k: v for k, v in fields.items() if k not in (*fixed, "sha256")}, rng)
    rest = changed if isinstance(changed, dict) else {}
    return (
        json.dumps(fixed | rest | {"sha256": fields["sha256"]}, indent=2, ensure_ascii=False) + "\n"
    ).encode()


def mutated(content: Content, rng: random.Random) -> tuple[Content, str]:
    """Return a content with one to three mutations in one of its files, and a description of them."""
    name = rng.choice(sorted(content))
    data, what = content[name], []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        textual = rng.random() < 0.5 and not name.endswith(".arrow")
        try:
            mutation = _json_bytes if textual else rng.choice(BYTES)
            data = mutation(data, rng)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            mutation = flip_bit  # the JSON was damaged by the mutation before
            data = flip_bit(data, rng)
        what.append(mutation.__name__.strip("_"))
        if not data:
            break
    return content | {name: data}, f"{name or 'file'}: {', '.join(what)}"
