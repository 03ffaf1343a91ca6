"""Invariants 3 and 10: every bad input is set aside with its reason, none crashes the landing, none is lost."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sevenfold.storage import Lake, SevenfoldError
from sevenfold.storage.canonical import digest_bytes
from sevenfold.storage.measure import Measured, measure
from sevenfold.storage.sources import MAX_FILE_BYTES, InputError


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width: int, height: int) -> bytes:
    """A few hundred bytes that declare width x height pixels."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(bytes(1000))) + png_chunk(b"IEND", b"")


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def reason(data: bytes, name: str) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        measure(data, name)
    return caught.value.reason, caught.value.detail


def frames(make: SimpleNamespace, form: str) -> bytes:
    images = [Image.fromarray(make.pixels(i)) for i in range(3)]
    buffer = io.BytesIO()
    images[0].save(buffer, form, save_all=True, append_images=images[1:])
    return buffer.getvalue()


CASES: dict[str, tuple[Callable[[SimpleNamespace], bytes], str, str, str]] = {
    "empty": (lambda m: b"", "a.png", "not_an_image", "empty"),
    "html saved as jpg": (lambda m: b"  <!DOCTYPE html><p>", "a.jpg", "not_an_image", "HTML"),
    "text": (lambda m: b"hello world", "a.png", "not_an_image", "68 65 6c 6c 6f 20 77 6f"),
    "half a png": (lambda m: m.png(1, 32, 32)[:500], "a.png", "truncated", ""),
    "half a jpeg": (lambda m: m.encoded(m.pixels(1, 64, 64, 3), "JPEG")[:1500], "a.jpg", "truncated", ""),
    "png named jpg": (lambda m: m.png(1), "a.jpg", "wrong_suffix", ".jpg"),
    "jpeg named png": (lambda m: m.encoded(m.pixels(1), "JPEG"), "x/b.PNG", "wrong_suffix", "JPEG"),
    "animated gif": (lambda m: frames(m, "GIF"), "a.gif", "unsupported", "3 frames"),
    "animated png": (lambda m: frames(m, "PNG"), "a.png", "unsupported", "3 frames"),
    "cmyk": (lambda m: m.encoded(Image.new("CMYK", (8, 8)), "JPEG"), "a.jpg", "unsupported", "CMYK"),
    "16 bit": (
        lambda m: m.encoded(Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8))),
        "a.png", "unsupported", "I;16",
    ),
    "bomb over the limit": (lambda m: bomb(15_000, 15_000), "a.png", "too_large", "pixels"),
    "bomb far over the limit": (lambda m: bomb(2**31 - 1, 2**31 - 1), "a.png", "too_large", ""),
    "damaged inside": (lambda m: flipped(m.png(1, 32, 32), 500), "a.png", "unreadable", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_bad_bytes_has_its_reason(case: str, make: SimpleNamespace) -> None:
    build, name, expected, said = CASES[case]
    found, detail = reason(build(make), name)
    assert found == expected, detail
    assert said in detail


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_a_file_cut_anywhere_is_measured_or_set_aside(form: str, make: SimpleNamespace) -> None:
    whole = make.encoded(make.pixels(3, 24, 24, 3), form)
    step = max(1, len(whole) // 120)
    reasons = set()
    for cut in [*range(0, len(whole), step), *range(max(0, len(whole) - 20), len(whole))]:
        try:
            assert isinstance(measure(whole[:cut], f"a.{form}" if form != "TIFF" else "a.tif"), Measured)
        except InputError as e:
            reasons.add(e.reason)
    assert reasons <= {"not_an_image", "truncated", "unreadable"}
    assert "not_an_image" in reasons and len(reasons) > 1


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_bytes_flipped_anywhere_never_crash(make: SimpleNamespace, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"]))
    damaged = bytearray(make.encoded(make.pixels(4, 16, 16, 3), form))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        measure(bytes(damaged), "a")
    except InputError as e:
        assert e.reason and e.detail


def test_a_phone_picture_with_more_pictures_behind_it_is_a_jpeg(make: SimpleNamespace) -> None:
    buffer = io.BytesIO()
    first, second = (Image.fromarray(make.pixels(i, 16, 16, 3)) for i in range(2))
    first.save(buffer, "MPO", save_all=True, append_images=[second])
    measured = measure(buffer.getvalue(), "photo.jpg")
    assert (measured.format, measured.ext, measured.mode) == ("JPEG", "jpg", "RGB")


def test_reasons_reach_the_lake_and_inputs_reconcile(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    both = make.png(50)
    members = {
        "cat/1.png": make.png(1),
        "cat/empty.png": b"",
        "cat/cut.png": make.png(2, 32, 32)[:400],
        "cat/both.png": both,
        "dog/both.png": both,
        "eel/1.png": make.png(3),
    }
    record, made = lake.ingest(make.folder(tmp_path / "s", members), "d", "b", classes=["cat", "dog"])
    assert made
    assert record.counts == {"inputs": 6, "samples": 1, "aliases": 0, "relabels": 0, "quarantined": 5}
    assert record.reasons == {"contradictory": 2, "label_outside_ontology": 1, "not_an_image": 1, "truncated": 1}
    aside = {r["path"]: r for r in lake.quarantine("d", "b").to_pylist()}
    told = f"the label is 'eel', not one of the 2 declared classes (id {digest_bytes(members['eel/1.png'])})"
    assert aside["eel/1.png"]["detail"] == told
    assert "cat and dog" in aside["cat/both.png"]["detail"]
    assert {r["source"] for r in aside.values()} == {str(tmp_path / "s")}
    assert aside["cat/cut.png"]["bytes"] == 400
    make.reconciles(lake)


def test_zip_members_that_are_encrypted_lying_damaged_or_climbing_are_set_aside(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    path = tmp_path / "hostile.zip"
    names = ["good", "encrypted", "short", "long", "damaged", "huge", "method"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for i, name in enumerate(names):
            z.writestr(f"cat/{name}.png", make.png(i, 16, 16))
        z.writestr("../../climbs.png", make.png(90))
        z.writestr("/etc/absolute.png", make.png(91))
        infos = {m.filename: m for m in z.infolist()}
        infos["cat/short.png"].file_size //= 2  # the central directory says less than there is
        infos["cat/long.png"].file_size *= 3
        infos["cat/huge.png"].file_size = 1 << 31
        infos["cat/encrypted.png"].flag_bits |= 1
        infos["cat/method.png"].compress_type = 99
    data = bytearray(path.read_bytes())
    start = infos["cat/damaged.png"].header_offset + 30 + len("cat/damaged.png")
    data[start + 5 : start + 25] = bytes(20)
    path.write_bytes(data)
    record, _ = lake.ingest(path, "d", "b")
    aside = {Path(r["path"]).stem: (r["reason"], r["detail"]) for r in lake.quarantine("d", "b").to_pylist()}
    assert {k: v[0] for k, v in aside.items()} == {
        "encrypted": "unreadable", "short": "unreadable", "long": "unreadable", "damaged": "unreadable",
        "method": "unreadable", "huge": "too_large", "climbs": "unsupported", "absolute": "unsupported",
    }  # fmt: skip
    assert "encrypted" in aside["encrypted"][1]
    assert lake.batch_rows("d", "b")["path"].to_pylist() == ["cat/good.png"]
    assert record.counts["inputs"] == 9
    assert not (tmp_path / "climbs.png").exists() and not (tmp_path.parent / "climbs.png").exists()


def test_a_file_over_the_size_limit_is_not_read(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    source = make.folder(tmp_path / "s", {"cat/1.png": make.png(1), "cat/big.png": b""})
    os.truncate(source / "cat/big.png", MAX_FILE_BYTES + 1)  # a hole: it takes no room
    lake.ingest(source, "d", "b")
    (row,) = lake.quarantine("d", "b").to_pylist()
    assert row["reason"] == "too_large" and f"limit of {MAX_FILE_BYTES}" in row["detail"]


def test_what_changes_between_landing_and_sharding_is_set_aside(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    source = make.folder(tmp_path / "s", {**make.two_classes(6), "dog/copy.png": make.png(2)})
    make.land(lake, source, "b")
    (source / "cat/00001.png").write_bytes(make.png(77))
    (source / "cat/00003.png").unlink()
    version = make.commit(lake)
    assert lake.manifest(version.content_id).stored == 4
    record = lake.batch("d", "b")
    assert record.reasons == {"changed": 2}
    assert record.counts == {"inputs": 7, "samples": 4, "aliases": 1, "relabels": 0, "quarantined": 2}
    aside = {r["path"]: r["detail"] for r in lake.quarantine("d", "b").to_pylist()}
    assert "not those that were measured" in aside["cat/00001.png"]
    assert "no longer be read" in aside["cat/00003.png"]
    make.reconciles(lake)
    # restored, they can be taken in after all
    (source / "cat/00001.png").write_bytes(make.png(1))
    retry, made = lake.retry_quarantine("d", "b")
    assert made and retry.counts["inputs"] == 1 and retry.counts["samples"] == 1


def test_of_an_input_that_has_changed_another_batch_of_the_commit_has_the_image(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    image = make.png(1)
    first = make.folder(tmp_path / "first", {"cat/x.png": image, "cat/y.png": make.png(2)})
    make.land(lake, first, "first")
    make.land(lake, make.folder(tmp_path / "second", {"cat/again.png": image, "cat/z.png": make.png(3)}), "second")
    (first / "cat/x.png").unlink()
    make.commit(lake)
    assert set(lake.samples("d")["path"].to_pylist()) == {"cat/again.png", "cat/y.png", "cat/z.png"}
    make.reconciles(lake)


def test_a_source_whose_members_are_gone_becomes_changed_not_a_crash(
    lake: Lake, tmp_path: Path, make: SimpleNamespace
) -> None:
    path = tmp_path / "a.zip"
    for names in (["cat/1.png", "cat/2.png"], ["cat/2.png"]):
        with zipfile.ZipFile(path, "w") as z:
            for name in names:
                z.writestr(name, make.png(int(name[4])))
        if len(names) == 2:
            make.land(lake, path, "b")
    make.commit(lake)
    assert lake.batch("d", "b").reasons == {"changed": 1}


# Retrying


def test_a_retry_takes_mended_renamed_and_moved_inputs(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    both = make.png(50)
    source = make.folder(
        tmp_path / "s",
        {
            "cat/1.png": make.png(1), "cat/cut.png": make.png(2)[:50], "cat/named.jpg": make.png(3),
            "cat/both.png": both, "dog/both.png": both, "eel/4.png": make.png(4), "cat/hopeless.png": b"",
        },
    )  # fmt: skip
    make.land(lake, source, "b", classes=["cat", "dog"])
    make.commit(lake)
    with pytest.raises(SevenfoldError, match="has changed at the source"):
        lake.retry_quarantine("d", "b")
    (source / "cat/cut.png").write_bytes(make.png(2))
    (source / "cat/named.jpg").rename(source / "cat/named.png")
    (source / "eel/4.png").rename(source / "cat/4.png")
    (source / "dog/both.png").unlink()
    record, made = lake.retry_quarantine("d", "b")
    assert made and record.batch == "b+retry1"
    assert record.counts == {"inputs": 4, "samples": 4, "aliases": 0, "relabels": 0, "quarantined": 0}, "hopeless stays"
    assert lake.retry_quarantine("d", "b") == (record, False), "asking again lands nothing twice"
    lake.set_status("d", record.batch, "admitted")
    make.commit(lake)
    assert lake.samples("d").num_rows == 5
    make.reconciles(lake)


def test_the_retry_of_a_rejected_batch_brings_all_of_it(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    source = make.folder(tmp_path / "s", {"cat/1.png": make.png(1), "cat/2.png": make.png(2), "cat/cut.png": b"no"})
    make.land(lake, source, "b")
    lake.set_status("d", "b", "rejected")
    (source / "cat/cut.png").write_bytes(make.png(3))
    record, made = lake.retry_quarantine("d", "b")
    assert made and record.counts["samples"] == 3, "the good samples of a rejected batch are in no version"
    assert lake.retry_quarantine("d", "b") == (record, False)
    lake.set_status("d", record.batch, "admitted")
    version, _ = lake.commit("d", message="mended")
    assert lake.samples("d", version.name).num_rows == 3
    make.reconciles(lake)


def test_a_label_mended_in_a_csv_is_a_change(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.folder(tmp_path, {"1.png": make.png(1), "2.png": make.png(2)})
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.png,cat\n2.png,eel\n")
    make.land(lake, table, "b", classes=["cat", "dog"])
    assert lake.batch("d", "b").reasons == {"label_outside_ontology": 1}
    table.write_text("path,label\n1.png,cat\n2.png,dog\n")
    record, made = lake.retry_quarantine("d", "b")
    assert made and record.counts["samples"] == 1 and lake.batch_rows("d", record.batch)["label"].to_pylist() == ["dog"]


def test_a_batch_without_quarantine_has_nothing_to_retry(lake: Lake, tmp_path: Path, make: SimpleNamespace) -> None:
    make.land(lake, make.folder(tmp_path / "s", make.two_classes(2)), "b")
    with pytest.raises(SevenfoldError, match="nothing in quarantine"):
        lake.retry_quarantine("d", "b")
