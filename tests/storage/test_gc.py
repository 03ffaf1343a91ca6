"""Garbage collection takes what nothing needs, all of it, and nothing else, whoever reads or writes meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sevenfold.storage import Lake, SevenfoldError, files
from sevenfold.storage.gc import GRACE, LEAST_GRACE, Garbage, evict, gc
from sevenfold.storage.keys import index_key, manifest_key, shard_key
from sevenfold.storage.leases import LASTS, active, lease, leases
from sevenfold.storage.query import VIEWS
from sevenfold.storage.reach import reachable
from sevenfold.storage.verify import verify

SCRIPT = Path(__file__).with_name("keeping.py")
CONTENT = ("shards", "index", "overlays", "manifests")


def stored(lake: Lake) -> set[str]:
    return {e.key for folder in CONTENT for e in lake.store.entries(folder)}


def age(lake: Lake, seconds: float, folder: str = "") -> None:
    """Make every file that much older."""
    for e in lake.store.entries(folder, hidden=True):
        os.utime(lake.root / e.key, (e.modified - seconds, e.modified - seconds))


def sweep(lake: Lake, **options: float) -> list[Garbage]:
    return gc(lake.store, **{"grace": 0, "delete": True, "alone": True, **options})  # type: ignore[arg-type]


def abandon(lake: Lake, dataset: str) -> set[str]:
    """Forget a dataset's versions and batches, as if whoever wrote the files had died before it named them."""
    before = stored(lake)
    for folder in (f"datasets/{dataset}", f"batches/{dataset}", f"reviews/{dataset}"):
        shutil.rmtree(lake.root / folder, ignore_errors=True)
    return before


def grown(lake: Lake, make: SimpleNamespace, sources: Path, chance: random.Random, dataset: str) -> None:
    """A few random commits, branches, rollbacks, reviews and batches that wait."""
    for i in range(chance.randint(1, 4)):
        start = chance.randrange(200)
        source = make.folder(sources / f"{dataset}{i}", make.two_classes(chance.randint(1, 25), start))
        if chance.random() < 0.8:
            make.land(lake, source, f"b{i}", dataset=dataset)
        else:
            lake.ingest(source, dataset, f"b{i}")
            lake.set_status(dataset, f"b{i}", chance.choice(["landed", "rejected"]))
        if chance.random() < 0.3 and lake.batch(dataset, f"b{i}").status == "admitted":
            lake.pack(dataset, f"b{i}")
        elif lake.batch(dataset, f"b{i}").status == "admitted":
            make.commit(lake, dataset=dataset, branch=chance.choice(["main", "main", "trial"]))
    for branch in lake.refs(dataset, "branches"):
        ids = lake.samples(dataset, branch)["id"].to_pylist()
        edit = make.overlay(chance.sample(ids, min(len(ids), 3)), exclude=True)
        make.commit(lake, dataset=dataset, branch=branch, overlays=[edit])
        if chance.random() < 0.5:
            first = make.overlay(ids[:1], weight=chance.random())
            lake.add_review(dataset, f"r-{branch}", first, branch=branch, reviewer="x", clock=lambda: 1.0)
        if chance.random() < 0.5:
            lake.rollback(dataset, lake.versions(dataset)[0].name, branch)


