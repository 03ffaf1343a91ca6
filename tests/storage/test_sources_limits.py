"""A million tiny members: listing stays within bounds of memory and time, and too many inputs are refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sevenfold.storage import SevenfoldError
from sevenfold.storage.sources import Input, Source
from sevenfold.storage.tar import END, header, padding

CODE = """
import pickle, sys, time
from sevenfold.storage.sources import open_source
import zipfile, numpy
def peak():  # ru_maxrss would be that of whoever started the process
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
began = time.process_time()
source = open_source(sys.argv[1])
n = len(source.inputs)
seconds = time.process_time() - began
grown = peak() - before
first = source.inputs[n // 2].path
there = pickle.loads(pickle.dumps(source))
assert there.read(first) == source.read(first) == b"1"
print(n, seconds, grown / 1024)
"""


def listed(path: Path) -> tuple[int, float, float]:
    """(inputs, seconds of processor time, megabytes at the peak) of listing in a process of its own."""
    done = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    n, seconds, megabytes = done.stdout.split()
    return int(n), float(seconds), float(megabytes)


def tar_of(path: Path, n: int) -> Path:
    """`n` members of one byte, each a sample's image."""
    tail = b"1" + padding(1)
    with open(path, "wb") as f:
        f.writelines(header(b"%08d.png" % i, 1) + tail for i in range(n))
        f.write(END)
    return path


def zip_of(path: Path, n: int) -> Path:
    """`n` stored members of one byte; packed by hand, since the standard library takes 13 us for each."""
    crc = 0x83DCEFB7  # of b"1"
    fields = struct.pack("<HHHHHIII", 20, 0, 0, 0, 33, crc, 1, 1)
    size = 30 + 12 + 1
    with open(path, "wb") as f:
        f.writelines(b"PK\3\4" + fields + struct.pack("<HH", 12, 0) + b"%08d.png" % i + b"1" for i in range(n))
        f.writelines(
            b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHHHII", 12, 0, 0, 0, 0, 0, i * size)
            + b"%08d.png" % i
            for i in range(n)
        )  # fmt: skip
        length = n * (46 + 12)
        end = f.tell()
        f.write(b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, length, n * size))
        f.write(b"PK\6\7" + struct.pack("<IQI", 0, end, 1))
        f.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, length, n * size, 0))
    return path


MAKERS = {"tar": tar_of, "zip": zip_of}
KILOBYTES = {"tar": 0.6, "zip": 1.2}
"""Per member at most; measured: a third to two thirds of it."""

MICROSECONDS = 60
"""Per member at most, on a machine that is busy with other things; measured: 9 to 16."""


@pytest.mark.parametrize("kind", MAKERS)
def test_fifty_thousand_tiny_members_are_listed_within_bounds(kind: str, tmp_path: Path) -> None:
    n = 50_000
    count, seconds, megabytes = listed(MAKERS[kind](tmp_path / f"a.{kind}", n))
    assert count == n
    assert seconds < n * MICROSECONDS / 1e6
    assert megabytes < 20 + n * KILOBYTES[kind] / 1024


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_a_million_tiny_members_are_listed_within_bounds(kind: str, tmp_path: Path) -> None:
    n = 1_000_000
    count, seconds, megabytes = listed(MAKERS[kind](tmp_path / f"a.{kind}", n))
    assert count == n
    assert seconds < n * MICROSECONDS / 1e6
    assert megabytes < 20 + n * KILOBYTES[kind] / 1024


def test_a_source_of_too_many_inputs_is_refused_before_they_are_all_listed() -> None:
    class Endless(Source):
        def _list(self) -> Iterator[Input]:
            one = Input("x", None, None, 0, 0.0)
            while True:
                yield one

    with pytest.raises(SevenfoldError, match="more than 20,000,000 inputs"):
        Endless(Path("endless")).inputs  # noqa: B018
