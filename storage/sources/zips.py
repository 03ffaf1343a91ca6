"""A zip of class folders, read in place: on a disk or in a bucket, never unpacked.

The standard library reads the list of members; what reading needs of them is then kept as five integers each, since
its own objects take half a kilobyte, and worker processes get these instead of listing a million members again.
"""

from __future__ import annotations

import bz2
import struct
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import (
    MAX_INPUTS,
    Input,
    InputError,
    Places,
    Source,
    check_archive,
    check_size,
    climbs,
    too_many,
)
from sevenfold.storage.sources.blobs import Blob, open_blob
from sevenfold.storage.sources.folder import hidden_remark
from sevenfold.storage.sources.layout import by_folders

_LOCAL = struct.Struct("<4s22xHH")
"""A member's local header: signature, ..., length of the name and of the extra field."""
_MAX_RATIO = 1032
"""Deflate cannot do better than 258 bytes for 2 bits: who declares more lies."""


class ZipSource(Source):
    """Images in a zip; its folders name classes, or splits and then classes.

    Set aside, each with its reason: members that are encrypted, lie about their size, fail their checksum, climb out
    of the archive, are archives themselves, share a name (none of them is taken), or use a compression other than
    stored, deflate and bzip2.
    """

    kind = "zip"
    carried = ("_places",)

    @cached_property
    def _blob(self) -> Blob:
        return open_blob(self.root)

    def _members(self) -> tuple[list[tuple[str, int, float]], Places]:
        """((path, bytes, modified) of every member, where they lie)."""
        try:
            with self._blob.file() as f, zipfile.ZipFile(f) as archive:
                infos = [m for m in archive.infolist() if not m.is_dir()]
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OSError) as e:
            raise SevenfoldError(
                f"this is no readable zip ({e})", where=self.location, expected="a zip file", do="copy it again"
            ) from None
        if len(infos) > MAX_INPUTS:
            raise too_many(self.location)
        if sum(m.compress_size for m in infos if not m.flag_bits & 1) > self._blob.size and _overlap(infos):
            raise SevenfoldError(
                "members share the same bytes, as in a zip bomb", where=self.location, expected="members side by side"
            )
        times = Counter(m.filename for m in infos)
        rows, numbers = [], array("q")
        for info in infos:
            twice = times[info.filename] > 1
            path = f"{info.filename}@{info.header_offset}" if twice else info.filename
            flags = info.compress_type | (info.flag_bits & 1) << 16 | twice << 17
            numbers.extend((info.header_offset, info.compress_size, info.file_size, info.CRC, flags))
            rows.append((path, info.file_size, self._blob.modified))
        return rows, Places([r[0] for r in rows], np.array(numbers, np.int64).reshape(-1, 5))

    @cached_property
    def _places(self) -> Places:
        return self._members()[1]

    def _list(self) -> Iterator[Input]:
        rows, self._places = self._members()
        self._hidden = hidden_remark(path for path, _, _ in rows)
        return by_folders(rows)

    def _remarks(self) -> Iterable[str]:
        return self._hidden

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if climbs(path):
            raise InputError("unsupported", "the member's name climbs out of the archive")
        place = self._places.of(path)
        if place is None:
            raise InputError("unreadable", "the zip has no such member any more")
        offset, packed, size, crc, flags = place
        if flags >> 17:
            raise InputError("same_member_twice", f"several members are named {path.rpartition('@')[0]!r}")
        if flags >> 16:
            raise InputError("unreadable", "the zip member is encrypted")
        check_archive(path)
        check_size(max(size, packed))
        if size > packed * _MAX_RATIO:
            raise InputError("unreadable", f"zip: {packed} bytes cannot hold the {size} that the member says")
        header = self._blob.read_at(offset, _LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
            raise InputError("unreadable", f"zip: there is no member at byte {offset}")
        _, name, extra = _LOCAL.unpack(header)
        data = _unpack(flags & 0xFFFF, self._blob.read_at(offset + _LOCAL.size + name + extra, packed), size)
        if len(data) != size:
            more = "more" if len(data) > size else str(len(data))
            raise InputError("unreadable", f"zip: the member says {size} bytes and holds {more}")
        if zlib.crc32(data) != crc:
            raise InputError("unreadable", "zip: the member's bytes do not fit its checksum")
        return data


def _overlap(infos: list[zipfile.ZipInfo]) -> bool:
    ordered = sorted(infos, key=lambda m: m.header_offset)
    return any(a.header_offset + a.compress_size > b.header_offset for a, b in pairwise(ordered))


def _unpack(method: int, packed: bytes, size: int) -> bytes:
    """The member's bytes, but never more than one byte over `size`."""
    try:
        if method == zipfile.ZIP_STORED:
            return packed
        if method == zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-15).decompress(packed, size + 1)
        if method == zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor().decompress(packed, size + 1)
    except (zlib.error, OSError, ValueError, EOFError) as e:
        raise InputError("unreadable", f"zip: {e}") from None
    raise InputError("unreadable", f"zip: the compression method {method} is not read")