@pytest.mark.parametrize("seed", range(8))
def test_all_garbage_goes_and_nothing_reachable(lake: Lake, tmp_path: Path, make: SimpleNamespace, seed: int) -> None:
    chance = random.Random(seed)
    for dataset in ("d", "e", "gone"):
        grown(lake, make, tmp_path / "sources", chance, dataset)
    abandon(lake, "gone")
    (lake.root / "shards/.tmp-00ff").write_bytes(b"half a shard")
    kept = reachable(lake.store)
    images = {
        (d, v.name): lake.read_images(lake.samples(d, v.name)) for d in ("d", "e") for v in lake.versions(d)
    }  # fmt: skip
    before = stored(lake)
    listed = gc(lake.store, grace=0)
    assert stored(lake) == before, "a dry run deletes nothing"
    done = sweep(lake)
    assert [g.key for g in done] == [g.key for g in listed] and all(g.deleted for g in done)
    assert stored(lake) == before & kept, "everything reachable stayed, everything else went"
    assert not [e for e in lake.store.entries("", hidden=True) if ".tmp-" in e.key]
    assert verify(lake.store, ["d", "e"], deep=True).clean
    assert {k: lake.read_images(lake.samples(*k)) for k in images} == images
    lake.sql(f"select {', '.join(f'(select count(*) from {view})' for view in VIEWS)}")
    for dataset in ("d", "e"):
        for branch in lake.refs(dataset, "branches"):
            make.commit(lake, dataset=dataset, branch=branch)
    assert verify(lake.store, ["d", "e"]).clean
    assert not sweep(lake)


