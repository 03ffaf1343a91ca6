"""Twins: what is found and what never is, whatever the order; the checks, and one picture looked up."""

import hashlib
import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sevenfold.quality.context import Context, Embeddings
from sevenfold.quality.policy import Policy
from sevenfold.quality.twins import CHECKS, cross_split_duplicates, near_duplicates
from sevenfold.quality.twins_confirm import align, likely
from sevenfold.quality.twins_describe import PRODUCER, describe, mirror_signs, small
from sevenfold.quality.twins_index import TwinIndex
from sevenfold.quality.twins_pairs import Twins, find_twins, leaks
from sevenfold.quality.twins_search import close_hashes, neighbours

POLICY = Policy()


def scenes(n: int, seed: int = 0) -> np.ndarray:
    """Unrelated pictures, uint8 [n, 32, 32, 3], with the spectrum of photographs: power falls with frequency."""
    rng = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.rfftfreq(32)[None, :])
    spectrum = np.fft.rfft2(rng.standard_normal((n, 3, 32, 32))) / np.maximum(f, 1 / 32)
    mixed = np.fft.irfft2(spectrum, s=(32, 32)) @ np.eye(32)
    mixed = mixed + 2 * mixed.mean(1, keepdims=True)  # the channels of a photograph go together
    mixed /= mixed.std((1, 2, 3), keepdims=True)
    return np.clip(128 + 45 * mixed, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)


def reencoded(picture: np.ndarray, quality: int = 50) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def cropped(picture: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(picture[1:31, 2:32]).resize((32, 32), Image.Resampling.BICUBIC))


CHANGES = {
    "reencoded": reencoded,
    "shifted": lambda p: np.pad(p, ((2, 0), (0, 1), (0, 0)), mode="edge")[:32, 1:],
    "cropped": cropped,
    "darker": lambda p: (p * 0.7).astype(np.uint8),
    "brighter": lambda p: np.clip(p * 1.3, 0, 255).astype(np.uint8),
    "mirrored": lambda p: p[:, ::-1],
    "mirrored and reencoded": lambda p: reencoded(np.ascontiguousarray(p[:, ::-1]), 75),
}


