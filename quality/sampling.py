"""Which samples a test compares: a fixed budget of them, chosen by a hash of their ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_SALT = 0x766F6C6174696C65  # "volatile": a choice of our own, not that of another hash of the same ids
_CHUNK = 1 << 20


def subsample(ids: Sequence[str] | pa.Array | pa.ChunkedArray, budget: int) -> np.ndarray:
    """Row numbers int64 [min(n, budget)]: those whose salted id hash is smallest, in the order of the hash.

    The choice and its order depend on the ids alone, never on their order, and adding samples replaces few of those
    chosen. Ten million ids take about a second.
    """
    keys = hash_ids(ids)
    if len(keys) <= budget:
        return np.argsort(keys, kind="stable")
    chosen = np.argpartition(keys, budget)[:budget]
    return chosen[np.argsort(keys[chosen], kind="stable")]


def seed_of(*sides: Sequence[str] | pa.Array | pa.ChunkedArray) -> int:
    """A seed from the ids compared, whatever their order: the same samples give the same answer.

    Permutations must differ from comparison to comparison: one fixed set of them is no group, and its level not exact.
    """
    state = np.zeros(1, np.uint64)
    for side in sides:
        state = _splitmix(state ^ np.bitwise_xor.reduce(hash_ids(side), initial=np.uint64(0)))
    return int(state[0] >> np.uint64(1))


def hash_ids(ids: Sequence[str] | pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A 64-bit hash of each id's bytes: uint64 [n]; not for secrets. Every 8 bytes are mixed in (splitmix64)."""
    array = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids, pa.string())
    parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    out = [_hash(part.slice(i, _CHUNK)) for part in parts for i in range(0, len(part), _CHUNK)]
    return np.concatenate(out) if out else np.zeros(0, np.uint64)


def _hash(ids: pa.Array) -> np.ndarray:
    ids = ids.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[ids.offset : ids.offset + len(ids) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    out = np.empty(len(ids), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        if len(rows) == len(ids):  # the rule: ids are digests of one length, so nothing is copied
            body = data[offsets[0] : offsets[-1]].reshape(len(ids), length)
        else:
            body = data[offsets[rows][:, None] + np.arange(length)]
        out[rows] = _mix_words(body)
    return out


def _mix_words(body: np.ndarray) -> np.ndarray:
    """uint8 [n, length] -> uint64 [n]."""
    n, length = body.shape
    if length % 8:
        body = np.concatenate([body, np.zeros((n, 8 - length % 8), np.uint8)], axis=1)
    words = np.ascontiguousarray(body).view("<u8")
    state = np.full(n, (_SALT + length) & 0xFFFFFFFFFFFFFFFF, np.uint64)
    for i in range(words.shape[1]):
        state = _splitmix(state ^ words[:, i])
    return state


def _splitmix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
