"""What the versions of a lake are made of, each entry once: where verification, repair and garbage collection begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sevenfold.storage import redactions, versions
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.keys import manifest_key, refs_folder, version_key
from sevenfold.storage.records import Manifest, Version
from sevenfold.storage.store import Store


@dataclass
class Part:
    """One entry (batch, index, samples, shards) as it is today, and the versions that hold it.

    `before`: the entries in front of it in the oldest of these versions; `classes`: its classes there.
    """

    dataset: str
    entry: Mapping[str, Any]
    before: tuple[Mapping[str, Any], ...]
    classes: tuple[str, ...]
    versions: list[str] = field(default_factory=list)


@dataclass
class Held:
    """A version and its parts, in the manifest's order."""

    version: Version
    manifest: Manifest
    parts: list[Part]

    @property
    def name(self) -> str:
        """`pets/v3`: a version among those of several datasets."""
        return f"{self.version.dataset}/{self.version.name}"

    @property
    def indexes(self) -> tuple[str, ...]:
        """The digests of its indexes."""
        return tuple(p.entry["index"] for p in self.parts if p.entry["index"])


@dataclass
class Survey:
    """The readable versions of some datasets, their parts, and what cannot be read."""

    versions: list[Held] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    unreadable: list[tuple[str, str, str]] = field(default_factory=list)
    """(key, version's name, what is wrong)."""


BROKEN = (SevenfoldError, TypeError, KeyError, AttributeError)
"""What reading a damaged record raises: JSON may be sound and still of another shape."""


def reason(error: Exception) -> str:
    """What to tell of one of BROKEN."""
    return error.found if isinstance(error, SevenfoldError) else f"its fields are not those it should have ({error})"


def survey(store: Store, datasets: Sequence[str], ref: str | None = None) -> Survey:
    """Read every version of some datasets, or the one that `ref` names. Raises SevenfoldError when it names none."""
    found, redacted = Survey(), redactions.current(store)
    parts: dict[tuple[str, str | None, tuple[str, ...]], Part] = {}
    for dataset in datasets:
        for version in _versions(store, dataset, ref, found):
            held = Held(version, Manifest((), (), (), {}), [])
            try:
                held.manifest = redactions.opened(versions.read_manifest(store, version.content_id), redacted)
            except BROKEN as e:
                found.unreadable.append((manifest_key(version.content_id), held.name, reason(e)))
                continue
            for now in held.manifest.batches:
                name = (dataset, now["index"], tuple(s["digest"] for s in now["shards"]))
                if name not in parts:
                    before = tuple(p.entry for p in held.parts)
                    parts[name] = Part(dataset, now, before, held.manifest.classes)
                parts[name].versions.append(held.name)
                held.parts.append(parts[name])
            found.versions.append(held)
    found.parts = list(parts.values())
    return found


def _versions(store: Store, dataset: str, ref: str | None, found: Survey) -> Iterator[Version]:
    if ref is not None:
        yield versions.resolve(store, dataset, ref)
        return
    for number in versions.numbers(store, dataset):
        try:
            yield versions.read_version(store, dataset, number)
        except BROKEN as e:
            found.unreadable.append((version_key(dataset, number), f"{dataset}/v{number}", reason(e)))
    for kind in ("branches", "tags"):
        try:
            refs = versions.read_refs(store, dataset, kind)
        except BROKEN as e:
            found.unreadable.append((refs_folder(dataset, kind), dataset, reason(e)))
            continue
        for name, number in refs.items():
            if not store.exists(version_key(dataset, number)):
                found.unreadable.append(
                    (version_key(dataset, number), f"{dataset}/v{number}", f"{name} points at it, and it is not there")
                )
