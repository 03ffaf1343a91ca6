"""Augmentation: the loop it replaces, the same for a sample wherever it stands, another for each occurrence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.training.augment import SHIFT, Augmentation, augment, sample_keys

BOTH: tuple[Augmentation, ...] = ("flip", "shift")


def views(image: np.ndarray, which: tuple[Augmentation, ...]) -> set[bytes]:
    """Every result an image may have."""
    h, w, _ = image.shape
    reach = max(h * SHIFT // 32, 1) if "shift" in which else 0
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)))
    found = set()
    for down in range(2 * reach + 1):
        for right in range(2 * reach + 1):
            view = padded[down : down + h, right : right + w]
            found.add(view.tobytes())
            if "flip" in which:
                found.add(np.ascontiguousarray(view[:, ::-1]).tobytes())
    return found


@given(
    st.integers(1, 9), st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 3]),
    st.sampled_from([("flip",), ("shift",), BOTH]), st.integers(0, 2**63),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_each_image_is_flipped_and_shifted(
    b: int, h: int, w: int, c: int, which: tuple[Augmentation, ...], seed: int
) -> None:
    random = np.random.default_rng(seed)
    images, keys = random.integers(1, 256, (b, h, w, c), dtype=np.uint8), random.integers(0, 2**63, b).astype(np.uint64)
    before = images.copy()
    found = augment(images, keys, seed, which)
    assert np.array_equal(images, before)
    assert all(found[i].tobytes() in views(images[i], which) for i in range(b))
    order = random.permutation(b)  # nothing depends on the others in the batch
    assert np.array_equal(augment(images[order], keys[order], seed, which), found[order])


def test_all_views_occur_and_evenly() -> None:
    image = np.random.default_rng(0).integers(1, 256, (8, 8, 3), dtype=np.uint8)
    n = 8000
    found = augment(np.repeat(image[None], n, 0), sample_keys(np.arange(n, dtype=np.uint64), np.zeros(n, int)), 1, BOTH)
    counts = np.unique([f.tobytes() for f in found], return_counts=True)[1]
    expected = n / 18  # 3 x 3 shifts, flipped or not
    assert len(counts) == 18
    assert ((counts - expected) ** 2 / expected).sum() < 44.5  # chi square, 17 degrees of freedom, p = 0.0003


def test_another_occurrence_or_seed_is_another_view() -> None:
    keys = np.arange(64, dtype=np.uint64)
    images = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    first = augment(images, sample_keys(keys, np.zeros(64, int)), 1, BOTH)
    for occurrences, seed in ((np.ones(64, int), 1), (np.zeros(64, int), 2)):
        other = augment(images, sample_keys(keys, occurrences), seed, BOTH)
        assert (other != first).any((1, 2, 3)).mean() > 0.9
    assert len(set(sample_keys(keys.repeat(8), np.tile(np.arange(8), 64)).tolist())) == 512


@pytest.mark.parametrize("images", [np.zeros((0, 8, 8, 3), np.uint8), np.ones((2, 8, 8, 3), np.uint8)])
def test_nothing_to_do_changes_nothing(images: np.ndarray) -> None:
    assert augment(images, np.zeros(len(images), np.uint64), 0, ()) is images
    assert augment(images, np.zeros(len(images), np.uint64), 0, BOTH).shape == images.shape
