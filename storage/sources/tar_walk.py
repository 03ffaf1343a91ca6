"""Walk the headers of a tar that somebody else wrote: every member with its offset, or the byte where it stops making
sense.

Source: POSIX.1-2001 pax and ustar interchange formats, and the GNU tar manual ("Basic Tar Format") for long names and
base-256 numbers. The standard library's reader skips what it does not understand; this one reports it. Nothing is
trusted: checksums and sizes are checked, and after a damaged header the walk stops, since whatever looks like a
header further on may be the content of a member.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sevenfold.storage.sources.base import MAX_FILE_BYTES, MAX_INPUTS
from sevenfold.storage.sources.blobs import Blob
from sevenfold.storage.tar import BLOCK

WINDOW = 128 << 10
"""Bytes read at once: many headers of small members, few wasted bytes between large ones."""

_NEAR = 4 << 10

MAX_EXTENSION = 1 << 20
"""Bytes of a pax header or a long name; more is no name."""

MAX_NAME = 4096
"""Bytes of a member's name, as no file system takes more."""

MAX_TAIL = 16 << 20
"""Bytes after the end of the archive that are looked at for content."""

_ZEROS = bytes(BLOCK)
_TYPES = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe"}
_CHECKSUM_BLANK = 8 * 0x20


class Member(NamedTuple):
    """A file, link or folder in a tar. `header`: the byte where it starts, `offset`: where its content does.

    `kind` is "file", "folder" or "refused"; `refusal` is then (reason, detail).
    """

    name: bytes
    header: int
    offset: int
    size: int
    kind: str
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a walk ended before the end of the archive, or (`after_end`) what lies behind it.

    `name`: of the member that is cut, where one is.
    """

    reason: str
    detail: str
    name: bytes | None = None
    after_end: bool = False


class Window:
    """Reads a blob in order, a window at a time."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self._start, self._data = 0, b""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        at = offset - self._start
        if at < 0 or at + length > len(self._data):
            if length > WINDOW:
                return self.blob.read_at(offset, length)
            far = at > len(self._data) + WINDOW  # large members: their content is not what is looked for
            self._start, self._data = offset, self.blob.read_at(offset, max(length, _NEAR) if far else WINDOW)
            at = 0
        return self._data[at : at + length]


class _Damaged(Exception):
    pass


def walk(window: Window) -> Iterator[Member | Stop]:
    """Every member in order; the last item is a Stop unless the archive is whole and nothing follows it."""
    size, at, members = window.blob.size, 0, 0
    name: bytes | None = None  # what extension headers say of the next member
    long_size: int | None = None
    sparse = False
    start = 0  # the byte where the next member begins, its extension headers included
    while True:
        block = window.read(at, BLOCK)
        if len(block) < BLOCK:
            where = f"byte {min(at, size)}"
            detail = (
                f"the tar ends at {where}, in the middle of a header" if block
                else f"the tar ends at {where} without the blocks that mark its end"
            )  # fmt: skip
            yield Stop("truncated", f"{detail}: members may be missing")
            return
        if block == _ZEROS:
            if start != at:
                yield Stop("unreadable", f"a long name at byte {start} belongs to no member")
            else:
                yield from _tail(window, at)
            return
        try:
            kind, length = _header(block)
            if kind in b"xgLK" and length > MAX_EXTENSION:
                raise _Damaged(f"an extension header of {length} bytes")
            if kind in b"xgLK":
                data = window.read(at + BLOCK, length)
                if len(data) < length:
                    yield Stop("truncated", f"the tar ends in the extension header at byte {at}")
                    return
                if kind == b"x":
                    name, long_size, sparse = _pax(data, name, long_size)
                elif kind == b"L":
                    name = data.split(b"\0", 1)[0]
                at += BLOCK + length + -length % BLOCK
                start = start if kind != b"g" else at
                continue
        except _Damaged as e:
            yield Stop("unreadable", f"{e} at byte {at}: the {size - at} bytes from there on are not read")
            return
        member = _member(block, kind, start, at, length if long_size is None else long_size, name, sparse)
        end = member.offset + member.size
        if end > size:
            detail = f"{_text(member.name)} at byte {start} says {member.size} bytes, of which the tar holds "
            detail += f"{size - member.offset}: it is cut short, or the size lies"
            yield Stop("truncated", detail, member.name)
            return
        yield member
        members += 1
        if members > MAX_INPUTS:
            yield Stop("too_large", f"more than {MAX_INPUTS} members; at byte {at} no more are read")
            return
        at = start = end + -end % BLOCK
        name, long_size, sparse = None, None, False


