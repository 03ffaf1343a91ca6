"""Drawing samples without a random generator: keyed integer hashes, uniform draws and exact unequal probabilities.

A draw depends on (seed, purpose, ids) alone, never on the order of rows, on numpy's generators or on Python's `hash`,
so that a queue can be rebuilt years later on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sevenfold.storage.errors import SevenfoldError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: np.ndarray) -> np.ndarray:
    """The splitmix64 finaliser: uint64 [n] -> uint64 [n], a bijection with full avalanche (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys(ids: Sequence[str], seed: int, purpose: str) -> np.ndarray:
    """uint64 [n]: one keyed hash per sample id (64 hex digits, the first 16 are used).

    `purpose` separates draws of one seed from each other, as independent hash functions would.
    """
    try:
        raw = np.frombuffer(bytes.fromhex("".join(i[:16] for i in ids)), dtype=">u8").astype(np.uint64)
    except ValueError as error:
        raw = np.zeros(0, np.uint64)
        if len(ids):
            raise SevenfoldError(
                "an id is not hexadecimal", where="sample ids", expected="sha256 in hex (64 characters)"
            ) from error
    if len(raw) != len(ids):
        raise SevenfoldError("an id is too short", where="sample ids", expected="sha256 in hex (64 characters)")
    return mix(mix(raw + _GOLDEN) ^ _salt(seed, purpose))


def key(*words: int) -> np.uint64:
    """One hash of several integers of any size."""
    state = np.zeros(1, np.uint64)
    for word in words:
        state = mix((state ^ np.uint64(word % 2**64)) + _GOLDEN)
    return np.uint64(state[0])


def numbered(numbers: np.ndarray, salt: np.uint64) -> np.ndarray:
    """uint64 [n]: one keyed hash per number (an integer array), equal only for equal numbers."""
    return mix(numbers.astype(np.uint64) * _GOLDEN + salt)


def unit(x: np.ndarray) -> np.ndarray:
    """uint64 [n] -> float64 [n] in [0, 1), the top 53 bits."""
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(ids: Sequence[str], size: int, seed: int, purpose: str) -> np.ndarray:
    """int64 [min(size, n)]: a simple random sample of the rows, in hash order: the draw of 5 begins that of 6."""
    return np.lexsort((np.asarray(ids, dtype=object), keys(ids, seed, purpose)))[: max(size, 0)]


def capped(weights: np.ndarray, total: float, caps: np.ndarray | float = 1.0) -> np.ndarray:
    """float64 [n]: `total` shared out in proportion to `weights`, none above its cap (inclusion probabilities: 1).

    What the capped rows cannot take is shared among the others again until nothing exceeds its cap. Rows of weight 0
    get 0; when the rows with weight cannot take `total`, each of them gets its cap.
    """
    w = np.asarray(weights, dtype=np.float64)
    top = np.broadcast_to(np.asarray(caps, dtype=np.float64), w.shape)
    full = np.zeros(len(w), dtype=bool)
    while True:
        rest = max(total - float(top[full].sum()), 0.0)
        mass = float(w[~full].sum())
        share = np.where(full, top, w / mass * rest if mass > 0 else 0.0)
        over = ~full & (w > 0) & (share >= top)
        if not over.any():
            return share
        full |= over


def systematic(probabilities: np.ndarray, order: np.ndarray, start: float) -> np.ndarray:
    """int64: rows drawn so that row i is in with probability exactly `probabilities[i]`, in the order given.

    Madow's systematic sampling (1949): lay the probabilities end to end in `order`; take the rows in which the points
    start, start + 1, start + 2 ... fall. For a whole-numbered sum the size is fixed; otherwise it is the sum rounded
    up or down. Neighbours in `order` are rarely taken together, so an order by group stratifies by group.

    Parameters
    ----------
    probabilities : float64 [n] in [0, 1].
    order : int64 [n], a permutation of the rows.
    start : the one random number, in [0, 1).
    """
    one = 1 << 40  # integers, so that a row of probability 1 is never lost to rounding
    q = np.rint(probabilities * one).astype(np.int64)
    drift = int(q.sum()) % one
    drift -= one if drift > one // 2 else 0
    open_rows = np.flatnonzero((q > 0) & (q < one))
    if len(open_rows) and abs(drift) <= len(q):  # the sum was whole, but for rounding
        q[open_rows[np.argmin(np.abs(2 * q[open_rows] - one))]] -= drift
    ends = np.cumsum(q[order])
    points = -((int(start * one) - ends) // one)  # how many of start, start + 1, ... lie below each end
    return order[np.diff(points, prepend=np.int64(0)) > 0]


def start(seed: int, purpose: str) -> float:
    """The one number in [0, 1) that :func:`systematic` needs."""
    return float(unit(mix(np.array([_salt(seed, purpose)])))[0])


def _salt(seed: int, purpose: str) -> np.uint64:
    state = np.array([seed % 2**64], dtype=np.uint64)
    for byte in purpose.encode():
        state = mix((state ^ np.uint64(byte)) + _GOLDEN)
    return np.uint64(state[0])