def table_of(pixels: np.ndarray, split: Sequence[str] | None = None) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Rows of some pictures, in train unless told; equal pixels have equal digests, hashes say nothing."""
    n = len(pixels)
    ids = [hashlib.sha256(b"sample %d" % i).hexdigest() for i in range(n)]
    columns = {
        "id": pa.array(ids),
        "split": pa.array(split or ["train"] * n),
        "pixel_digest": pa.array([hashlib.sha256(p.tobytes()).hexdigest() for p in pixels]),
        "phash": pa.array(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, n)),
    }
    return pa.table(columns), dict(zip(ids, pixels, strict=True))


def found_in(table: pa.Table, pictures: dict[str, np.ndarray], **options) -> Twins:
    def read(ids: Sequence[str]) -> np.ndarray:
        return np.stack([pictures[i] for i in ids])

    return find_twins(table, read, policy=POLICY.veracity, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found_among_unrelated_pictures_and_nothing_else(change) -> None:
    originals = scenes(300)
    copies = np.stack([CHANGES[change](p) for p in originals[:40]])
    table, pictures = table_of(np.concatenate([originals, copies]))
    ids = table["id"].to_pylist()
    pairs = found_in(table, pictures).pairs.to_pylist()
    wanted = {frozenset((ids[i], ids[300 + i])) for i in range(40)}
    got = {frozenset((p["keep"], p["exclude"])) for p in pairs}
    assert got <= wanted and len(got) >= 38  # two of forty is what the bar allows
    assert all(p["mirrored"] == change.startswith("mirrored") for p in pairs)


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_unrelated_pictures_are_never_twins(seed, white) -> None:
    if white:
        pictures = np.random.default_rng(seed).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    else:
        pictures = scenes(24, seed)
    a, b = np.triu_indices(24, 1)
    for turned in (False, True):
        aligned = align(pictures[a], pictures[b], np.full(len(a), turned))
        assert aligned.score.max() < POLICY.veracity.min_twin_score


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(CHANGES)), st.booleans())
def test_the_score_is_the_same_both_ways_round(seed, change, mirrored) -> None:
    one = scenes(4, seed)
    other = np.stack([*(CHANGES[change](p) for p in one[:2]), *scenes(2, seed + 1)])
    turned = np.full(4, mirrored)
    there, back = align(one, other, turned), align(other, one, turned)
    assert there.score == pytest.approx(back.score, abs=1e-4)
    assert there.score.min() >= 0 and there.score.max() <= 1
    thumbs = np.concatenate([describe(one).thumbs, describe(other).thumbs])
    a, b = np.arange(4), np.arange(4, 8)
    assert (likely(thumbs, a, b, turned) == likely(thumbs, b, a, turned)).all()


@settings(max_examples=10)
@given(st.permutations(range(24)))
def test_pairs_and_groups_do_not_depend_on_the_order_of_the_rows(order) -> None:
    originals = scenes(8, 3)
    pixels = np.concatenate([originals, [reencoded(p) for p in originals], originals[:, :, ::-1]])
    table, pictures = table_of(pixels)
    whole, mixed = found_in(table, pictures), found_in(table.take(order), pictures)
    assert mixed.pairs.sort_by([("keep", "ascending"), ("exclude", "ascending")]).equals(
        whole.pairs.sort_by([("keep", "ascending"), ("exclude", "ascending")])
    )
    assert mixed.groups.equals(whole.groups)
    assert set(whole.groups["id"].to_pylist()) == set(table["id"].to_pylist())
    assert len(set(whole.groups["group"].to_pylist())) == 8


def test_a_mirror_image_has_the_same_descriptor_with_other_signs() -> None:
    pictures = scenes(50)
    straight, turned = describe(pictures), describe(pictures[:, :, ::-1])
    assert np.abs(straight.vectors * mirror_signs() - turned.vectors).max() <= 1  # rounding
    assert (straight.mirrored == turned.hashes).mean() > 0.98 and PRODUCER == "descriptor-1"


def test_the_cells_find_what_comparing_everything_finds() -> None:
    originals = scenes(800, 1)
    vectors = describe(np.concatenate([originals, [reencoded(p) for p in originals[:200]]])).vectors
    every, some = neighbours(vectors, signs=mirror_signs()), neighbours(vectors, signs=mirror_signs(), exact=100)

    def keys(c, least: float) -> set[tuple[int, int, bool]]:
        close = c.cosine >= least
        return set(zip(c.first[close].tolist(), c.second[close].tolist(), c.mirrored[close].tolist(), strict=True))

    assert len(keys(every, 0.9)) >= 195
    assert len(keys(every, 0.9) - keys(some, 0)) <= 0.02 * len(keys(every, 0.9))


def test_close_hashes_are_complete_up_to_three_bits() -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(-(2**63), 2**63 - 1, 60, dtype=np.int64)
    flips = [sum(1 << int(b) for b in rng.choice(63, rng.integers(0, 9), replace=False)) for _ in base]
    hashes = np.concatenate([base, base ^ np.array(flips)])
    got = close_hashes(hashes, np.zeros(0, np.int64), 6)
    pairs = set(zip(got.first.tolist(), got.second.tolist(), strict=True))
    bits = np.bitwise_count(hashes[:, None] ^ hashes[None, :])
    assert {(a, b) for a in range(120) for b in range(a + 1, 120) if bits[a, b] <= 3} <= pairs
    assert all(bits[a, b] <= 6 for a, b in pairs)


def test_a_hash_meets_the_mirrored_hash_of_another() -> None:
    pictures = scenes(30)
    d = describe(np.concatenate([pictures, pictures[:5, :, ::-1]]))
    got = close_hashes(d.hashes, d.mirrored, 6)
    assert {(i, 30 + i) for i in range(5)} <= {
        (a, b) for a, b, m in zip(got.first, got.second, got.mirrored, strict=True) if m
    }


@settings(max_examples=15)
@given(st.integers(0, 39), st.sampled_from(sorted(CHANGES)))
def test_the_index_answers_as_the_full_search_does(which, change) -> None:
    stored = scenes(200, 7)
    asked = CHANGES[change](stored[which])
    table, pictures = table_of(np.concatenate([stored, asked[None]]))
    ids = table["id"].to_pylist()
    pairs = found_in(table, pictures).pairs.to_pylist()
    full = {p["keep"] if p["exclude"] == ids[200] else p["exclude"] for p in pairs if ids[200] in p.values()}
    near = TwinIndex.of(describe(stored)).near(describe(asked[None]))
    scores = align(np.repeat(asked[None], len(near), axis=0), stored[near.second], near.mirrored).score
    sure = near.second[scores >= POLICY.veracity.min_twin_score]
    equal = [i for i, p in enumerate(stored) if (p == asked).all()]
    assert {ids[i] for i in {*sure.tolist(), *equal}} == full


def test_neighbours_of_embeddings_are_candidates_too() -> None:
    one = scenes(1)[0]
    other, far = reencoded(one), scenes(40, 9)
    table, pictures = table_of(np.concatenate([far, one[None], other[None]]))
    vectors = np.eye(42, dtype=np.float32)
    vectors[41] = vectors[40]
    embeddings = Embeddings(table["id"].combine_chunks(), vectors, "test")
    blind = describe(np.zeros((42, 32, 32, 3), np.uint8))  # says nothing
    thumbs = describe(np.stack([pictures[i] for i in table["id"].to_pylist()])).thumbs
    described = type(blind)(blind.vectors, thumbs, table["phash"].to_numpy(), ~table["phash"].to_numpy())
    assert not found_in(table, pictures, described=described).pairs.num_rows
    pairs = found_in(table, pictures, described=described, embeddings=embeddings).pairs.to_pylist()
    assert [{p["keep"], p["exclude"]} for p in pairs] == [set(table["id"].to_pylist()[40:])]


def test_blank_pictures_are_twins_only_when_their_pixels_are_equal() -> None:
    blank = np.full((4, 32, 32, 3), 200, np.uint8)
    blank[2:] = 201
    table, pictures = table_of(blank)
    found = found_in(table, pictures)
    assert set(found.pairs["kind"].to_pylist()) == {"exact"} and found.pairs.num_rows == 2


def leaky() -> tuple[pa.Table, dict[str, np.ndarray], list[str]]:
    """Twins: 0 test ~ 1 train (mirrored) = 2 train (a copy of 1); 3 train ~ 4 pool; 5 val ~ 6 pool; 7 and 8 alone."""
    a, b, c, d, e = scenes(5, 11)
    pixels = np.stack([a, a[:, ::-1], a[:, ::-1], b, reencoded(b), c, reencoded(c), d, e])
    splits = ["test", "train", "train", "train", "pool", "val", "pool", "test", "train"]
    table, pictures = table_of(pixels, split=splits)
    return table, pictures, table["id"].to_pylist()


def test_a_train_side_twin_fails_and_every_copy_of_it_is_named() -> None:
    table, pictures, ids = leaky()
    v = cross_split_duplicates(found_in(table, pictures), subject="v1", n=9, policy=POLICY.veracity)
    assert (v.result, v.blocking, v.statistic) == ("fail", True, 2.0)
    assert set(v.findings[:2]) == {ids[1], ids[2]} and v.findings[2:] == (ids[6],)
    assert v.notes[0].startswith(f"mirrored twin of {ids[0][:12]} in test, score ")
    assert len(v.notes) == len(v.findings) and [p[:2] for p in v.data["pairs"]][2] == [ids[5], ids[6]]
    assert "--exclude-twins" in v.remedy


def test_without_the_train_side_it_warns_about_the_pool_and_is_silent_about_train_and_pool() -> None:
    table, pictures, ids = leaky()
    rest = table.take([0, 3, 4, 5, 6, 7, 8])
    v = cross_split_duplicates(found_in(rest, pictures), subject="v1", n=7, policy=POLICY.veracity)
    assert (v.result, v.findings) == ("warn", (ids[6],))
    assert "leak once they are labelled" in v.remedy
    v = cross_split_duplicates(found_in(table.take([3, 4, 7]), pictures), subject="v1", n=3, policy=POLICY.veracity)
    assert (v.result, v.findings) == ("pass", ())


def test_test_loses_to_nothing_and_val_to_test_alone() -> None:
    a = scenes(1)[0]
    table, pictures = table_of(np.stack([a, reencoded(a), reencoded(a, 75)]), split=["train", "val", "test"])
    found = leaks(found_in(table, pictures)).to_pylist()
    assert {(p["exclude_split"], p["keep_split"]) for p in found} <= {
        ("train", "test"),
        ("train", "val"),
        ("val", "test"),
    }
    assert {p["exclude_split"] for p in found} == {"train", "val"}


def test_without_pixels_near_twins_are_candidates_and_warn() -> None:
    ids = list("pqrs")
    columns = {"split": ["train", "test"] * 2, "pixel_digest": list("abcc"), "phash": [0b11, 0b10, -1, -1]}
    table = pa.table({"id": ids, **columns})
    found = find_twins(table, None, policy=POLICY.veracity)
    v = cross_split_duplicates(found, subject="v1", n=4, policy=POLICY.veracity)
    assert v.result == "fail" and v.findings == (ids[2], ids[0]) and "not confirmed" in v.notes[1]
    v = cross_split_duplicates(
        find_twins(table.slice(0, 2), None, policy=POLICY.veracity), subject="v1", n=2, policy=POLICY.veracity
    )
    assert (v.result, v.findings) == ("warn", (ids[0],))


def test_near_repeats_within_a_split_are_counted_once_each() -> None:
    a, b, *others = scenes(30, 2)
    pixels = np.stack([a, reencoded(a), reencoded(a, 75), b, reencoded(b), *others])
    splits = ["train"] * 3 + ["train", "test"] + ["train"] * 28
    table, pictures = table_of(pixels, split=splits)
    found = found_in(table, pictures)
    v = near_duplicates(found, [("test", 1), ("train", 32)], subject="v1", policy=POLICY.variety)
    first, *repeats = sorted(table["id"].to_pylist()[:3])
    assert (v.result, v.blocking) == ("warn", False) and v.statistic == pytest.approx(2 / 33)
    assert set(v.findings) == set(repeats) and first not in v.findings
    generous = POLICY.variety.model_copy(update={"max_near_duplicate_share": 0.1})
    assert near_duplicates(found, [("test", 1), ("train", 32)], subject="v1", policy=generous).result == "pass"


def test_the_check_answers_for_both_verdicts_with_and_without_pixels() -> None:
    table, pictures, _ = leaky()
    context = Context("v1", "version", table, table, 0.0,
                      read_pixels=lambda ids: np.stack([pictures[i] for i in ids]))  # fmt: skip
    (check,) = CHECKS
    assert [(v.v, v.check, v.result) for v in check.run(context)] == [
        ("veracity", "cross_split_duplicates", "fail"),
        ("variety", "near_duplicates", "pass"),
    ]
    blind = Context("v1", "version", table, table, 0.0)
    assert [v.result for v in check.run(blind)] == ["pass", "not_measurable"]
    empty = Context("v1", "version", table.slice(0, 0), table.slice(0, 0), 0.0, read_pixels=None)
    assert [v.result for v in check.run(empty)] == ["pass", "not_measurable"]


def test_large_and_grey_pictures_are_compared_at_one_size() -> None:
    picture = scenes(1)[0]
    large = np.asarray(Image.fromarray(picture).resize((160, 120), Image.Resampling.BICUBIC))
    found = align(picture[None], small(large)[None], np.array([False]))
    assert found.score[0] > 0.95
    assert small(large[..., 0]).shape == (32, 32, 3) and small(np.zeros((1, 1), np.uint8)).shape == (32, 32, 3)
