"""Versions: commits numbered per dataset, branches and tags that point at them, and what differs between two.

The commit protocol is the log itself: `versions/00000007.json` is created only if absent, so of two writers one gets
the number and the other takes the next; a branch then moves by compare-and-swap.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import check_name, check_ref, version_number
from sevenfold.storage.records import Manifest, Version


def versions_folder(root: Path, dataset: str) -> Path:
    """The folder of the dataset's version files."""
    return root / "datasets" / check_name(dataset, "dataset name") / "versions"


def list_versions(root: Path, dataset: str) -> list[Version]:
    """All versions, oldest first."""
    folder = versions_folder(root, dataset)
    return [Version.read(p) for p in sorted(folder.glob("[0-9]*.json"))] if folder.exists() else []


def read_refs(root: Path, dataset: str, kind: str) -> dict[str, int]:
    """Branches or tags (`kind`): name -> version number."""
    folder = _refs_folder(root, dataset, kind)
    if not folder.exists():
        return {}
    return {p.stem: json.loads(p.read_bytes())["version"] for p in sorted(folder.glob("[!.]*.json"))}


def _refs_folder(root: Path, dataset: str, kind: str) -> Path:
    if kind not in ("branches", "tags"):
        raise SevenfoldError(f"{kind!r} is no kind of ref", expected="branches or tags")
    return root / "datasets" / check_name(dataset, "dataset name") / "refs" / kind


def resolve(root: Path, dataset: str, ref: str) -> Version:
    """The version named by a branch, a tag, `v7` or the start (6 digits or more) of a content id.

    Raises SevenfoldError naming what there is.
    """
    branches, tags = read_refs(root, dataset, "branches"), read_refs(root, dataset, "tags")
    number = branches.get(ref, tags.get(ref, version_number(ref)))
    if number is not None:
        path = versions_folder(root, dataset) / f"{number:08d}.json"
        if path.exists():
            return Version.read(path)
    found = list_versions(root, dataset)
    if len(ref) >= 6:
        matches = [v for v in found if v.content_id.startswith(ref)]
        if len({v.content_id for v in matches}) == 1:
            return matches[-1]
    if not found:
        datasets = sorted(p.name for p in (root / "datasets").glob("[!.]*")) if (root / "datasets").exists() else []
        raise SevenfoldError(
            f"the dataset {dataset!r} has no version yet",
            where=str(root),
            expected=f"one of the datasets {', '.join(datasets)}" if datasets else "a commit",
            do="ingest a batch, check it and commit",
        )
    raise SevenfoldError(
        f"{ref!r} names no version of {dataset}",
        where=str(root),
        expected=f"v1 ... v{found[-1].number}, a branch ({', '.join(branches) or 'none'}), a tag "
        f"({', '.join(tags) or 'none'}) or 6 digits of a content id",
    )


def append(root: Path, version: Version) -> tuple[Version, bool]:
    """Give the version the next free number; returns it and whether this call made it.

    Same content on the same parents adopts the version that exists.
    """
    number = version.number
    while True:
        for other in list_versions(root, version.dataset):
            if other.content_id == version.content_id and other.parents == version.parents:
                return other, False
            number = max(number, other.number + 1)
        version = Version(**{**version.__dict__, "number": number})
        path = versions_folder(root, version.dataset) / f"{number:08d}.json"
        if files.create(path, version.to_json()):
            return version, True


def move_branch(root: Path, dataset: str, branch: str, expected: int | None, number: int) -> None:
    """Point the branch at `number` if it still points at `expected` (None: does not exist), or already does.

    Raises SevenfoldError when it points elsewhere.
    """
    path = _refs_folder(root, dataset, "branches") / f"{check_ref(branch, 'branch')}.json"
    if expected is None and branch in read_refs(root, dataset, "tags"):
        raise SevenfoldError(f"there is a tag {branch}", where=dataset, do="choose another name for the branch")
    old = None if expected is None else canonical_json({"version": expected})
    try:
        files.compare_and_swap(path, old, canonical_json({"version": number}))
    except SevenfoldError:
        there = read_refs(root, dataset, "branches").get(branch)
        if there == number:
            return
        raise SevenfoldError(
            f"the branch {branch} points at {'nothing' if there is None else f'v{there}'}",
            where=dataset,
            expected="no such branch yet" if expected is None else f"v{expected}: another writer moved it meanwhile",
            do="choose another name" if expected is None else "read the newest state and try again",
        ) from None


def set_tag(root: Path, dataset: str, tag: str, number: int) -> None:
    """Create a tag; raises SevenfoldError when it exists and points elsewhere."""
    path = _refs_folder(root, dataset, "tags") / f"{check_ref(tag, 'tag')}.json"
    if tag in read_refs(root, dataset, "branches"):
        raise SevenfoldError(f"there is a branch {tag}", where=dataset, do="choose another name for the tag")
    if not files.create(path, canonical_json({"version": number})):
        there = json.loads(path.read_bytes())["version"]
        if there != number:
            raise SevenfoldError(f"the tag {tag} points at v{there}", do="choose another name: tags do not move")


def manifest_path(root: Path, content_id: str) -> Path:
    """Where the manifest of this content id lies."""
    return root / "manifests" / f"{content_id}.json"


def read_manifest(root: Path, content_id: str) -> Manifest:
    """The manifest of this content id, verified against its name."""
    return Manifest.read(manifest_path(root, content_id))


def diff(before: pa.Table, after: pa.Table) -> dict[str, Any]:
    """What changed between two versions' effective samples.

    Returns counts (added, removed, relabelled, moved, reweighted) and, under `rows`, a table of the changed ids:
    id, change, before, after.
    """
    place = pc.index_in(after["id"], value_set=before["id"].combine_chunks())
    parts: list[pa.Table] = []

    def part(change: str, ids: Any, old: Any, new: Any) -> None:
        n = len(ids)
        texts = [c.cast(pa.string()) if c is not None else pa.nulls(n, pa.string()) for c in (old, new)]
        parts.append(
            pa.table({"id": ids, "change": pa.array([change] * n, pa.string()), "before": texts[0], "after": texts[1]})
        )

    added = after.filter(pc.is_null(place))
    part("added", added["id"], None, added["label"])
    gone = before.filter(pc.is_null(pc.index_in(before["id"], value_set=after["id"].combine_chunks())))
    part("removed", gone["id"], gone["label"], None)
    both = after.filter(pc.is_valid(place))
    was = before.take(place.drop_null())
    for change, column in (("relabelled", "label"), ("moved", "split"), ("reweighted", "weight")):
        same = pc.fill_null(pc.equal(both[column], was[column]), False)
        neither = pc.and_(pc.is_null(both[column]), pc.is_null(was[column]))
        changed = pc.invert(pc.or_(same, neither))
        part(change, both["id"].filter(changed), was[column].filter(changed), both[column].filter(changed))
    rows = pa.concat_tables([p.cast(parts[0].schema) for p in parts])
    counts = {
        name: parts[i].num_rows for i, name in enumerate(("added", "removed", "relabelled", "moved", "reweighted"))
    }
    return {"counts": counts, "rows": rows}
