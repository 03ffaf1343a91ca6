"""Versions: commits numbered per dataset, and the branches and tags that point at them.

The commit protocol is the log itself: `versions/00000007.json` is created only if absent, so of two writers one gets
the number and the other takes the next; a branch then moves by compare-and-swap.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import commits_key, manifest_key, ref_key, refs_folder, version_key, versions_folder
from sevenfold.storage.names import check_ref, version_number
from sevenfold.storage.records import Manifest, Version, parse_json
from sevenfold.storage.store import Store

_NUMBERED = re.compile(r"[0-9]{8}\.json")
"""What a version's file is called."""


def numbers(store: Store, dataset: str) -> list[int]:
    """The numbers of all versions, ascending."""
    names = store.names(versions_folder(dataset))
    return sorted(int(n.removesuffix(".json")) for n in names if _NUMBERED.fullmatch(n))


def list_versions(store: Store, dataset: str) -> list[Version]:
    """All versions, oldest first."""
    folder = versions_folder(dataset)
    found = store.read_folder(folder, ".json")
    return [
        _named(Version.parse(data, f"{store.url}/{folder}/{name}"), store, dataset, int(name.removesuffix(".json")))
        for name, data in sorted(found.items())
        if _NUMBERED.fullmatch(name)
    ]


def read_version(store: Store, dataset: str, number: int) -> Version:
    """One version; raises SevenfoldError when it is absent or damaged."""
    return _named(Version.read(store, version_key(dataset, number)), store, dataset, number)


def _named(version: Version, store: Store, dataset: str, number: int) -> Version:
    """The version, if its file has its name."""
    if (version.dataset, version.number) != (dataset, number):
        raise SevenfoldError(
            f"this is {version.name} of {version.dataset}",
            where=f"{store.url}/{version_key(dataset, number)}",
            expected=f"v{number} of {dataset}",
            do="restore it from a copy",
        )
    return version


def read_refs(store: Store, dataset: str, kind: str) -> dict[str, int]:
    """Branches or tags (`kind`): name -> version number."""
    folder = refs_folder(dataset, kind)
    found = store.read_folder(folder, ".json")
    return {n.removesuffix(".json"): _number(data, f"{store.url}/{folder}/{n}") for n, data in found.items()}


def _number(data: bytes, where: str) -> int:
    """What a branch's or a tag's file points at."""
    number = parse_json(data, "branch or tag", where).get("version")
    if not isinstance(number, int) or not 0 < number < 10**8:
        raise SevenfoldError(
            f"this branch or tag points at {number!r:.80}",
            where=where,
            expected="a version's number",
            do="restore it from a copy",
        )
    return number


def _ref(store: Store, dataset: str, kind: str, name: str) -> int | None:
    key = ref_key(dataset, kind, name)
    try:
        return _number(store.read(key), f"{store.url}/{key}")
    except FileNotFoundError:
        return None


def _pointed_at(store: Store, dataset: str, ref: str) -> int | None:
    """The number that a branch, a tag or `v7` means."""
    try:
        check_ref(ref, "version")
    except SevenfoldError:
        return version_number(ref)
    for kind in ("branches", "tags"):
        number = _ref(store, dataset, kind, ref)
        if number is not None:
            return number
    return version_number(ref)


def head(store: Store, dataset: str, branch: str) -> int | None:
    """The number a branch points at; None when there is no such branch."""
    return _ref(store, dataset, "branches", branch)


def tip(store: Store, dataset: str, branch: str) -> Version:
    """The version a branch points at; raises SevenfoldError naming the branches there are."""
    number = head(store, dataset, branch)
    if number is None:
        there = ", ".join(read_refs(store, dataset, "branches")) or "none"
        raise SevenfoldError(f"{dataset} has no branch {branch!r}", where=store.url, expected=f"one of: {there}")
    return read_version(store, dataset, number)


def ancestors(store: Store, version: Version) -> Iterator[Version]:
    """The version and everything it was built on, newest number first."""
    waiting, seen = {version.number: version}, set()
    while waiting:
        current = waiting.pop(max(waiting))
        seen.add(current.number)
        yield current
        for parent in current.parents:
            if parent not in seen and parent not in waiting:
                waiting[parent] = read_version(store, version.dataset, parent)


