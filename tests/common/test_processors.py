"""The number of processors, by what the system says of them."""

import math
from pathlib import Path

import pytest

from sinkprop.common import processors
from sinkprop.common.processors import FreeProcessors, usable_processors


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "max 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "400000 100000\n"}, 4.0),
        ("3:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "200000", "cpu/x/cpu.cfs_period_us": "100000"}, 2.0),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("3:memory:/x\n0::/../..\n", {"cpu.max": "nonsense"}, math.inf),
        (None, {}, math.inf),
    ],
)  # fmt: skip
def test_a_quota_of_a_container_counts(tmp_path, membership, files, quota):
    if membership is not None:
        write(tmp_path / "member", membership)
    for name, text in files.items():
        write(tmp_path / "mount" / name, text)
    assert processors._quota(tmp_path / "mount", tmp_path / "member") == quota


def test_idle_and_own_processors_are_free(monkeypatch):
    moments = [(0.0, 0.0, 0.0), (0.05, 0.2, 0.0), (2.0, 0.2, 1.95), (4.0, 2.2, 5.95), (6.0, 2.2, 5.95)]
    now = iter(moments)
    clock = [0.0]

    def moment():
        found = next(now)
        clock[0] = found[0]
        return found

    monkeypatch.setattr(processors, "_moment", moment)
    monkeypatch.setattr(processors, "usable_processors", lambda: 4)
    monkeypatch.setattr(processors.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(processors.time, "sleep", lambda _: None)
    free = FreeProcessors()
    assert free() == 4  # all four were idle
    assert free() == 4  # less than a second ago
    clock[0] = 2.0
    assert free() == 1  # this process used one, and no other was idle
    clock[0] = 4.0
    assert free() == 3  # it used two, and one was idle
    clock[0] = 6.0
    assert free() == 1  # others used all


def test_this_machine():
    assert 1 <= FreeProcessors()() <= usable_processors()