def test_the_young_are_spared(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    abandon(lake, "d")
    assert gc(lake.store) == []
    age(lake, GRACE + 10)
    lake.store.renew(next(iter(stored(lake))))
    found = gc(lake.store, delete=True)
    assert len(found) > 2 and len(stored(lake)) == 1, "one was renewed"


@pytest.mark.parametrize("grace", [0, LEAST_GRACE - 1])
def test_a_short_grace_needs_the_promise_to_be_alone(filled: Callable[..., Lake], grace: float) -> None:
    lake = filled(5)
    with pytest.raises(SevenfoldError, match="--alone"):
        gc(lake.store, grace=grace, delete=True)
    assert gc(lake.store, grace=grace) == [], "looking is always allowed"


@pytest.mark.parametrize(
    "key",
    ["manifest", "datasets/d/versions/00000001.json", "batches/d/first.json", "datasets/d/refs/branches/main.json",
     "reviews/d/r.json", "leases/x.json", "manifest gone", "version gone"],
)  # fmt: skip
def test_with_a_root_that_cannot_be_read_nothing_is_deleted(filled: Callable[..., Lake], key: str) -> None:
    lake = filled(20)
    manifest = manifest_key(lake.version("d").content_id)
    (lake.root / "shards/.tmp-1").write_bytes(b"x")
    if key.endswith("gone"):
        lake.store.delete(manifest if key.startswith("manifest") else "datasets/d/versions/00000001.json")
    else:
        lake.store.replace(manifest if key == "manifest" else key, b'{"format": 1')
    before = [e.key for e in lake.store.entries("", hidden=True)]
    with pytest.raises(SevenfoldError):
        sweep(lake)
    assert [e.key for e in lake.store.entries("", hidden=True)] == before


def test_a_model_stays_and_a_registration_that_died_goes(filled: Callable[..., Lake]) -> None:
    lake = filled()
    for n, names in (
        ("1", ("claim.json", "model.safetensors", "model.json")),
        ("2", ("claim.json", "model.safetensors")),
    ):
        for name in names:
            lake.store.create(f"models/m/{n}/{name}", b"{}")
    lake.store.create("models/m/aliases/champion.json", b"{}")
    age(lake, 2 * GRACE, "models")
    lake.store.renew("models/m/2/claim.json")
    assert gc(lake.store) == [], "one that goes on has made its claim young again"
    age(lake, 2 * GRACE, "models/m/2")
    assert [g.key for g in gc(lake.store, delete=True)] == ["models/m/2/model.safetensors"]
    assert lake.store.names("models/m/2") == ["claim.json"], "the number stays taken"
    assert lake.store.names("models/m/1") == ["claim.json", "model.json", "model.safetensors"]


def test_leftovers_of_launches_landings_and_selections(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    for key in (
        "runs/.launches/abc-1/spec.json", "runs/.launches/abc-1/log.txt", "runs/.launches/def-2/spec.json",
        "runs/.selections/aaaa.json", "runs/.selections/bbbb.json", "batches/d/.landing-0f-00000000-00000009.arrow",
        "batches/d/.landing-1f-00000000-00000009.arrow", "runs/run-1/checkpoints/.tmp-77/meta.json",
    ):  # fmt: skip
        lake.store.replace(key, b"{}")
    lake.store.replace("runs/run-1/config.json", b'{"select_ids": "/x/runs/.selections/bbbb.json"}')
    age(lake, GRACE + 10)
    lake.store.replace("batches/d/.landing-1f-00000010-00000019.arrow", b"")
    with files.locked(lake.root / "runs/.launches/def.lock"):
        pass
    lock = lake.root / "runs/.launches/def.lock"
    (lock.parent / ".def.lock.lock").rename(lock)
    with open(lock, "rb+") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        found = gc(lake.store, delete=True)
    assert [g.key for g in found] == [
        "batches/d/.landing-0f-00000000-00000009.arrow", "runs/.launches/abc-1/log.txt",
        "runs/.launches/abc-1/spec.json", "runs/.selections/aaaa.json", "runs/run-1/checkpoints/.tmp-77/meta.json",
    ]  # fmt: skip
    assert not (lake.root / "runs/.launches/abc-1").exists() and (lake.root / "runs/.launches/def-2").exists()
    assert [g.key for g in gc(lake.store, delete=True)] == ["runs/.launches/def-2/spec.json"], "its process has ended"


def test_a_lease_of_a_running_process_keeps_a_version_and_ends_with_it(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    version = lake.version("d")
    shards = {shard_key(s["digest"]) for s in lake.manifest(version.content_id).shards}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "reads", str(lake.root), version.content_id],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    before = abandon(lake, "d")
    (held,) = active(lake.store)
    assert (held.pid, held.what, held.content_ids) == (process.pid, "reading", (version.content_id,))
    time.sleep(1.5)  # longer than a lease lasts: it has been renewed
    assert not sweep(lake) and stored(lake) == before
    process.kill()
    process.wait()
    process.communicate()
    time.sleep(1.1)
    assert not active(lake.store)
    assert shards < {g.key for g in sweep(lake)} and not stored(lake) and not leases(lake.store)


def test_a_lease_is_gone_when_its_holder_ends_and_expires_when_it_does_not(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    with lease(lake.store, "looking", keys=["shards/00/x.tar"], clock=lambda: 1000.0) as held:
        assert leases(lake.store) == [held]
        assert active(lake.store, clock=lambda: 1000.0 + LASTS - 1) == [held]
        assert active(lake.store, clock=lambda: 1000.0 + LASTS + 1) == []
        assert "shards/00/x.tar" in reachable(lake.store, clock=lambda: 1001.0)
    assert leases(lake.store) == []
    with pytest.raises(KeyError), lease(lake.store, "failing"):
        raise KeyError
    assert leases(lake.store) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_lake_that_cannot_be_written_is_read_with_a_warning(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    lake.root.chmod(0o555)
    try:
        with pytest.warns(RuntimeWarning, match="no lease can be written"), lease(lake.store, "train"):
            assert lake.samples("d").num_rows == 5
    finally:
        lake.root.chmod(0o755)


def test_a_file_where_leases_belong_is_no_reason_not_to_read(filled: Callable[..., Lake]) -> None:
    lake = filled(5)
    (lake.root / "leases").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="no lease can be written"), lease(lake.store, "train"):
        assert lake.samples("d").num_rows == 5


def test_commits_that_take_up_what_a_dead_one_left_race_with_deletion(tmp_path: Path, make: SimpleNamespace) -> None:
    """The files are old garbage until the moment a commit finds and names them again."""
    sources = [make.folder(tmp_path / f"s{i}", make.two_classes(12, 100 * i)) for i in range(8)]
    lake = Lake.create(tmp_path / "lake", shard_bytes=16 << 10)
    for i, source in enumerate(sources):
        make.land(lake, source, f"b{i}")
        make.commit(lake)
    expected = lake.version("d").content_id
    for round_ in range(2):
        abandon(lake, "d")
        age(lake, 2 * LEAST_GRACE)
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "commits", str(lake.root), *map(str, sources)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        time.sleep(0.05 * round_)
        while process.poll() is None:
            gc(lake.store, grace=LEAST_GRACE, delete=True)
        said = process.communicate()[0].decode().split()
        assert process.returncode == 0 and len(said) == len(sources) and said[-1] == expected
        assert verify(lake.store, ["d"]).clean, f"round {round_}"


def test_whatever_a_commit_has_found_stays_until_it_is_named(filled: Callable[..., Lake]) -> None:
    """Garbage is collected after every shard that the commit takes up, long before a version names it."""
    lake = filled(60)
    expected, before = lake.version("d").content_id, abandon(lake, "d")
    lake.ingest(lake.root.parent / "filled", "d", "first", clock=lambda: 1.0)
    lake.set_status("d", "first", "admitted")
    age(lake, 2 * LEAST_GRACE)
    rounds: list[int] = []

    def collect(done: int, total: int, what: str) -> None:
        rounds.append(len(gc(lake.store, grace=LEAST_GRACE, delete=True)))

    assert lake.commit("d", message="again", progress=collect)[0].content_id == expected
    assert len(rounds) > 4 and rounds[0] > 0, "what it had not come to yet was taken, and written again"
    assert stored(lake) == before and verify(lake.store, ["d"]).clean


def test_what_is_renewed_between_the_list_and_the_deletion_stays(filled: Callable[..., Lake]) -> None:
    lake = filled(20)
    abandon(lake, "d")
    age(lake, 2 * GRACE)
    keys = sorted(stored(lake))

    def adopted(done: int, total: int, what: str) -> None:
        if done == 0:
            assert all(lake.store.renew(k) for k in keys[3:])

    found = gc(lake.store, delete=True, progress=adopted)
    assert sorted(stored(lake)) == keys[3:]
    assert {g.key for g in found} >= set(keys[:3])


def test_in_a_bucket_garbage_dead_locks_and_old_copies_go(bucket: str, tmp_path: Path, make: SimpleNamespace) -> None:
    lake = Lake.create(bucket, shard_bytes=8 << 10)
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(20)), "b")
    version = make.commit(lake)
    lake.store.create("shards/ff/" + "f" * 64 + ".tar", b"nobody's")
    lake.store.create("datasets/d/.commits.lock", b'{"holder":"dead","time":0}')
    late = time.time() + 2 * GRACE
    found = gc(lake.store, delete=True, clock=lambda: late)
    assert [g.key for g in found] == ["shards/ff/" + "f" * 64 + ".tar"], "a lock is as old as the bucket says"
    assert lake.store.exists("datasets/d/.commits.lock")
    lake.store.delete("datasets/d/.commits.lock")
    assert verify(lake.store, ["d"]).clean

    samples = lake.samples("d")
    lake.read_images(samples)
    cache = lake.store.cache  # type: ignore[attr-defined]
    copies = list(cache.rglob("*.tar"))
    assert copies
    with lease(lake.store, "train", content_ids=[version.content_id]):
        evict(lake.store, 0, delete=True)
        assert all(c.exists() for c in copies) and (cache / index_key(samples_index(lake))).exists()
    assert evict(lake.store, 1 << 30) == []
    assert {str(cache / g.key) for g in evict(lake.store, 0)} >= {str(c) for c in copies}
    assert all(c.exists() for c in copies), "a dry run"
    evict(lake.store, 0, delete=True)
    assert not [p for p in cache.rglob("*") if p.is_file()]
    assert lake.read_images(samples)


def samples_index(lake: Lake) -> str:
    return str(lake.manifest(lake.version("d").content_id).batches[0]["index"])
