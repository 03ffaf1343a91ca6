"""Where a shard is damaged: its tar is walked member by member, beside what the index says should be there.

The slow and thorough look at a shard that failed the quick one (shardcheck.py). Nothing in the bytes is trusted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sevenfold.storage import tar

MOST = 100
"""Flaws that are named of one shard; of more, the rest is counted."""

_NAMED_BY_CONTENT = re.compile(rb"([0-9a-f]{64})\.(?!cls$)[a-z]+")


class Bytes(Protocol):
    """bytes, or a file mapped into memory."""

    def __getitem__(self, part: slice, /) -> bytes: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Flaw:
    """One thing that is wrong inside a file: the member, and the bytes [byte, end) it can be narrowed down to."""

    problem: str
    detail: str
    member: str | None = None
    byte: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Member:
    """A member as it should be, or as it was found. `content`: the bytes of a small one, where they are known."""

    name: bytes
    offset: int
    size: int
    content: bytes | None = None

    @property
    def header(self) -> int:
        """Where its header begins."""
        return self.offset - tar.BLOCK

    @property
    def after(self) -> int:
        """Where the next member begins."""
        return self.header + tar.member_length(self.size)

    @property
    def text(self) -> str:
        """Its name for people; bytes that are no text are escaped."""
        return self.name.decode("ascii", "backslashreplace")

    @property
    def digest(self) -> str | None:
        """The sha256 that its name promises; None for a member that is not named by its content."""
        match = _NAMED_BY_CONTENT.fullmatch(self.name)
        return match[1].decode() if match else None


def locate(data: Bytes, expected: Sequence[Member] | None, *, named: bool) -> list[Flaw]:
    """Every flaw of a shard, by its place in the file.

    Parameters
    ----------
    data : the shard's bytes.
    expected : the members that the index promises, by offset; None when there is no index to trust.
    named : whether the bytes are those of the shard's name. Then only the index can be wrong.
    """
    found, flaws = walk(data, expected or ())
    if expected is not None:
        cut = found[-1].after if found else 0
        beyond = cut if any(f.problem == "truncated" for f in flaws) else len(data)
        flaws += _compare(found, expected, beyond, named)
    contents = {m.name: m.content for m in expected or ()}
    for member in found:
        flaws += _content(data, member, contents.get(member.name))
    if not flaws and not named:
        flaws.append(Flaw("digest", "every member is whole, but the bytes are not those of the shard's name"))
    flaws.sort(key=lambda f: (f.byte is None, f.byte, f.problem))
    if len(flaws) > MOST:
        rest = f"and {len(flaws) - MOST} more flaws in the same file"
        flaws = [*flaws[:MOST], Flaw("digest" if not named else "index", rest)]
    return [replace(f, problem="index", detail=f"{f.detail} ({f.problem})") for f in flaws] if named else flaws


def walk(data: Bytes, expected: Sequence[Member] = ()) -> tuple[list[Member], list[Flaw]]:
    """(members found, flaws of the tar's structure). After a broken header the walk goes on at the next sound one."""
    hints = {m.header: m for m in expected}
    found: list[Member] = []
    flaws: list[Flaw] = []
    at, whole = 0, len(data)
    while True:
        block = data[at : at + tar.BLOCK]
        hint = hints.get(at)
        if len(block) < tar.BLOCK:
            flaws.append(_cut(at, whole, found, expected))
            return found, flaws
        if not any(block) and (hint is None or not any(data[at:whole])):
            return found, flaws + _end(data, at)
        size = _sound(block)
        if size is None:
            member, flaw, at = _broken(data, at, hint, hints)
            flaws.append(flaw)
            if member is None:
                continue
        else:
            member = Member(block[:100].rstrip(b"\0"), at + tar.BLOCK, size)
            if block != tar.header(member.name, size):
                byte = at + _first(block, tar.header(member.name, size))
                flaws.append(Flaw("header", "the header is not as it was written", member.text, byte, byte + 1))
            at = member.after
        if member.offset + member.size > whole:
            flaws.append(_cut(whole, whole, found, expected, member))
            return found, flaws
        found.append(member)


def _sound(header: bytes) -> int | None:
    """The size a header tells, if its checksum fits and it is of a regular file; else None."""
    try:
        told = int(header[148:156].rstrip(b" \0") or b"x", 8)
        size = int(header[124:136].rstrip(b" \0") or b"x", 8)
    except ValueError:
        return None
    total = sum(header[:148]) + 8 * 0x20 + sum(header[156:])
    return size if told == total and header[156:157] in (b"0", b"\0") and 0 <= size <= tar.MAX_MEMBER else None


def _broken(
    data: Bytes, at: int, hint: Member | None, hints: dict[int, Member]
) -> tuple[Member | None, Flaw, int]:  # fmt: skip
    """(the member that the index puts here, the flaw, where to go on)."""
    block = data[at : at + tar.BLOCK]
    if hint is not None:
        byte = at + _first(block, tar.header(hint.name, hint.size))
        return hint, Flaw("header", "the header's checksum does not fit", hint.text, byte, at + tar.BLOCK), hint.after
    onward = at + tar.BLOCK
    while onward < len(data) and onward not in hints and _sound(data[onward : onward + tar.BLOCK]) is None:
        onward += tar.BLOCK
    where = "the next sound one" if onward < len(data) else "the end of the file"
    return None, Flaw("header", f"no header here; {onward - at} bytes up to {where} belong to no member", None, at,
                      onward), onward  # fmt: skip


def _cut(
    at: int, whole: int, found: Sequence[Member], expected: Sequence[Member], member: Member | None = None
) -> Flaw:  # fmt: skip
    """What the end of the file in the wrong place means."""
    there = {m.name for m in found}
    lost = [m for m in expected if m.name not in there and m.header >= (found[-1].after if found else 0)]
    if lost:
        range_ = lost[0].text if len(lost) == 1 else f"{lost[0].text} to {lost[-1].text}"
        told = f"{len(lost)} members are lost, {range_}"
    else:
        told = "no member that the index names is lost" if expected else "what followed is unknown"
    if member is not None:
        return Flaw("truncated", f"the file ends inside this member; {told}", member.text, whole)
    if at == whole:
        after = f"after {found[-1].text}" if found else "at its beginning"
        return Flaw("truncated", f"the file ends at a member's boundary, {after}, without its end blocks; {told}", None,
                    whole)  # fmt: skip
    return Flaw("truncated", f"the file ends inside a header; {told}", None, whole)


def _end(data: Bytes, at: int) -> list[Flaw]:
    tail = data[at : len(data)]
    beyond = next((i for i in range(0, len(tail), 4096) if any(tail[i : i + 4096])), None)
    if beyond is not None:
        byte = at + next(i for i in range(beyond, len(tail)) if tail[i])
        if len(tail) == len(tar.END):
            return [Flaw("end", "the zero blocks at the end are not zero", None, byte, byte + 1)]
        return [Flaw("trailing", "there are bytes after the end of the archive", None, byte, len(data))]
    if len(tail) != len(tar.END):
        return [Flaw("end", f"{len(tail)} zero bytes end the file, not {len(tar.END)}", None, at, len(data))]
    return []


def _compare(found: Sequence[Member], expected: Sequence[Member], beyond: int, named: bool) -> list[Flaw]:
    """Members that are missing, too many or elsewhere. What lies at `beyond` or later is told by the truncation."""
    flaws: list[Flaw] = []
    wanted = {m.name: m for m in expected}
    there: dict[bytes, Member] = {}
    for member in found:
        if member.name not in wanted or member.name in there:
            which = "is in the shard twice" if member.name in there else "is not in the index"
            flaws.append(Flaw("extra_member", f"this member {which}", member.text, member.header, member.after))
        there.setdefault(member.name, member)
    for member in expected:
        actual = there.get(member.name)
        if actual is None:
            if member.header < beyond or named:
                flaws.append(Flaw("missing_member", "the index names this member, the shard lacks it", member.text,
                                  member.header))  # fmt: skip
        elif (actual.offset, actual.size) != (member.offset, member.size) and (named or actual.size != member.size):
            flaws.append(
                Flaw("size" if actual.size != member.size else "offset",
                     f"the index says offset {member.offset} and {member.size} bytes, the shard has offset "
                     f"{actual.offset} and {actual.size} bytes", member.text, actual.offset, actual.after)
            )  # fmt: skip
    moved = [m for m in expected if m.name in there and there[m.name].offset != m.offset]
    if moved and not named and not flaws:
        flaws.append(Flaw("offset", f"from here on {len(moved)} members lie elsewhere than the index says",
                          moved[0].text, there[moved[0].name].offset))  # fmt: skip
    return flaws


def _content(data: Bytes, member: Member, wanted: bytes | None) -> list[Flaw]:
    flaws = []
    end = member.offset + member.size
    body = data[member.offset : end]
    if wanted is not None and body != wanted:
        byte = member.offset + _first(body, wanted)
        flaws.append(Flaw("label", f"the member says {body[:20]!r}, the index {wanted!r}", member.text, byte, end))
    if member.digest is not None and hashlib.sha256(body).hexdigest() != member.digest:
        empty = " (they are all zero)" if body and not any(body) else ""
        flaws.append(Flaw("content", f"the bytes are not those of the sample's id{empty}", member.text, member.offset,
                          end))  # fmt: skip
    padding = data[end : member.after]
    if any(padding):
        byte = end + next(i for i, x in enumerate(padding) if x)
        flaws.append(Flaw("padding", "the padding behind the member is not zero", member.text, byte, byte + 1))
    return flaws


def _first(one: bytes, other: bytes) -> int:
    """The first place where two byte strings differ; the shorter one's length when one begins the other."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
