"""Is it the same picture? Two small pictures are aligned (flip, shift, crop) and correlated; one calibrated score.

The middle of each picture is looked for in the other, which is also enlarged a little in case it is a crop: normalised
cross-correlation (Lewis 1995), all shifts at once by FFT but for thumbnails. Brightness and its edges must both agree:
brightness by itself takes every sky for every other, and edges by themselves fear compression.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from sevenfold.quality.twins_describe import SIDE, THUMB

MARGIN = 4
"""Pixels of 32 that a picture may be shifted to any side."""

ZOOMS = (1.0, 1.08)
"""How much either picture is enlarged, in case the other is cropped: up to about an eighth."""

LIKELY = 1.2
"""Sum of both correlations of two thumbnails below which two pictures are no twins: of 8,000 made ones the least had
1.27; nine of ten neighbours that are none stay below.
"""

ALONE = 0.5
"""1 - edges between a picture and its next one, where no other is a candidate."""

CROWD = 256
"""A larger group of pictures that look alike are no twins of each other, unless they are almost equal."""

BLOCK = 512
"""Pairs that are compared at once."""

_FAR, _DIM = 0.2, 0.75
"""1 - edges, and brightness, beyond which no pair is one of twins."""

_SAME, _REACH, _HALF = 0.004, 0.775, 0.24
"""Limits of 1 - edges at score one half: always, times the crowd to the 1.5th, and at most."""

_FLAT = (2.0, 1.0)
"""Standard deviations, in grey levels, of brightness and edges below which there is nothing to compare."""


@dataclass(frozen=True)
class Aligned:
    """What was found of n pairs, float32 [n] each.

    `score`: 0 to 1, as if no other picture looked alike (see `score_of`); `brightness`, `edges`: correlations at the
    best alignment; `down`, `right`: pixels of 32 by which the second is moved against the first; `zoom`: over 1, the
    second shows a part of the first; under 1, the first of the second.
    """

    score: np.ndarray
    brightness: np.ndarray
    edges: np.ndarray
    down: np.ndarray
    right: np.ndarray
    zoom: np.ndarray

    @staticmethod
    def joined(parts: list[Aligned]) -> Aligned:
        """One after the other; of none, empty."""
        if not parts:
            return Aligned(*(np.zeros(0, np.float32) for _ in fields(Aligned)))
        return Aligned(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Aligned)))

    def take(self, rows: np.ndarray) -> Aligned:
        """Those of some rows (or of a mask)."""
        return Aligned(*(getattr(self, f.name)[rows] for f in fields(Aligned)))


def likely(thumbs: np.ndarray, first: np.ndarray, second: np.ndarray, mirrored: np.ndarray) -> np.ndarray:
    """Which pairs are worth a closer look, bool [n], whatever their order.

    `thumbs`: uint8 [m, 256]; `first`, `second`: rows of it, int [n]; `mirrored`, bool [n]: the second is turned first.
    """
    found = np.empty(len(first), bool)
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        one, other = (_small_planes(thumbs[rows[part]]) for rows in (first, second))
        other[mirrored[part]] = other[mirrored[part]][..., ::-1]
        sums = np.zeros(len(one), np.float32)
        for template, searched in ((one, other), (other, one)):
            brightness, edges, _, _ = _search(template, searched)
            sums = np.maximum(sums, brightness + edges)
        found[part] = sums >= LIKELY
    return found


def align(first: np.ndarray, second: np.ndarray, mirrored: np.ndarray) -> Aligned:
    """The best alignment of n pairs, uint8 [n, 32, 32, 3] each; `mirrored`, bool [n]: the second is turned first."""
    parts = []
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        one, other = _planes(first[part]), _planes(second[part])
        other[mirrored[part]] = other[mirrored[part]][..., ::-1]
        parts.append(_aligned(one, other))
    return Aligned.joined(parts)


def alike(aligned: Aligned) -> np.ndarray:
    """Which pairs agree well enough to be twins, if nothing else around agrees as well: bool [n]."""
    return np.asarray((1 - aligned.edges <= _FAR) & (aligned.brightness >= _DIM))


def score_of(brightness: np.ndarray, edges: np.ndarray, crowd: np.ndarray | float = ALONE) -> np.ndarray:
    """0 to 1: how surely two pictures that correlate so are one; calibrated by eye on natural pairs of CIFAR-10.

    `crowd`: the least 1 - edges of either picture and one that is not its twin. Where all pictures look alike (trousers
    on black) two must agree far better to be one: the ratio test of Lowe 2004, with a limit that falls faster than the
    crowd comes near. Where nothing else looks like them (:data:`ALONE`), edges decide: half at .76, .9 at .85.
    """
    residual = np.maximum(1 - edges, 1e-6)
    limit = np.maximum(_SAME, np.minimum(_REACH * np.power(crowd, 1.5), _HALF))
    logit = np.minimum(5 * np.log(limit / residual), 20 * (brightness - _DIM))
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -30, 30))), np.float32)


def crowds(
    pictures: int, first: np.ndarray, second: np.ndarray, aligned: Aligned, of: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """For each pair the least residual between either picture and a third that is not its twin: float [n].

    Twins are those of one group of at most CROWD (`of`: each picture's group, int [pictures]; `sizes`: of the groups):
    a larger group is no group of twins but a crowd of pictures that look alike.
    """
    residual = 1 - aligned.edges
    outside = (of[first] != of[second]) | (sizes[of[first]] > CROWD)
    owner, other = (np.concatenate([x[outside], y[outside]]) for x, y in ((first, second), (second, first)))
    value = np.concatenate([residual[outside]] * 2)
    order = np.lexsort((other, value, owner))
    owner, other, value = owner[order], other[order], value[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    least, next_least, which = np.full(pictures, ALONE), np.full(pictures, ALONE), np.full(pictures, -1)
    least[owner[rank == 0]], which[owner[rank == 0]] = value[rank == 0], other[rank == 0]
    next_least[owner[rank == 1]] = value[rank == 1]
    sides = [np.where(which[a] == b, next_least[a], least[a]) for a, b in ((first, second), (second, first))]
    return np.minimum(*sides)


def _aligned(one: np.ndarray, other: np.ndarray) -> Aligned:
    best: list[np.ndarray] | None = None
    for swapped, zoom in [(s, z) for z in ZOOMS for s in (False, True)]:
        template, searched = (other, one) if swapped else (one, other)
        brightness, edges, down, right = _search(template, _zoomed(searched, zoom))
        step, scale = (-1, zoom) if swapped else (1, 1 / zoom)
        here = [brightness, edges, step * down, step * right, np.full(len(one), scale)]
        if best is None:
            best = here
        else:
            better = here[0] + here[1] > best[0] + best[1]
            best = [np.where(better, a, b) for a, b in zip(here, best, strict=True)]
    assert best is not None
    return Aligned(*(x.astype(np.float32) for x in (score_of(best[0], best[1]), *best)))


def _planes(pixels: np.ndarray) -> np.ndarray:
    """Brightness about its middle and its edges, float32 [n, 2, 32, 32]."""
    grey = pixels.reshape(-1, 3).astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32) - 128
    grey = grey.reshape(-1, SIDE, SIDE)
    fine, coarse = (_blur(s, SIDE) for s in (0.7, 2.5))
    edges = fine @ grey @ fine.T - coarse @ grey @ coarse.T
    edges -= edges.mean(2, keepdims=True)  # any two horizons are alike
    return np.stack([grey, edges], axis=1)


def _small_planes(thumbs: np.ndarray) -> np.ndarray:
    """The same of thumbnails uint8 [n, 256]: float32 [n, 2, 16, 16]."""
    grey = thumbs.astype(np.float32) - 128
    return np.stack([grey, grey @ _edges_of_thumbs()], axis=1).reshape(-1, 2, THUMB, THUMB)


@lru_cache(maxsize=1)
def _edges_of_thumbs() -> np.ndarray:
    """float32 [256, 256]: flat thumbnails times this are their edges."""
    fine, coarse = (_blur(s, THUMB) for s in (0.35, 1.25))
    return np.ascontiguousarray((np.kron(fine, fine) - np.kron(coarse, coarse)).T)


def _blur(sigma: float, side: int) -> np.ndarray:
    """A Gaussian blur along an axis as a matrix, float32 [side, side], its rows summing to 1."""
    x = np.arange(side)
    weights = np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * sigma**2))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


def _zoomed(planes: np.ndarray, zoom: float) -> np.ndarray:
    """The middle 1 / zoom of the planes at full size, bilinear."""
    if zoom == 1:
        return planes
    at = (np.arange(SIDE) + 0.5 - SIDE / 2) / zoom + SIDE / 2 - 0.5
    low = np.clip(np.floor(at).astype(int), 0, SIDE - 2)
    warp = np.zeros((SIDE, SIDE), np.float32)
    warp[np.arange(SIDE), low] = 1 - (at - low)
    warp[np.arange(SIDE), low + 1] = at - low
    return np.asarray(warp @ planes @ warp.T)


def _search(template: np.ndarray, searched: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(brightness, edges, down, right) where the middles of the templates fit best; [n, 2, side, side] each."""
    n, _, side, _ = template.shape
    margin = side * MARGIN // SIDE
    inner, shifts = side - 2 * margin, 2 * margin + 1
    middle = template[:, :, margin:-margin, margin:-margin]
    middle = middle - middle.mean((2, 3), keepdims=True)
    size = inner * inner
    least = size * np.square(np.array(_FLAT, np.float32))[:, None]
    power = np.square(middle).sum((2, 3))[:, :, None] + least
    cross = (_directly if side == THUMB else _by_spectra)(middle, searched, shifts).reshape(n, 2, -1)
    flat, boxes = searched.reshape(2 * n, -1), _boxes(side, inner)
    total, squares = ((x @ boxes).reshape(n, 2, -1) for x in (flat, np.square(flat)))
    variance = np.maximum(squares - np.square(total) / size, 0) + least
    scores = cross / np.sqrt(variance * power)
    best = (scores[:, 0] + scores[:, 1]).argmax(1)
    rows = np.arange(n)
    down, right = np.divmod(best, shifts)
    return scores[rows, 0, best], scores[rows, 1, best], down - margin, right - margin


def _directly(middle: np.ndarray, searched: np.ndarray, shifts: int) -> np.ndarray:
    """Products of the middles with every window, [n, 2, shifts, shifts]: for thumbnails a sixth of the FFTs' time."""
    inner = middle.shape[-1]
    middle, out = np.ascontiguousarray(middle), np.empty((*middle.shape[:2], shifts, shifts), np.float32)
    for down in range(shifts):
        for right in range(shifts):
            window = searched[:, :, down : down + inner, right : right + inner]
            np.einsum("npij,npij->np", middle, window, out=out[:, :, down, right])
    return out


def _by_spectra(middle: np.ndarray, searched: np.ndarray, shifts: int) -> np.ndarray:
    """The same by FFT."""
    from scipy.fft import irfft2, rfft2  # in single precision several times as fast as NumPy's

    side = searched.shape[-1]
    spectrum = rfft2(searched) * np.conj(rfft2(middle, s=(side, side)))  # the middle, padded with zeros
    return np.asarray(irfft2(spectrum, s=(side, side))[:, :, :shifts, :shifts])


@lru_cache(maxsize=2)
def _boxes(side: int, inner: int) -> np.ndarray:
    """float32 [side * side, shifts * shifts]: flat planes times this are sums over every window of inner x inner."""
    starts = np.arange(side - inner + 1)
    inside = (np.arange(side)[:, None] >= starts) & (np.arange(side)[:, None] < starts + inner)
    return np.kron(inside, inside).astype(np.float32)
