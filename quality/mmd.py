"""Maximum mean discrepancy of embeddings: RBF kernels of several widths, one null of pooled permutations.

The statistic is the unbiased MMD squared (Gretton et al., JMLR 2012) at five widths around the median distance, each
standardised by its permutations; their maximum is compared with that of the permutations (as in MMDAgg, Schrab 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sevenfold.quality.two_sample import DRAWS, permutations

WIDTHS = (4.0, 2.0, 1.0, 0.5, 0.25)
"""Kernel widths as multiples of the median pairwise distance, each half of the one before."""


@dataclass(frozen=True)
class Discrepancy:
    """What the test found.

    Parameters
    ----------
    effect : the share of the kernel's spread that lies between the two sides, as a correlation ratio in 0..1 (its root;
        chance removed, since MMD squared is unbiased): comparable over embeddings and sizes.
    interval : the effect's 95 % interval, from the permutations' spread.
    width : the kernel width that spoke loudest.
    witness_now, witness_reference : how much more alike the now side each sample is, itself left out: float [n], [m].
    """

    effect: float
    interval: tuple[float, float]
    p: float
    width: float
    witness_now: np.ndarray
    witness_reference: np.ndarray


def mmd(now: np.ndarray, before: np.ndarray, *, draws: int = DRAWS, seed: int = 0) -> Discrepancy:
    """Compare float [n, d] with float [m, d], both finite, n and m at least 2.

    Costs (n + m)^2 (d + 5 draws) multiplications: cut the sides to a budget first.
    """
    n, m = len(now), len(before)
    squares = squared_distances(np.concatenate([now, before]).astype(np.float32))
    median = _median(squares)
    sides = permutations(n, m, draws, seed).astype(np.float32)
    kernel = _kernel(squares, median, WIDTHS[0])
    found = []
    for width in WIDTHS:
        if width != WIDTHS[0]:
            kernel *= kernel
            kernel *= kernel  # to the fourth power: half the width
        found.append(_unbiased(kernel, sides, n, m))
    statistics = np.stack(found)
    spread = statistics.std(axis=1, keepdims=True)
    scaled = np.divide(
        statistics - statistics.mean(axis=1, keepdims=True), spread, out=np.zeros_like(statistics), where=spread > 1e-12
    )
    loudest = int(np.argmax(scaled[:, 0]))
    width = WIDTHS[loudest]
    largest = scaled.max(axis=0)
    kernel = _kernel(squares, median, width)
    like_now, like_before = kernel[:, :n].sum(1), kernel[:, n:].sum(1)
    spread_of_all = 1 - float(kernel.sum(dtype=np.float64)) / ((n + m) * (n + m - 1))  # k(x, x) = 1
    total = 4 * spread_of_all or 1.0
    ratio, noise = float(statistics[loudest, 0]) / total, float(statistics[loudest, 1:].std()) / total
    witness = np.concatenate(
        [like_now[:n] / (n - 1) - like_before[:n] / m, like_now[n:] / n - like_before[n:] / (m - 1)]
    )
    return Discrepancy(
        effect=_root(ratio),
        interval=(_root(ratio - 1.96 * noise), _root(ratio + 1.96 * noise)),
        p=float((largest >= largest[0] - 1e-6).mean()),
        width=width * float(np.sqrt(median)),
        witness_now=witness[:n],
        witness_reference=witness[n:],
    )


def witness_of(points: np.ndarray, now: np.ndarray, before: np.ndarray, width: float) -> np.ndarray:
    """How much more alike the now side each point is: float32 [p] of float [p, d], by a kernel of this width."""
    sides = np.concatenate([now, before]).astype(np.float32)
    middle = sides.mean(axis=0)
    sides = sides - middle
    points = points.astype(np.float32) - middle
    squares = (points * points).sum(1)[:, None] + (sides * sides).sum(1) - 2 * points @ sides.T
    kernel = np.exp(np.maximum(squares, 0) * np.float32(-1 / (2 * width * width)))
    return np.asarray(kernel[:, : len(now)].mean(1) - kernel[:, len(now) :].mean(1))


def squared_distances(x: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances float32 [n, n] of float32 [n, d]; centred first, so that float32 suffices."""
    x = x - x.mean(axis=0)
    norms = (x * x).sum(axis=1)
    out = x @ x.T
    out *= -2
    out += norms[:, None]
    out += norms
    return np.maximum(out, 0, out=out)


def _median(squares: np.ndarray) -> float:
    """The median squared distance of about 500 samples from all others; 1 where all are the same."""
    rows = np.arange(0, len(squares), max(1, len(squares) // 500))
    part = squares[rows]
    others = np.arange(len(squares)) != rows[:, None]
    return float(np.median(part[others])) or 1.0


def _kernel(squares: np.ndarray, median: float, width: float) -> np.ndarray:
    """exp(-d^2 / (2 width^2 median)) without its diagonal."""
    kernel = np.exp(squares * np.float32(-1 / (2 * width * width * median)))
    np.fill_diagonal(kernel, 0)
    return kernel


def _unbiased(kernel: np.ndarray, sides: np.ndarray, n: int, m: int) -> np.ndarray:
    """MMD^2_u of every permutation: float64 [b]; the kernel has no diagonal, sides are 1 for now and 0 else."""
    towards = kernel @ sides  # [N, b]: each sample's kernel sum with the now side
    within = np.einsum("ib,ib->b", sides, towards, dtype=np.float64)
    touching = towards.sum(axis=0, dtype=np.float64)
    across = touching - within
    rest = float(kernel.sum(dtype=np.float64)) - within - 2 * across
    return within / (n * (n - 1)) + rest / (m * (m - 1)) - 2 * across / (n * m)


def _root(value: float) -> float:
    return float(np.sqrt(min(max(value, 0.0), 1.0)))
