"""From the members of one foreign tar to samples, as webdataset groups them, and to what is wrong with each.

The key of a member is its folders and its base name up to the first dot; what follows, lower-cased, is the component.
Adjacent members of one key are a sample::

    cats/0001.jpg  cats/0001.cls  cats/0001.seg.png     key cats/0001, components jpg, cls, seg.png
    cats/0002.jpg                                       key cats/0002

The image is the component with an image's suffix; a longer one (seg.png) only where there is no plain one (png).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sevenfold.storage.sources.base import ARCHIVES, InputError
from sevenfold.storage.sources.columns import class_name, label_of
from sevenfold.storage.sources.tar_walk import Member, Stop, Window, walk

IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"})
LABELS = ("cls", "json", "txt")
"""Components that may hold a label, the most telling first."""

MAX_LABEL_BYTES = 1 << 20
MAX_LABEL_TEXT = 64
"""Characters: a longer text is a caption."""

_NUMBER = re.compile(rb"\s*([0-9]{1,18})\s*")
_META = re.compile(rb"__[^/]*__($|/)")
_SHOWN = 16
"""Members that a detail names one by one."""


class Unreadable(str):
    """Stands for a label that could not be read; the text says why."""


@dataclass(slots=True)
class Run:
    """Adjacent members of one key. `said` is what LABELS say, in their order: a label, Unreadable, or None."""

    key: bytes
    members: list[Member] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    said: list[str | None] = field(default_factory=lambda: [None] * len(LABELS))


def component_of(name: bytes) -> tuple[bytes, str] | None:
    """(key, component) of a member's name; None for hidden and extensionless names and those like `__this__`."""
    folder, slash, base = name.rpartition(b"/")
    stem, _, suffix = base.partition(b".")
    if not stem or not suffix or _META.match(name):
        return None
    return folder + slash + stem, suffix.decode("utf-8", "backslashreplace").lower()


def runs(window: Window, names: Sequence[str]) -> Iterator[Run | Member | Stop]:
    """A Run for each sample, and between them, as they come, the members without a key, the folders and a Stop.

    `names`: what the numbers in cls and json are called; empty: they are labels themselves.
    """
    run: Run | None = None
    for item in walk(window):
        if isinstance(item, Stop):
            if run:
                yield run
            yield item
            return
        split = component_of(item.name) if item.kind != "folder" else None
        if split is None:  # it does not end a run: stock readers do not see it either
            yield item
            continue
        key, component = split
        if run is None or run.key != key:
            if run:
                yield run
            run = Run(key)
        run.members.append(item)
        run.components.append(component)
        if component in LABELS and item.kind == "file":
            read = _read_label(component, window, item, names)  # now: the window moves on
            run.said[LABELS.index(component)] = read
    if run:
        yield run


def image_of(run: Run) -> int:
    """The place of the image among the run's members.

    Raises InputError with the reason why this is no sample that can be taken: a member was refused (see tar_walk) or
    is an archive, two members are one component, or there is no image or more than one.
    """
    for member, component in zip(run.members, run.components, strict=True):
        if member.refusal:
            reason, detail = member.refusal
            raise InputError(reason, f"{describe([member])}: {detail}{_whole(run)}")
        if component.rpartition(".")[2] in ARCHIVES:
            raise InputError("unsupported", f"{describe([member])}: a nested archive is not opened{_whole(run)}")
    if len(set(run.components)) < len(run.components):
        twice = next(c for c in run.components if run.components.count(c) > 1)
        same = [m for m, c in zip(run.members, run.components, strict=True) if c == twice]
        raise InputError("same_member_twice", f"{describe(same)} are one component of one key{_whole(run)}")
    plain = [i for i, c in enumerate(run.components) if c in IMAGES]
    found = plain or [i for i, c in enumerate(run.components) if c.rpartition(".")[2] in IMAGES]
    if not found:
        raise InputError("no_image", f"the key has no image: {describe(run.members)}")
    if len(found) > 1:
        raise InputError("several_images", f"the key has {len(found)}: {describe(run.members)}")
    return found[0]


def describe(members: Sequence[Member]) -> str:
    """'a.jpg at byte 0, a.cls at byte 1024': where each member's headers start."""
    shown = [f"{text(m.name)} at byte {m.header}" for m in members[:_SHOWN]]
    more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
    return ", ".join(shown) + more


def text(name: bytes) -> str:
    """A member's name as text; what is no UTF-8 is escaped."""
    return name.decode("utf-8", "backslashreplace")


def _whole(run: Run) -> str:
    return f"; set aside with it: {describe(run.members)}" if len(run.members) > 1 else ""


def _read_label(component: str, window: Window, member: Member, names: Sequence[str]) -> str | None:
    if member.size > MAX_LABEL_BYTES:
        return Unreadable(f"it has {member.size} bytes")
    data = window.read(member.offset, member.size)
    try:
        if component == "cls":
            number = _NUMBER.fullmatch(data)
            return class_name(int(number[1]), names) if number else Unreadable(f"no class number: {text(data[:40])!r}")
        if component == "txt":
            said = data.decode().strip()
            return said if "\n" not in said and 0 < len(said) <= MAX_LABEL_TEXT else Unreadable("no short line")
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("label") is None:
            return None
        label = value["label"]
        return class_name(label, names) if type(label) is int else label_of(label)
    except InputError as e:
        return Unreadable(e.detail)
    except (ValueError, RecursionError) as e:
        return Unreadable(f"{str(e)[:80]}: {text(data[:40])!r}")
