"""Foreign WebDataset tars: every hazard is found, named by tar and member, and nothing is merged, split or dropped."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.sources import MAX_FILE_BYTES, InputError, Source, open_source

IMAGE = b"the bytes of an image"  # listing does not decode


def member(name: str | bytes, data: bytes = IMAGE, kind: bytes = b"0", **fields: Any) -> bytes:
    """One member packed by hand: name, size and type as told, whatever they mean; checksum right unless told."""
    name = name.encode() if isinstance(name, str) else name
    size = fields.get("size", len(data))
    octal = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + octal + b"00000000000\0" + b" " * 8 + kind
    block += fields.get("link", b"").ljust(100, b"\0") + b"ustar\00000" + bytes(247)
    block = block.ljust(512, b"\0")
    checksum = sum(block) + fields.get("off_by", 0)
    return block[:148] + b"%06o\0 " % checksum + block[156:] + data + bytes(-len(data) % 512)


def rechecked(data: bytes, at: int, field: bytes) -> bytes:
    """The member with other bytes in its header and a checksum that fits."""
    data = data[:at] + field + data[at + len(field) :]
    block = data[:148] + b" " * 8 + data[156:512]
    return block[:148] + b"%06o\0 " % sum(block) + block[156:] + data[512:]


def tar(*members: bytes, end: bytes = bytes(1024)) -> bytes:
    return b"".join(members) + end


def sample(key: str, label: int = 0, ext: str = "jpg") -> bytes:
    return member(f"{key}.{ext}") + member(f"{key}.cls", b"%d" % label)


def pax(records: dict[str, str], kind: bytes = b"x") -> bytes:
    text = b""
    for key, value in records.items():
        body = f" {key}={value}\n".encode()
        length = len(body) + 1
        while len(str(length)) + len(body) != length:
            length += 1
        text += str(length).encode() + body
    return member("PaxHeader", text, kind)


def source_of(tmp_path: Path, tars: dict[str, bytes]) -> Source:
    folder = tmp_path / "tars"
    for name, data in tars.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return open_source(folder)


def rows(source: Source) -> dict[str, tuple[str, str]]:
    return {i.path: i.problem for i in source.inputs if i.problem}


def good(source: Source) -> dict[str, str | None]:
    return {i.path: i.label for i in source.inputs if not i.problem}


FIRST, LAST = sample("first", 1), sample("last", 2)

HAZARDS: dict[str, tuple[bytes | dict[str, bytes], str, dict[str, str], set[str]]] = {
    # name: (tar a.tar or tars, reason, {path of the row: what its detail says}, samples that are not taken)
    "members that lie apart": (
        tar(FIRST, member("k.jpg"), sample("other"), member("k.cls", b"1"), LAST), "not_adjacent",
        {"a.tar/k.jpg": "k.cls at byte 5120", "a.tar/k.cls": "k.jpg at byte 2048"}, {"k"},
    ),
    "the same key in two shards": (
        {"a.tar": tar(FIRST, sample("k"), LAST), "b.tar": tar(sample("k"), sample("z"))}, "same_key_twice",
        {"a.tar/k.jpg": "b.tar/k.jpg at byte 0", "b.tar/k.jpg": "a.tar/k.jpg at byte 2048"}, {"k"},
    ),
    "a.JPG beside a.jpg": (
        tar(FIRST, member("k.JPG"), member("k.jpg"), LAST), "same_member_twice",
        {"a.tar/k.JPG": "k.JPG at byte 2048, k.jpg at byte 3072"}, {"k"},
    ),
    "a name twice": (
        tar(FIRST, member("k.jpg"), member("k.jpg", b"other bytes"), LAST), "same_member_twice",
        {"a.tar/k.jpg": "at byte 3072"}, {"k"},
    ),
    "a key without an image": (
        tar(FIRST, member("k.cls", b"1"), member("k.npy"), LAST), "no_image",
        {"a.tar/k.cls": "k.npy at byte 3072"}, {"k"},
    ),
    "a key with two images": (
        tar(FIRST, member("k.jpg"), member("k.png"), LAST), "several_images",
        {"a.tar/k.jpg": "k.jpg at byte 2048, k.png at byte 3072"}, {"k"},
    ),
    "a label that is no number": (
        tar(FIRST, member("k.jpg"), member("k.cls", b"cat"), LAST), "label_unreadable",
        {"a.tar/k.jpg": "'cat'"}, {"k"},
    ),
    "a hidden member": (tar(FIRST, member(".k.jpg"), LAST), "no_key", {"a.tar/.k.jpg": "byte 2048"}, set()),
    "a hidden member in a folder": (tar(FIRST, member("d/._k.jpg"), LAST), "no_key", {"a.tar/d/._k.jpg": ""}, set()),
    "a member without a suffix": (tar(FIRST, member("README"), LAST), "no_key", {"a.tar/README": "byte 2048"}, set()),
    "a member of meta data": (tar(FIRST, member("__m__/k.jpg"), LAST), "no_key", {"a.tar/__m__/k.jpg": ""}, set()),
    "a symbolic link": (
        tar(FIRST, member("k.jpg", b"", b"2", link=b"/etc/passwd"), LAST), "unsupported",
        {"a.tar/k.jpg": "k.jpg at byte 2048: it is a symbolic link to /etc/passwd"}, {"k"},
    ),
    "a hard link beside an image": (
        tar(FIRST, member("k.jpg"), member("k.cls", b"", b"1", link=b"first.cls"), LAST), "unsupported",
        {"a.tar/k.jpg": "k.cls at byte 3072: it is a hard link"}, {"k"},
    ),
    "a device": (tar(FIRST, member("k.jpg", b"", b"3"), LAST), "unsupported", {"a.tar/k.jpg": "device"}, {"k"}),
    "a pipe": (tar(FIRST, member("k.jpg", b"", b"6"), LAST), "unsupported", {"a.tar/k.jpg": "pipe"}, {"k"}),
    "a sparse file of GNU": (
        tar(FIRST, member("k.jpg", IMAGE, b"S"), LAST), "unsupported", {"a.tar/k.jpg": "sparse"}, {"k"},
    ),
    "a sparse file of pax": (
        tar(FIRST, pax({"GNU.sparse.major": "1"}), member("k.jpg"), LAST), "unsupported",
        {"a.tar/k.jpg": "sparse"}, {"k"},
    ),
    "a type nobody knows": (tar(FIRST, member("k.jpg", b"", b"Z"), LAST), "unsupported", {"a.tar/k.jpg": "'Z'"}, {"k"}),
    "an absolute name": (tar(FIRST, member("/k.jpg"), LAST), "outside", {"a.tar//k.jpg": "byte 2048"}, set()),
    "a name that climbs": (tar(FIRST, member("x/../../k.jpg"), LAST), "outside", {"a.tar/x/../../k.jpg": ""}, set()),
    "a nested tar": (tar(FIRST, member("k.jpg"), member("k.tar"), LAST), "unsupported",
                     {"a.tar/k.jpg": "k.tar at byte 3072: a nested archive"}, {"k"}),
    "a nested zip alone": (tar(FIRST, member("k.zip"), LAST), "unsupported", {"a.tar/k.zip": "nested"}, {"k"}),
    "a bad checksum": (
        tar(FIRST, sample("ok", 3), member("k.jpg", off_by=1), LAST), "unreadable",
        {"a.tar": "checksum does not fit"}, {"k", "last"},
    ),
    "bytes that are no header": (
        tar(FIRST, sample("ok", 3), b"\1" * 512, LAST), "unreadable",
        {"a.tar": "at byte 4096: the 3584 bytes"}, {"last"},
    ),
    "a size past the end": (
        tar(FIRST, sample("ok", 3), member("k.jpg", size=10**6)), "truncated",
        {"a.tar/k.jpg": "k.jpg at byte 4096 says 1000000 bytes, of which the tar holds 1536"}, {"k", "last"},
    ),
    "a size of an exabyte": (
        tar(FIRST, sample("ok", 3), member("k.jpg", size=2**60)), "truncated",
        {"a.tar/k.jpg": "says 1152921504606846976"}, {"k", "last"},
    ),
    "a cut between samples": (
        FIRST + LAST, "truncated", {"a.tar": "ends at byte 4096 without the blocks that mark its end"}, set(),
    ),
    "a cut between the members of a sample": (
        FIRST + LAST[:1024], "truncated", {"a.tar": "ends at byte 3072", "a.tar/last.jpg": "may be missing"}, {"last"},
    ),
    "a cut in a header": (
        FIRST + LAST[:1300], "truncated",
        {"a.tar": "ends at byte 3072, in the middle of a header", "a.tar/last.jpg": "may be missing"}, {"last"},
    ),
    "a cut in the padding": (FIRST + LAST[:1537], "truncated", {"a.tar": "ends at byte 3585"}, set()),
    "a cut in the content": (
        FIRST + member("k.jpg", bytes(2000))[:900], "truncated",
        {"a.tar/k.jpg": "says 2000 bytes, of which the tar holds 388", "a.tar/first.jpg": "may be missing"},
        {"first", "k", "last"},
    ),
    "a tar behind a tar": (
        tar(FIRST, LAST) + tar(sample("k")), "unreadable", {"a.tar": "from byte 5120 more follows"}, {"k"},
    ),
    "a long name that nobody has": (
        tar(FIRST, LAST, member("././@LongLink", b"k.jpg\0", b"L")), "unreadable",
        {"a.tar": "belongs to no member"}, set(),
    ),
    "a pax header that lies": (
        tar(FIRST, LAST, member("x", b"99 path=k.jpg\n", b"x"), sample("k")), "unreadable",
        {"a.tar": "records do not add up"}, {"k"},
    ),
    "a pax header of a gigabyte": (
        tar(FIRST, LAST, member("x", b"", b"x", size=1 << 30)), "unreadable", {"a.tar": "1073741824"}, set(),
    ),
    "a name of 5,000 bytes": (
        tar(FIRST, pax({"path": "n" * 5000 + ".jpg"}), member("k.jpg"), LAST), "unsupported",
        {"a.tar/" + "n" * 4096: "its name has 5004 bytes"}, {"k"},
    ),
    "a folder with content": (tar(FIRST, member("k.d/"), LAST), "unsupported", {"a.tar/k.d/": "of a folder"}, set()),
    "a size below zero": (
        tar(FIRST, LAST, rechecked(member("k.jpg"), 124, b"\xff" * 12)), "unreadable", {"a.tar": "negative"}, {"k"},
    ),
    "a compressed tar beside plain ones": (
        {"a.tar": tar(FIRST, LAST), "b.tar.gz": b"\x1f\x8b"}, "unsupported", {"b.tar.gz": "compressed"}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("hazard", HAZARDS)
def test_every_hazard_is_a_row_that_names_tar_and_member(hazard: str, tmp_path: Path) -> None:
    tars, reason, said, lost = HAZARDS[hazard]
    source = source_of(tmp_path, tars if isinstance(tars, dict) else {"a.tar": tars, "z.tar": tar(sample("also"))})
    found = rows(source)
    assert {path: problem[0] for path, problem in found.items()} == dict.fromkeys(said, reason)
    for path, words in said.items():
        assert words in found[path][1], found[path][1]
        with pytest.raises(InputError, match=reason):
            source.read(path)
    keys = {Path(p).name.partition(".")[0] for p in good(source)}
    assert {"first", "last"} - lost <= keys and not keys & lost
    assert all(source.read(path) == IMAGE for path in good(source))


def test_a_member_over_the_limit_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with open(path, "wb") as f:
        f.write(FIRST + member("k.jpg", b"", size=MAX_FILE_BYTES + 512))
        f.seek(MAX_FILE_BYTES + 512, os.SEEK_CUR)  # a hole
        f.write(tar(LAST))
    source = open_source(path)
    assert {p: r[0] for p, r in rows(source).items()} == {"a.tar/k.jpg": "too_large"}
    assert good(source) == {"a.tar/first.jpg": "1", "a.tar/last.jpg": "2"}


def test_a_file_that_is_no_tar_is_an_error(tmp_path: Path) -> None:
    for data, said in ((b"<html>" * 200, "byte 0"), (b"", "byte 0"), (b"\x1f\x8b" + bytes(600), "byte 0")):
        (tmp_path / "a.tar").write_bytes(data)
        with pytest.raises(SevenfoldError, match=said):
            open_source(tmp_path / "a.tar").inputs  # noqa: B018
    (tmp_path / "a.tgz").write_bytes(b"\x1f\x8b")
    with pytest.raises(SevenfoldError, match="compressed"):
        open_source(tmp_path / "a.tgz").inputs  # noqa: B018


LONG = "d/" * 60 + "x" * 90 + ".jpg"

ACCEPTED: dict[str, Callable[[], bytes]] = {
    "ustar": lambda: by_tarfile(tarfile.USTAR_FORMAT, {"d" * 90 + "/x.jpg": IMAGE}),
    "gnu, a long name": lambda: by_tarfile(tarfile.GNU_FORMAT, {LONG: IMAGE}),
    "pax, a long name": lambda: by_tarfile(tarfile.PAX_FORMAT, {LONG: IMAGE, "ü.jpg": IMAGE}),
    "pax with a global header": lambda: pax({"comment": "0123"}, b"g") + tar(sample("x")),
    "pax sizes": lambda: pax({"size": str(len(IMAGE))}) + tar(member("x.jpg", IMAGE, size=0)),
    "gnu's base 256": lambda: tar(rechecked(member("x.jpg"), 124, b"\x80" + (21).to_bytes(11, "big"))),
    "the seventh edition": lambda: tar(rechecked(member("x.jpg", IMAGE, b"\0"), 257, bytes(255))),
    "one block of zeros": lambda: tar(sample("x"), end=bytes(512)),
    "names that begin with ./": lambda: tar(member("./", b"", b"5"), member("./x.jpg")),
}  # fmt: skip


def by_tarfile(form: int, members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as t:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize("form", ACCEPTED)
def test_the_formats_of_the_wild_are_accepted(form: str, tmp_path: Path) -> None:
    data = ACCEPTED[form]()
    (tmp_path / "a.tar").write_bytes(data)
    source = open_source(tmp_path / "a.tar")
    assert rows(source) == {}
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        names = [m.name.removeprefix("./") for m in t.getmembers() if m.isfile() and m.name.endswith("jpg")]
    assert [i.path for i in source.inputs] == sorted(f"a.tar/{n}" for n in names) and names
    assert all(source.read(i.path) == IMAGE for i in source.inputs)


# Labels and splits


def test_labels_come_from_cls_then_json_then_short_texts(tmp_path: Path) -> None:
    def each(*components: tuple[str, bytes]) -> bytes:
        return b"".join(member(f"k.{ext}", data) for ext, data in (("png", IMAGE), *components))

    cases: dict[str, tuple[bytes, str | None, str]] = {
        "cls": (each(("cls", b" 2\n"), ("json", b'{"label": "no"}')), "2", "labels from cls"),
        "json": (each(("json", b'{"label": "cat"}'), ("txt", b"no")), "cat", "labels from json"),
        "txt": (each(("json", b'{"width": 3}'), ("txt", b" cat\n")), "cat", "labels from txt"),
        "caption": (each(("txt", b"a " * 60)), None, "no component of labels"),
        "none": (each(("npy", b"3")), None, "no component of labels"),
    }
    for name, (data, label, note) in cases.items():
        source = source_of(tmp_path / name, {"a.tar": data + bytes(1024)})
        assert good(source) == {"a.tar/k.png": label}, name
        assert any(n.startswith(note) for n in source.notes), source.notes
    (tmp_path / "cls/tars/classes.txt").write_text("cat\ndog\neel\n")
    assert good(open_source(tmp_path / "cls/tars")) == {"a.tar/k.png": "eel"}


@pytest.mark.parametrize("data", [b"cat", b"-1", b"1_0", b"1.5", b"", b"9" * 400, b"\xff"])
def test_a_cls_is_a_class_number(data: bytes, tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a.tar": tar(FIRST, member("k.jpg"), member("k.cls", data), LAST)})
    assert {p: r for p, (r, _) in rows(source).items()} == {"a.tar/k.jpg": "label_unreadable"}


def test_labels_in_json_that_are_no_text_are_set_aside(tmp_path: Path, lake: Lake) -> None:
    labels = [b'"cat"', b"[1]", b"true", b'"\\ud800"', b'"' + b"x" * 2000 + b'"', b"{", b"null"]
    data = b"".join(member(f"{i}.jpg") + member(f"{i}.json", b'{"label": %s}' % x) for i, x in enumerate(labels))
    source = source_of(tmp_path, {"a.tar": data + bytes(1024)})
    assert set(rows(source)) == {f"a.tar/{i}.jpg" for i in range(1, 6)}
    assert good(source) == {"a.tar/0.jpg": "cat", "a.tar/6.jpg": None}
    assert lake.ingest(source, "d", "b")[0].reasons == {"label_unreadable": 5, "not_an_image": 2}


def test_files_beside_the_tars_are_in_the_notes(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a.tar": tar(FIRST), "README.md": b"", "classes.txt": b"", ".hidden": b""})
    assert "1 other files are no inputs, the first is README.md" in source.notes


def test_many_different_texts_are_captions(tmp_path: Path) -> None:
    data = b"".join(member(f"{i:03d}.jpg") + member(f"{i:03d}.txt", b"photo %d" % i) for i in range(50))
    source = source_of(tmp_path, {"a.tar": data + bytes(1024)})
    assert set(good(source).values()) == {None} and "components not used: 50 txt" in source.notes


def test_samples_without_the_label_that_others_have_are_counted(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a.tar": tar(FIRST, member("k.jpg"), LAST)})
    assert good(source)["a.tar/k.jpg"] is None and "1 samples without cls are unlabelled" in source.notes


def test_splits_are_in_the_names_of_tars_and_keys_may_repeat_between_them(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"set-train-000.tar": tar(FIRST), "val/0.tar": tar(FIRST)})
    assert {i.path: i.split for i in source.inputs} == {
        "set-train-000.tar/first.jpg": "train", "val/0.tar/first.jpg": "val",
    }  # fmt: skip
    assert rows(source) == {}
    assert {i.split for i in source_of(tmp_path / "b", {"train.tar": tar(FIRST), "other.tar": tar(LAST)}).inputs} == {
        None
    }


def test_a_mask_beside_an_image_is_no_second_image(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a.tar": tar(member("k.seg.png"), member("k.png"), member("k.cls", b"1"))})
    assert good(source) == {"a.tar/k.png": "1"} and "components not used: 1 seg.png" in source.notes


# The lake


def test_tars_land_alike_with_any_number_of_workers_and_are_committed(
    tmp_path: Path, lake: Lake, make: SimpleNamespace
) -> None:
    tars = {}
    for shard in range(2):
        data = b""
        for i in range(600):
            key = f"{shard}-{i:05d}"
            data += member(f"{key}.png", make.png(1000 * shard + i)) + member(f"{key}.cls", b"%d" % (i % 2))
        tars[f"{shard}.tar"] = data + member("stray", b"x") + bytes(1024)
    source = source_of(tmp_path, tars)
    digests = set()
    for workers in (1, 2):
        record, _ = lake.ingest(tmp_path / "tars", f"d{workers}", "b", workers=workers, clock=lambda: 1.0)
        assert record.reasons == {"no_key": 2} and record.counts["samples"] == 1200
        assert record.kind == "webdataset"
        digests.add(record.digest)
    assert len(digests) == 1
    lake.set_status("d1", "b", "admitted")
    make.commit(lake, "d1")
    picked = lake.samples("d1").slice(0, 20)
    assert [source.read(p) for p in picked["path"].to_pylist()] == lake.read_images(picked)
    make.reconciles(lake, "d1")


def test_a_source_travels_with_its_places(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a.tar": tar(FIRST, member(".k"), LAST)})
    assert len(source.inputs) == 3
    there = pickle.loads(pickle.dumps(source))
    assert "inputs" not in there.__dict__ and "_survey" not in there.__dict__
    assert there.read("a.tar/first.jpg") == IMAGE
    with pytest.raises(InputError, match="no_key"):
        there.read("a.tar/.k")
    with pytest.raises(InputError, match="no such member"):
        there.read("a.tar/gone.jpg")
    assert "_survey" not in there.__dict__, "nothing was walked again"


# Properties

NAMES = st.sampled_from(
    ["a.jpg", "a.cls", "a.png", "a.JPG", "a.json", "a.seg.png", "b.jpg", "b.cls", "b.npy", "c.jpg", "c.cls", "c.tar",
     "d/a.jpg", "d/a.cls", ".h.jpg", "plain", "__m__/a.jpg", "/a.jpg", "../a.jpg", "./b.jpg", "d.", "é.jpg"]
)  # fmt: skip
KINDS = st.sampled_from([b"0", b"0", b"0", b"0", b"0", b"0", b"5", b"2", b"\0", b"S"])
MEMBERS = st.lists(st.tuples(NAMES, KINDS), max_size=12)


@settings(max_examples=300, deadline=None)
@given(tars=st.lists(MEMBERS, min_size=2, max_size=3), cut=st.one_of(st.none(), st.integers(0, 9000)))
def test_every_member_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, tars: Any, cut: int | None) -> None:
    folder = tmp_path_factory.mktemp("property")
    expected: list[tuple[str, str, bytes, bytes]] = []  # tar, name, type, content; of those whose header is there
    for number, members in enumerate(tars):
        data, headers = b"", []
        for place, (name, kind) in enumerate(members):
            content = b"" if kind in (b"5", b"2") else b"%d" % (100 * number + place)
            headers.append((len(data), name, kind, content))
            data += member(name, content, kind)
        data += bytes(1024)
        length = len(data) if cut is None or number else min(cut, len(data))
        (folder / f"{number}.tar").write_bytes(data[:length])
        expected += [
            (f"{number}.tar", name.removeprefix("./"), kind, content)
            for at, name, kind, content in headers
            if at + 512 <= length
        ]
    source = open_source(folder, "webdataset")
    inputs = source.inputs
    (sums,) = (note for note in source.notes if " members = " in note)
    paths = [i.path for i in inputs]
    assert len(paths) == len(set(paths)) and paths == sorted(paths)

    # the sum that a user is shown adds up, and counts each member once
    total, *parts = (
        int(x.replace(",", "")) for x in re.findall(r"([\d,]+) (?:members|images|labels|not|folders|set)", sums)
    )
    assert total == len(expected) == sum(parts)
    taken = [i for i in inputs if not i.problem]
    assert parts[0] == len(taken)

    # every image that is taken is one member's content, its label that of the same key, and both are used once
    shown = [f"{i.path.partition('@')[0]} {i.problem[1]}" for i in inputs if i.problem]
    used = set()
    for item in taken:
        name = item.path.split("/", 1)[0]
        inner = item.path[len(name) + 1 :]
        same = [e for e in expected if e[:2] == (name, inner) and e[2] != b"5"]
        assert len(same) == 1 and source.read(item.path) == same[0][3]
        key = (name, inner[: len(inner) - len(Path(inner).name)] + Path(inner).name.partition(".")[0])
        assert key not in used
        used.add(key)
        if item.label is not None:
            labels = [e for e in expected if e[:2] == (name, f"{key[1]}.cls") and e[2] != b"5"]
            assert [e[3].decode() for e in labels] == [item.label]
    # every other member of a key is with its image, or it is named in a row
    for name, inner, kind, _ in expected:
        key = (name, inner[: len(inner) - len(Path(inner).name)] + Path(inner).name.partition(".")[0])
        assert kind == b"5" or key in used or any(inner in row for row in shown), (name, inner)
    if cut is not None and cut < sum(len(member(n, b"" if k in (b"5", b"2") else b"1", k)) for n, k in tars[0]):
        assert any(i.problem and i.problem[0] == "truncated" and i.path.startswith("0.tar") for i in inputs)


def test_headers_made_to_waste_time_are_read_in_linear_time(tmp_path: Path) -> None:
    records = member("x", b"5 a=\n" * 200_000, b"x")
    dots = member("x", b"./" * 500_000 + b"k.jpg", b"L")
    began = time.process_time()
    source = source_of(tmp_path, {"a.tar": tar(*[records, sample("k"), dots, member("y.jpg")] * 3)})
    assert len(rows(source)) >= 3
    assert time.process_time() - began < 10, "measured: under one second"


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_bytes_crash_the_walk(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged = bytearray(pax({"path": "x.jpg"}) + tar(FIRST, member("k.json", json.dumps({"label": 1}).encode()), LAST))
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a.tar").write_bytes(damaged)
    (folder / "b.tar").write_bytes(tar(sample("b")))
    source = open_source(folder)
    for item in source.inputs:
        if not item.problem:
            assert len(source.read(item.path)) == item.bytes
