"""Random sequences of all operations on a lake, beside a model of what every version must hold, sample by sample."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sevenfold.storage import Lake, SevenfoldError, Version, takedown
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.diff import diff
from sevenfold.storage.gc import gc
from sevenfold.storage.index import OVERLAY
from sevenfold.storage.merge import MergeConflict
from sevenfold.storage.verify import verify
from sevenfold.storage.versions import ancestors
from sevenfold.storage.views import VIEWS

IMAGES = 14
"""How many different images there are, so that batches overlap."""

BRANCHES = ("main", "trial", "other")
SPLITS = ("train", "val", "test", "pool")


@dataclass(frozen=True)
class Row:
    """What a version says of a sample; excluded ones too."""

    label: str | None
    split: str
    weight: float = 1.0
    excluded: bool = False

    def edited(self, edit: dict[str, Any]) -> Row:
        """After an overlay's row."""
        said = {("excluded" if k == "exclude" else k): v for k, v in edit.items() if k != "id" and v is not None}
        return replace(self, **said)


class World:
    """A lake, the model, and one method per operation; each checks what it is about itself."""

    def __init__(self, root: Path, make: SimpleNamespace, seed: int) -> None:
        self.root, self.make, self.random = root, make, random.Random(seed)
        self.lake = Lake.create(root / "lake", shard_bytes=4 << 10)
        self.images = [make.png(i, 8, 8 + i % 3) for i in range(IMAGES)]
        self.ids = [digest_bytes(image) for image in self.images]
        self.gone: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        self.model: dict[int, dict[str, Row]] = {}
        self.contents: dict[int, str] = {}
        self.told: list[str] = []
        self.clock = 0.0

    def tick(self) -> float:
        """Times that count up, so that every version can be asked for by its time."""
        self.clock += 86400.0
        return self.clock

    # Operations

    def land(self) -> None:
        """A batch of some images, some of them labelled anew, some twice, some broken."""
        name = f"b{len(self.lake.batches('d')):02d}"
        members: dict[str, bytes] = {}
        for i in self.random.sample(range(IMAGES), self.random.randint(1, 6)):
            kind = self.random.choice(["cat/", "cat/", "dog/", "dog/", ""])
            members[f"{kind}alice-{i:02d}-{name}.png"] = self.images[i]
            if self.random.random() < 0.15:
                members[f"{self.random.choice(['cat', 'dog'])}/alice-{i:02d}-again-{name}.png"] = self.images[i]
        if self.random.random() < 0.2:
            members["cat/broken.png"] = b"no image"
        source = self.make.folder(self.root / name, members)
        batch, new = self.lake.ingest(source, "d", name, clock=self.tick)
        assert new
        assert not set(self.lake.batch_rows("d", name)["id"].to_pylist()) & self.gone
        assert self.lake.ingest(source, "d", name) == (batch, False)
        rows = self.lake.batch_rows("d", name).to_pylist()
        if rows and self.random.random() < 0.2:  # what cannot be read any more is set aside when it is packed
            lost = self.random.choice(rows)
            (source / lost["path"]).unlink()
            self.lost.add((name, lost["id"]))
        if self.random.random() < 0.85:
            self.lake.set_status("d", name, "admitted", clock=self.tick)

    def judge(self) -> None:
        """Admit or withdraw a batch that is in no version."""
        waiting = [b.batch for b in self.lake.batches("d") if b.status != "committed"]
        if waiting:
            name = self.random.choice(waiting)
            if self.random.random() < 0.5:
                self.lake.withdraw("d", name, "looks odd", clock=self.tick)
            else:
                self.lake.set_status("d", name, "admitted", clock=self.tick)

    def pack(self) -> None:
        """Shards ahead of the commit, on a branch that may not be the one that takes them up."""
        ready = [b.batch for b in self.lake.batches("d") if b.status == "admitted"]
        branches = list(self.lake.refs("d", "branches"))
        if ready and branches:
            self.lake.pack("d", self.random.choice(ready), self.random.choice(branches))

    def edits(self, branch: str) -> list[dict[str, Any]]:
        """Rows of an overlay about some samples of a branch's head."""
        known = self.head(branch)
        rows = []
        for key in self.random.sample(sorted(known), min(len(known), self.random.randint(1, 3))):
            row: dict[str, Any] = {"id": key}
            for field, values in (
                ("exclude", [True, True, False]), ("label", ["cat", "dog"]), ("split", SPLITS), ("weight", [0.5, 2.0])
            ):  # fmt: skip
                if self.random.random() < 0.35:
                    row[field] = self.random.choice(values)
            rows.append({**row, "reason": f"alice said so of {key[:6]}"})
        return rows

    def review(self) -> None:
        """Decisions that wait for a commit."""
        branches = list(self.lake.refs("d", "branches"))
        if branches:
            branch = self.random.choice(branches)
            rows = self.edits(branch)
            if rows:
                self.lake.add_review(
                    "d", f"r{len(self.lake.reviews('d')):02d}", table(rows), branch=branch, reviewer="r",
                    clock=self.tick,
                )  # fmt: skip

    def head(self, branch: str) -> dict[str, Row]:
        """The model of a branch's head."""
        number = self.lake.refs("d", "branches").get(branch)
        return self.model[number] if number else {}

    def commit(self) -> None:
        """What is admitted, the reviews that wait, and perhaps an edit; and the same once more."""
        branches = self.lake.refs("d", "branches")
        branch = self.random.choice(list(branches) or ["main"])
        expected = dict(self.head(branch))
        held = set(self.lake.manifest(self.lake.version("d", branch).content_id).batch_ids) if branches else set()
        for batch in self.lake.batches("d"):
            if batch.status == "admitted" and batch.batch not in held:
                for row in self.lake.batch_rows("d", batch.batch).to_pylist():
                    if (batch.batch, row["id"]) not in self.lost:
                        expected.setdefault(row["id"], Row(row["label"], row["split"]))
        reviews = self.lake.pending_reviews("d", branch)
        overlays = [self.lake.overlay(r.overlay) for r in reviews]
        own = self.edits(branch) if branches and self.random.random() < 0.5 else []
        overlays += [table(own)] if own else []
        for overlay in overlays:
            for row in overlay.select(["id", "exclude", "label", "split", "weight"]).to_pylist():
                expected[row["id"]] = expected[row["id"]].edited(row)
        options: dict[str, Any] = {"branch": branch, "overlays": overlays, "message": "m", "clock": self.tick}
        try:
            version, new = self.lake.commit("d", **options)
        except SevenfoldError as e:
            if "no admitted batch" in e.found:
                return
            assert "have no bytes any more" in e.found, e
            for review in reviews:  # nobody can commit it: it is given up
                self.lake.store.delete(f"reviews/d/{review.name}.json")
            return
        again, once_more = self.lake.commit("d", **options)
        assert (again.number, once_more) == (version.number, False)
        self.lake.settle_reviews(reviews, version)
        self.record(version, new, expected)

    def compact(self) -> None:
        """The same samples; a second compaction has nothing to do."""
        branch = self.any_branch()
        if branch:
            expected = self.head(branch)
            version, new = self.lake.compact("d", branch, clock=self.tick)
            self.record(version, new, expected)
            assert self.lake.compact("d", branch) == (version, False)
            for split in SPLITS:
                if not self.lake.manifest(version.content_id).overlays:
                    for url in self.lake.urls("d", version.name, split):
                        assert Path(url.removeprefix("file://")).exists()

    def branch(self) -> None:
        """A branch off any version."""
        free = [b for b in BRANCHES if b not in self.lake.refs("d", "branches")]
        if free and self.model:
            self.lake.branch("d", free[0], f"v{self.random.choice(sorted(self.model))}")

    def rollback(self) -> None:
        """A branch back to a version of its past."""
        branch = self.any_branch()
        if branch:
            past = [v.name for v in ancestors(self.lake.store, self.lake.version("d", branch))]
            self.lake.rollback("d", self.random.choice(past[:3]), branch)

    def merge(self) -> None:
        """Every sample as the side that changed it has it, or a conflict and nothing."""
        ours, theirs = self.any_branch(), self.any_branch()
        if not ours or not theirs:
            return
        line = {v.number for v in ancestors(self.lake.store, self.lake.version("d", theirs))}
        behind = [v.number for v in ancestors(self.lake.store, self.lake.version("d", ours))]
        base = self.model.get(next((n for n in behind if n in line), 0), {})
        mine, other = self.head(ours), self.head(theirs)
        before = self.lake.version("d", ours)
        try:
            version, new = self.lake.merge("d", theirs, ours, clock=self.tick)
        except MergeConflict:
            assert self.lake.version("d", ours) == before
            return
        except SevenfoldError as e:
            assert "class " in e.found, e
            return
        expected = {}
        for key in [*mine, *(k for k in other if k not in mine)]:
            a, b, was = mine.get(key), other.get(key), base.get(key)
            if a is None or b is None:
                expected[key] = a or b
                continue
            fields = {
                f: getattr(b, f) if was and getattr(b, f) != getattr(was, f) else getattr(a, f)
                for f in ("label", "split", "weight", "excluded")
            }
            expected[key] = Row(**fields)
        self.record(version, new, expected)
        assert not self.lake.merge("d", theirs, ours)[1]

    def take_down(self) -> None:
        """One sample, or several, or all of a batch; afterwards nothing of them is anywhere."""
        known = sorted({i for rows in self.model.values() for i in rows} | self.landed())
        known = [i for i in known if i not in self.gone]
        if not known:
            return
        if self.random.random() < 0.2 and self.lake.batches("d"):
            batch = self.random.choice(self.lake.batches("d")).batch
            ids = sorted(set(self.lake.batch_rows("d", batch)["id"].to_pylist()))
        else:
            ids = self.random.sample(known, min(len(known), self.random.choice([1, 1, 1, 2, 3])))
        if not ids:
            return
        request = takedown.Request(where=f"id in ({', '.join(map(repr, ids))})")
        if len(ids) == 1 and self.random.random() < 0.5:
            request = takedown.Request(key=ids[0])
        found = takedown.find(self.lake.store, request)
        assert isinstance(found, takedown.Takedown) or set(found.ids) <= set(ids)
        if not isinstance(found, takedown.Takedown):
            assert set(found.ids) == set(ids)
            done = takedown.carry_out(self.lake.store, request, found, "asked for", clock=self.tick)
            assert takedown.find(self.lake.store, takedown.Request(key=ids[0])) == done
        self.gone |= set(ids)
        self.nothing_is_left()

    def collect(self) -> None:
        """Garbage collection without mercy; a second one finds nothing."""
        gc(self.lake.store, grace=0.0, delete=True, alone=True)
        assert not gc(self.lake.store, grace=0.0, delete=True, alone=True)

    def land_again(self) -> None:
        """The sources of old batches under new names: nothing that was taken down comes back."""
        batches = self.lake.batches("d")
        if batches:
            old = self.random.choice(batches)
            name = f"b{len(batches):02d}"
            if not any(p.is_file() for p in Path(old.source).rglob("*")):
                return
            self.lake.ingest(old.source, "d", name, clock=self.tick)
            landed = set(self.lake.batch_rows("d", name)["id"].to_pylist())
            assert not landed & self.gone
            self.lake.set_status("d", name, self.random.choice(["admitted", "rejected"]), clock=self.tick)

    def any_branch(self) -> str | None:
        """A branch that exists."""
        branches = list(self.lake.refs("d", "branches"))
        return self.random.choice(branches) if branches else None

    def landed(self) -> set[str]:
        """Ids of all landings."""
        batches = self.lake.batches("d")
        return {i for b in batches for i in self.lake.batch_rows("d", b.batch)["id"].to_pylist()}

    def record(self, version: Version, new: bool, expected: dict[str, Row]) -> None:
        """A version that an operation gave: new ones enter the model, old ones must be what they were."""
        if version.number not in self.model:
            self.model[version.number] = dict(expected)
            self.contents[version.number] = version.content_id
        shown = {k: v for k, v in expected.items() if k not in self.gone}
        there = {k: v for k, v in self.model[version.number].items() if k not in self.gone}
        assert shown == there, version.name

    # Checks

    def check(self) -> None:
        """What must hold after every operation."""
        lake = self.lake
        self.make.reconciles(lake)
        versions = lake.versions("d") if "d" in lake.store.names("datasets") else []
        assert {v.number: v.content_id for v in versions} == self.contents
        for version in versions:
            shown = lake.samples("d", version.name)
            expected = {
                k: (r.label, r.split, r.weight)
                for k, r in self.model[version.number].items()
                if not r.excluded and k not in self.gone
            }
            assert said(shown) == expected, version.name
            assert shown.num_rows == len(expected)
            assert [digest_bytes(x) for x in lake.read_images(shown)] == shown["id"].to_pylist()
            assert lake.properties("d", version.name)["id"].to_pylist() == shown["id"].to_pylist()
            masked = lake.samples_of(version.content_id, masked=True)
            assert masked.num_rows >= shown.num_rows
            kept = masked.filter(pc.is_valid(masked["path"]))
            assert kept["id"].to_pylist() == shown["id"].to_pylist()

    def check_all(self) -> None:
        """What takes longer: verification, every view, every pair of versions."""
        lake = self.lake
        report = verify(lake.store, lake.datasets(), threads=1)
        assert not report.findings, report.findings
        versions = lake.versions("d") if "d" in lake.store.names("datasets") else []
        with lake.session() as ask:
            for view in VIEWS:
                ask.run(f"select * from {view}", "d" if versions else None)
            for version in versions:
                shown = lake.samples("d", version.name)
                asked = ask.run("select id, label, split, weight from samples", "d", version.name)
                assert said(asked) == said(shown), version.name
                assert asked.num_rows == shown.num_rows
            every = ask.run("select version, count(*) n from samples_all group by 1").to_pylist()
        counted = {v.name: n for v in versions if (n := lake.samples("d", v.name).num_rows)}
        assert {r["version"]: r["n"] for r in every} == counted
        for a in self.random.sample(versions, min(len(versions), 4)):
            for b in self.random.sample(versions, min(len(versions), 3)):
                expected = diff(lake.samples("d", a.name), lake.samples("d", b.name))
                found = lake.diff("d", a.name, b.name)
                assert found["counts"] == expected["counts"], (a.name, b.name)
                order = [("change", "ascending"), ("id", "ascending")]
                assert found["rows"].sort_by(order).to_pylist() == expected["rows"].sort_by(order).to_pylist()

    def nothing_is_left(self) -> None:
        """No file holds bytes, names, pixels or words of what was taken down."""
        gone = [i for i, key in enumerate(self.ids) if key in self.gone]
        needles = [self.images[i][40:-20] for i in gone]
        names = [f"alice-{i:02d}-" for i in gone] + [f"alice said so of {self.ids[i][:6]}" for i in gone]
        for path in (p for p in self.lake.root.rglob("*") if p.is_file()):
            data = path.read_bytes()
            assert not any(n in data for n in needles), path
            text = data.decode("latin-1")
            if path.suffix == ".parquet":  # a file that was refused later is named, so that its owner hears of it
                text = repr([r for r in pq.read_table(path).to_pylist() if r.get("reason") != "taken_down"])
            assert not [n for n in names if n in text], path

    def run(self, steps: int) -> None:
        """Random operations, checked after each."""
        operations: list[Callable[[], None]] = [
            self.land, self.judge, self.pack, self.review, self.commit, self.compact, self.branch, self.rollback,
            self.merge, self.take_down, self.collect, self.land_again,
        ]  # fmt: skip
        weights = [5, 1, 2, 3, 8, 2, 2, 1, 3, 2, 2, 2]
        for _ in range(steps):
            operation = self.random.choices(operations, weights)[0]
            self.told.append(operation.__name__)
            operation()
            self.check()
        self.check_all()
        self.collect()
        self.check()
        self.nothing_is_left()


def said(samples: pa.Table) -> dict[str, tuple[Any, ...]]:
    """id -> label, split, weight."""
    return {r["id"]: (r["label"], r["split"], r["weight"]) for r in samples.to_pylist()}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """An overlay."""
    return pa.Table.from_pylist(rows, schema=OVERLAY)


@pytest.mark.parametrize("seed", [402, 404])
def test_any_sequence_of_operations_leaves_every_version_what_it_was(
    tmp_path: Path, make: SimpleNamespace, seed: int
) -> None:
    World(tmp_path, make, seed).run(22)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1000, 1016))
def test_long_sequences(tmp_path: Path, make: SimpleNamespace, seed: int) -> None:
    World(tmp_path, make, seed).run(50)