def _header(block: bytes) -> tuple[bytes, int]:
    """(type flag, size) of a header with a right checksum; raises _Damaged."""
    said = _number(block[148:156])
    # Adler-32's low half is one more than the sum of the bytes, modulo a number that half a block cannot reach
    total = (zlib.adler32(block[:256]) & 0xFFFF) + (zlib.adler32(block[256:]) & 0xFFFF) - 2
    total += _CHECKSUM_BLANK - sum(block[148:156])
    if said != total:
        signed = total - 256 * sum(b > 127 for i, b in enumerate(block) if not 148 <= i < 156)  # old Sun and IRIX tars
        if said != signed:
            raise _Damaged(f"the header's checksum does not fit ({said} for {total})")
    return block[156:157], _number(block[124:136])


def _number(field: bytes) -> int:
    """An octal number, or GNU's base-256; raises _Damaged."""
    if field[0] & 0x80:
        value = int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
        if not 0 <= value < 1 << 62:
            raise _Damaged("a number that is negative or far too large")
        return value
    digits = field.split(b"\0", 1)[0].strip()
    try:
        value = int(digits, 8) if digits else 0
    except ValueError:
        value = -1
    if value < 0 or (digits and not digits.isalnum()):
        raise _Damaged("a header that is none (its numbers are no octal digits)")
    return value


def _pax(data: bytes, name: bytes | None, size: int | None) -> tuple[bytes | None, int | None, bool]:
    """(name, size, is it sparse) after the records `<length> <key>=<value>\\n`; raises _Damaged."""
    sparse, at = False, 0
    while at < len(data) and data[at]:
        digits, blank, _ = data[at : at + 8].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        end = at + length
        key, equals, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise _Damaged("a pax header whose records do not add up")
        if key == b"path":
            name = value
        elif key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise _Damaged(f"a pax size of {_text(value[:20])!r}")
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            sparse = True
        at = end
    return name, size, sparse


def _member(block: bytes, kind: bytes, start: int, at: int, size: int, name: bytes | None, sparse: bool) -> Member:
    if name is None:
        name = block[:100].split(b"\0", 1)[0]
        prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
        name = prefix + b"/" + name if prefix else name
    offset, refusal = at + BLOCK, None
    if len(name) > MAX_NAME:
        refusal = ("unsupported", f"its name has {len(name)} bytes, over the limit of {MAX_NAME}")
        name = name[:MAX_NAME]
    while name.startswith(b"./"):
        name = name[2:].lstrip(b"/") if name[2:3] == b"/" else name[2:]
    if kind == b"5" or (kind in (b"\0", b"0") and name.endswith(b"/") and not size):
        return Member(name, start, offset, 0, "folder")
    if kind in _TYPES:
        size = 0  # links and devices have no content, whatever their size says (as GNU tar reads them)
        target = block[157:257].split(b"\0", 1)[0]
        refusal = ("unsupported", f"it is {_TYPES[kind]}" + (f" to {_text(target)}" if target else ""))
    elif sparse or kind == b"S":
        refusal = ("unsupported", "it is a sparse file")
    elif kind not in (b"0", b"\0", b"7"):
        refusal = ("unsupported", f"it is of the type {_text(kind)!r}, which is not known")
    elif name.startswith(b"/") or b".." in name.split(b"/"):
        refusal = ("outside", "its name leads out of the archive")
    elif name.endswith(b"/"):
        refusal = ("unsupported", f"its name is that of a folder, and it has {size} bytes")
    elif size > MAX_FILE_BYTES:
        refusal = ("too_large", f"it has {size} bytes, over the limit of {MAX_FILE_BYTES}")
    return Member(name, start, offset, size, "refused" if refusal else "file", refusal)


def _tail(window: Window, at: int) -> Iterator[Stop]:
    """A Stop when content follows the end of the archive: another tar appended, say. Padding is zeros."""
    size = window.blob.size
    if size - at > MAX_TAIL:
        detail = f"{size - at} bytes follow the end of the archive at byte {at}, too many to be padding"
        yield Stop("unreadable", f"{detail}: they are not read", after_end=True)
        return
    for offset in range(at, size, 1 << 20):
        piece = window.blob.read_at(offset, min(1 << 20, size - offset))
        if piece.strip(b"\0"):
            first = offset + len(piece) - len(piece.lstrip(b"\0"))
            detail = f"the archive ends at byte {at}, and from byte {first} more follows, as if tars were joined"
            yield Stop("unreadable", f"{detail}: it is not read", after_end=True)
            return


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
