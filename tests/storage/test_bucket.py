"""A bucket beyond the contract: its cache, its errors, its probe, answers that are lost, servers that hang."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.bucket import BucketStore
from sevenfold.storage.objects import said

SCRIPT = Path(__file__).with_name("one_round.py")


def shard(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"shards/{digest[:2]}/{digest}.tar"


def cached(store: BucketStore) -> list[str]:
    return sorted(str(p.relative_to(store.cache)) for p in store.cache.rglob("*") if p.is_file())


# The cache


def test_what_is_named_by_its_content_is_fetched_once(proxy: Any, bucket: str) -> None:
    store, data = BucketStore(bucket), bytes(range(256)) * 1000
    store.create(shard(data), data)
    before = proxy.seen.total()
    assert store.local(shard(data)).read_bytes() == data
    assert proxy.seen.total() == before + 1
    assert BucketStore(bucket).local(shard(data)) == store.local(shard(data))
    assert proxy.seen.total() == before + 1 and cached(store) == [shard(data)]
    store.delete(shard(data))
    assert cached(store) == [], "this machine keeps no copy of what it removes"


@pytest.mark.parametrize("folder", ["shards", "manifests"])
def test_a_corrupt_object_is_named_and_never_cached(proxy: Any, bucket: str, proxying: ModuleType, folder: str) -> None:
    store, data = BucketStore(bucket), b"content"
    digest = hashlib.sha256(data).hexdigest()
    key = shard(data) if folder == "shards" else f"manifests/{digest}.json"
    store.create(key, data)
    proxy.rule = lambda method, path, n: proxying.CORRUPT if method == "GET" else proxying.PASS
    with pytest.raises(OSError, match="are not those of its name") as caught:
        store.local(key)
    assert digest in str(caught.value) and cached(store) == []
    proxy.rule = lambda method, path, n: proxying.PASS
    assert store.local(key).read_bytes() == data
    bad = shard(b"other")
    store.create(bad, data)
    with pytest.raises(OSError, match=bad):
        store.local(bad)
    assert cached(store) == [key]


def test_half_a_parquet_file_is_not_cached(bucket: str) -> None:
    store, key = BucketStore(bucket), f"overlays/{'0' * 64}.parquet"
    store.create(key, b"PAR1 half a file")
    with pytest.raises(OSError, match="overlays/000"):
        store.local(key)
    assert cached(store) == []
    store.replace(key, b"PAR1 a file PAR1")
    assert store.local(key).read_bytes() == b"PAR1 a file PAR1"


def test_a_copy_of_a_changeable_file_is_as_new_as_the_file(bucket: str) -> None:
    store, other = BucketStore(bucket), BucketStore(bucket)
    store.replace("queues/d/q.parquet", b"first")
    kept = store.local("queues/d/q.parquet")
    other.replace("queues/d/q.parquet", b"other")
    assert store.local("queues/d/q.parquet").read_bytes() == b"other"
    assert kept.read_bytes() == b"first", "whoever reads the old copy reads on undisturbed"
    other.replace("queues/d/q.parquet", b"first")
    assert store.local("queues/d/q.parquet") == kept


def test_a_copy_is_of_the_state_that_was_fetched(proxy: Any, bucket: str, proxying: ModuleType) -> None:
    """The file changes between the question for its state and the fetch."""
    store, other = BucketStore(bucket), BucketStore(bucket)
    store.replace("queues/q.parquet", b"old")
    other.replace("warm", b"up")

    def meddle(method: str, path: str, n: int) -> str:
        if method == "GET":
            proxy.rule = lambda method, path, n: proxying.PASS
            other.replace("queues/q.parquet", b"new")
        return proxying.PASS

    proxy.rule = meddle
    assert store.local("queues/q.parquet").read_bytes() == b"new"
    other.replace("queues/q.parquet", b"old")
    assert store.local("queues/q.parquet").read_bytes() == b"old"


def test_two_processes_fetch_a_big_object_at_once(bucket: str) -> None:
    store, data = BucketStore(bucket), bytes(32 << 20)
    store.create(shard(data), data)
    command = [sys.executable, str(SCRIPT), "store", bucket, "local", shard(data)]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for p in started:
        assert p.stdout is not None and p.stdout.readline() == "ready\n"
    for p in started:
        assert p.communicate("go\n", timeout=60)[0] == f"{len(data)}\n"
    assert cached(store) == [shard(data)], "and left no temporary file"


def test_a_folder_read_again_costs_one_request(proxy: Any, bucket: str) -> None:
    store = BucketStore(bucket)
    for i in range(30):
        store.replace(f"batches/d/{i:02d}.json", b"%d" % i)
    assert len(store.read_folder("batches/d", ".json")) == 30
    store.replace("batches/d/07.json", b"changed")
    before = dict(proxy.seen)
    found = BucketStore(bucket).read_folder("batches/d", ".json")
    assert found["07.json"] == b"changed" and found["08.json"] == b"8"
    assert proxy.seen["LIST"] == before["LIST"] + 1 and proxy.seen["GET"] == before["GET"] + 1


# Errors


@pytest.mark.parametrize("read", [lambda s: s.read_folder("batches/d", ".json"), lambda s: s.local("batches/d/1.json")])
def test_a_cache_that_is_barred_is_named(bucket: str, read: Callable[[BucketStore], Any]) -> None:
    store = BucketStore(bucket)
    store.replace("batches/d/1.json", b"1")
    store.cache.mkdir(parents=True)
    (store.cache / "states").write_bytes(b"in the way")
    with pytest.raises(SevenfoldError, match="the cache cannot be used") as caught:
        read(store)
    assert caught.value.where.startswith(str(store.cache / "states"))


@pytest.mark.parametrize("what", [pytest.param("read", marks=pytest.mark.slow), "replace"])
def test_an_outage_costs_time_but_no_answer(what: str, proxy: Any, bucket: str, proxying: ModuleType) -> None:
    """A store that has answered before is asked until the time is over, however quickly it refuses."""
    store = BucketStore(bucket, timeout=10)
    store.replace("x", b"1")
    left = [10]

    def refuse(method: str, path: str, n: int) -> str:
        left[0] -= 1
        return str(proxying.REFUSE if left[0] >= 0 else proxying.PASS)

    proxy.rule = refuse
    assert store.read("x") == b"1" if what == "read" else store.replace("y", b"2") is None
    assert left[0] < 0


def test_a_store_that_never_answers_is_given_up_soon(
    bucket: str, proxying: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxying.free_port()}")
    begun = time.monotonic()
    with pytest.raises(OSError, match="does not answer"):
        BucketStore(bucket).read("x")
    assert time.monotonic() - begun < 20, "the address may be wrong"


def test_a_missing_bucket_is_said_in_one_line(bucket: str) -> None:
    for act in (
        lambda s: Lake.open(s.url), lambda s: Lake.create(s.url), lambda s: s.read("x"), lambda s: s.stat("x"),
        lambda s: s.entries(""), lambda s: s.names(""), lambda s: s.local("x"), lambda s: s.create("x", b""),
        lambda s: s.replace("x", b""), lambda s: s.delete("x"),
    ):  # fmt: skip
        with pytest.raises(SevenfoldError, match="there is no bucket nowhere-at-all"):
            act(BucketStore("s3://nowhere-at-all/lake"))
    with pytest.raises(SevenfoldError, match="names no bucket"):
        BucketStore("s3:///lake")


def test_missing_credentials_are_said_in_one_line(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # nobody there: not a machine of Amazon's
    for act in (lambda s: s.read("x"), lambda s: s.names(""), lambda s: s.create("x", b"")):
        with pytest.raises(SevenfoldError, match="no credentials") as caught:
            act(BucketStore(bucket, timeout=0.3))
        assert "AWS_ACCESS_KEY_ID" in str(caught.value)


def test_half_of_the_credentials_is_as_good_as_none(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SevenfoldError, match="no credentials"):
        BucketStore(bucket, timeout=1).read("x")


def test_an_endpoint_without_tls_has_to_be_meant(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(SevenfoldError, match="AWS_ALLOW_HTTP=true"):
        BucketStore(bucket, timeout=1).read("x")


def test_a_lake_that_is_not_there_is_no_lake(bucket: str) -> None:
    with pytest.raises(SevenfoldError, match="there is no lake"):
        Lake.open(bucket)


def test_a_server_that_is_gone_is_an_oserror_that_names_the_object(
    bucket: str, proxying: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxying.free_port()}")
    store = BucketStore(bucket, timeout=0.15)
    for act in (store.read, store.stat, store.local, store.delete, store.entries, store.names):
        with pytest.raises(OSError, match=f"{bucket}/some") as caught:
            act("some")
        assert "Debug source" not in str(caught.value) and "\n" not in str(caught.value)
    for change in (store.create, store.replace):
        with pytest.raises(OSError, match=bucket):
            change("some", b"")


def test_denied_access_is_a_permission_error(bucket: str) -> None:
    xml = "<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>no such right</Message></Error>"
    text = f"Error performing GET http://x in 1ms - Server returned non-2xx status code: 403 Forbidden: {xml}\n\nDebug"
    assert said(text).endswith("403 Forbidden: no such right")
    store = BucketStore(bucket)
    error = store._objects._errors.PermissionDeniedError(text)
    failed = store._objects._failed("lake/x", error)
    assert isinstance(failed, PermissionError) and "access denied" in str(failed)


# Preconditions


def test_a_store_that_ignores_preconditions_is_refused_for_writing_only(
    proxy: Any, bucket: str, proxying: ModuleType
) -> None:
    lake = Lake.create(bucket)
    proxy.rule = lambda method, path, n: proxying.STRIP
    with pytest.raises(SevenfoldError, match="this store ignores preconditions"):
        Lake.create(bucket + "2")
    reopened = Lake.open(bucket)
    assert reopened.store.read("lake.json") and reopened.datasets() == []
    for _ in range(2):  # the second time as well
        with pytest.raises(SevenfoldError, match="ignores preconditions") as caught:
            reopened.store.create("x", b"")
    assert str(caught.value).splitlines()[0].startswith(bucket)
    with pytest.raises(SevenfoldError, match="ignores preconditions"), reopened.store.locked("x"):
        pass
    assert [e.key for e in lake.store.entries("", hidden=True)] == ["lake.json"], "the probes left nothing"


def test_a_probe_costs_four_requests_once(proxy: Any, bucket: str) -> None:
    store = BucketStore(bucket)
    store.probe()
    assert proxy.seen.total() <= 5
    store.create("a", b"")
    before = proxy.seen.total()
    store.create("b", b"")
    assert proxy.seen.total() == before + 1
    assert [e.key for e in store.entries("", hidden=True)] == ["a", "b"], "the probe leaves nothing"


@pytest.mark.parametrize("fault", ["lose the answer", "drop the request", "503"])
def test_a_put_whose_answer_is_lost_is_resolved_by_reading_back(proxy: Any, bucket: str, fault: str) -> None:
    store = BucketStore(bucket)
    store.create("warm", b"up")

    def once(wanted: str) -> None:
        def rule(method: str, path: str, n: int) -> str:
            if method != "PUT":
                return "pass"
            proxy.rule = lambda method, path, n: "pass"
            return wanted

        proxy.rule = rule

    once(fault)
    assert store.create("version", b"mine") is True, "our own try, whether it arrived or not"
    once(fault)
    assert store.create("version", b"another's") is False
    once(fault)
    assert store.swap("version", b"mine", b"next") is True
    once(fault)
    assert store.swap("version", b"mine", b"other") is False
    once(fault)
    store.replace("version", b"replaced")
    once(fault)
    assert store.update("version", lambda before: (before or b"") + b"!") == b"replaced!"
    assert store.read("version") == b"replaced!"
    once(fault)
    with store.locked("x"):
        once(fault)
    assert store.entries("", hidden=True)[0].key != ".x.lock"


# Time


def test_a_server_that_hangs_is_given_up(proxy: Any, bucket: str, proxying: ModuleType) -> None:
    store = BucketStore(bucket, timeout=0.3)
    store.create("warm", b"up")
    proxy.rule = lambda method, path, n: proxying.STALL
    for act in (lambda: store.read("x"), lambda: store.names(""), lambda: store.create("x", b"")):
        began = time.monotonic()
        with pytest.raises(OSError, match=bucket):
            act()
        assert time.monotonic() - began < 15
    assert pickle.loads(pickle.dumps(store))._timeout == 0.3


def test_an_answer_that_breaks_off_is_asked_for_again(proxy: Any, bucket: str, proxying: ModuleType) -> None:
    store, data = BucketStore(bucket), bytes(range(256)) * 4096
    store.create(shard(data), data)
    store.create("small.json", data)

    def rule(method: str, path: str, n: int) -> str:
        if method != "GET":
            return proxying.PASS
        proxy.rule = lambda method, path, n: proxying.PASS
        return proxying.TRUNCATE

    proxy.rule = rule
    assert store.read("small.json") == data
    proxy.rule = rule
    assert store.local(shard(data)).read_bytes() == data


def test_a_lock_is_measured_by_the_servers_clock(bucket: str) -> None:
    """Somebody who holds it for longer than a client waits keeps it while it is younger than lock_seconds."""
    holder, other = BucketStore(bucket), BucketStore(bucket, lock_seconds=60.0)
    order: list[str] = []

    def wait() -> None:
        with other.locked("commits"):
            order.append("other")

    with holder.locked("commits"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(2.6)
        order.append("holder")
    thread.join(20)
    assert order == ["holder", "other"]
    assert holder.entries("", hidden=True) == [], "no lock and no clock is left"


def test_a_lock_that_was_taken_over_is_not_released_by_its_old_holder(bucket: str) -> None:
    slow, thief = BucketStore(bucket, lock_seconds=1.0), BucketStore(bucket, lock_seconds=1.0)
    with slow.locked("commits"):
        time.sleep(1.2)
        taken = thief.locked("commits")
        taken.__enter__()
    assert slow.exists(".commits.lock"), "it is the other's now"
    taken.__exit__(None, None, None)
    assert not slow.exists(".commits.lock")