def resolve(store: Store, dataset: str, ref: str) -> Version:
    """The version that `ref` names. Raises SevenfoldError naming what there is.

    A branch, a tag, `v7`, the start (6 digits or more) of a content id, or a time: `2026-05-01`,
    `2026-05-01T12:00`, `trial@2026-05-01` is the newest version in the branch's history (main's unless named) made at
    or before it. A date alone counts to its end, and times without a zone are UTC.
    """
    number = _pointed_at(store, dataset, ref) if "@" not in ref else None
    if number is not None:
        try:
            return read_version(store, dataset, number)
        except SevenfoldError:
            if store.exists(version_key(dataset, number)):
                raise
    branches, tags = (read_refs(store, dataset, kind) for kind in ("branches", "tags"))
    there = numbers(store, dataset)
    if there and number is None:
        branch, _, moment = ref.rpartition("@")
        at = _time(moment) if "-" in moment else None
        if at is not None:
            return _as_of(store, dataset, branch or "main", at, ref)
        if len(ref) >= 6 and "@" not in ref and "-" not in ref:
            matches = [v for v in list_versions(store, dataset) if v.content_id.startswith(ref)]
            if len({v.content_id for v in matches}) == 1:
                return matches[-1]
    if not there:
        datasets = store.names("datasets")
        raise SevenfoldError(
            f"the dataset {dataset!r} has no version yet",
            where=store.url,
            expected=f"one of the datasets {', '.join(datasets)}" if datasets else "a commit",
            do="ingest a batch, check it and commit",
        )
    raise SevenfoldError(
        f"{ref!r} names no version of {dataset}",
        where=store.url,
        expected=f"v1 ... v{there[-1]}, a branch ({', '.join(branches) or 'none'}), a tag "
        f"({', '.join(tags) or 'none'}), 6 digits of a content id, or a date (2026-05-01, or branch@2026-05-01)",
    )


def _time(text: str) -> float | None:
    """Unix seconds of an ISO date (its last moment) or time; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if "T" not in text and " " not in text:
        moment += timedelta(days=1, microseconds=-1)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _as_of(store: Store, dataset: str, branch: str, at: float, ref: str) -> Version:
    number = head(store, dataset, branch)
    if number is None:
        raise SevenfoldError(f"{dataset} has no branch {branch!r}", where=store.url, expected="a branch before the @")
    oldest = None
    for version in ancestors(store, read_version(store, dataset, number)):
        if version.provenance.get("time", 0.0) <= at:
            return version
        oldest = version
    assert oldest is not None
    first = datetime.fromtimestamp(oldest.provenance["time"], UTC).isoformat(timespec="seconds")
    raise SevenfoldError(
        f"{branch} of {dataset} had no version at {ref}", where=store.url, expected=f"{first}, its first, or later"
    )


def append(store: Store, version: Version, *, fresh: bool = False) -> tuple[Version, bool]:
    """Give the version the next free number; returns it and whether this call made it.

    Same content on the same parents adopts the version that exists; `fresh` says that no version can hold this
    content yet, so that none is looked for.
    """
    looked = max(version.parents, default=0)  # nothing older than its parents can be this version
    while True:
        wanted = dataclasses.replace(version, number=looked + 1)
        if store.create(version_key(version.dataset, wanted.number), wanted.to_json()):
            return wanted, True
        newer = [n for n in numbers(store, version.dataset) if n > looked]
        for number in [] if fresh else newer:
            other = read_version(store, version.dataset, number)
            if other.content_id == version.content_id and other.parents == version.parents:
                return other, False
        looked = max([looked, *newer])


def move_branch(store: Store, dataset: str, branch: str, expected: int | None, number: int) -> None:
    """Point the branch at `number` if it still points at `expected` (None: does not exist), or already does.

    Raises SevenfoldError when it points elsewhere. Waits for commits that are giving a version its number.
    """
    with store.locked(commits_key(dataset)):
        _move_branch(store, dataset, branch, expected, number)


def _move_branch(store: Store, dataset: str, branch: str, expected: int | None, number: int) -> None:
    if expected is None and _ref(store, dataset, "tags", check_ref(branch, "branch")) is not None:
        raise SevenfoldError(f"there is a tag {branch}", where=dataset, do="choose another name for the branch")
    old = None if expected is None else canonical_json({"version": expected})
    if store.swap(ref_key(dataset, "branches", branch), old, canonical_json({"version": number})):
        return
    there = head(store, dataset, branch)
    if there != number:
        raise SevenfoldError(
            f"the branch {branch} points at {'nothing' if there is None else f'v{there}'}",
            where=dataset,
            expected="no such branch yet" if expected is None else f"v{expected}: another writer moved it meanwhile",
            do="choose another name" if expected is None else "read the newest state and try again",
        )


def set_tag(store: Store, dataset: str, tag: str, number: int) -> None:
    """Create a tag; raises SevenfoldError when it exists and points elsewhere."""
    with store.locked(commits_key(dataset)):  # so that no branch of this name is made at the same time
        if _ref(store, dataset, "branches", check_ref(tag, "tag")) is not None:
            raise SevenfoldError(f"there is a branch {tag}", where=dataset, do="choose another name for the tag")
        made = store.create(ref_key(dataset, "tags", tag), canonical_json({"version": number}))
    if not made:
        there = _ref(store, dataset, "tags", tag)
        if there != number:
            raise SevenfoldError(f"the tag {tag} points at v{there}", do="choose another name: tags do not move")


def read_manifest(store: Store, content_id: str) -> Manifest:
    """The manifest of this content id, verified against its name."""
    return Manifest.read(store, content_id)


def write_manifest(store: Store, manifest: Manifest) -> bool:
    """Store a manifest under its content id; True when this call made the file."""
    key = manifest_key(manifest.content_id)
    while not store.create(key, manifest.to_json()):
        if store.renew(key):  # else it was garbage, and is gone now
            return False
    return True
