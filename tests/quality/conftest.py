"""Hand-made tables with the columns of the lake's, small enough to reason about."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

CLASSES = ("boot", "coat", "shirt")


def sample_id(key: object) -> str:
    return hashlib.sha256(str(key).encode()).hexdigest()


def make_rows(n: int = 300, *, seed: int = 0, prefix: str = "s", **columns: Any) -> pa.Table:
    """n samples of three classes, splits about 70/10/20; any column may be given instead."""
    rng = np.random.default_rng(seed)
    given = {
        "id": [sample_id(f"{prefix}{i}") for i in range(n)],
        "ext": ["png"] * n,
        "label": [CLASSES[i % 3] for i in range(n)],
        "split": rng.choice(["train", "val", "test"], n, p=[0.7, 0.1, 0.2]).tolist(),
        "path": [f"{prefix}/{i}.png" for i in range(n)],
        "width": [28] * n,
        "height": [28] * n,
        "channels": [1] * n,
        "mode": ["L"] * n,
        "format": ["PNG"] * n,
        "pixel_digest": [sample_id(f"pixels {prefix}{i}") for i in range(n)],
        "phash": rng.integers(-(2**63), 2**63 - 1, n).tolist(),
        "bytes": [400] * n,
    } | columns
    kinds = {
        "width": pa.int32(),
        "height": pa.int32(),
        "channels": pa.int32(),
        "phash": pa.int64(),
        "bytes": pa.int64(),
    }
    return pa.table({name: pa.array(values, kinds.get(name, pa.string())) for name, values in given.items()})


def make_properties(rows: pa.Table, *, seed: int = 0, shift: float = 0.0) -> pa.Table:
    """The seven measured properties; ``shift`` brightens, in standard deviations."""
    rng = np.random.default_rng(seed)
    n = rows.num_rows
    return pa.table(
        {
            "id": rows["id"],
            "brightness": np.clip(0.4 + 0.05 * (rng.standard_normal(n) + shift), 0, 1),
            "contrast": np.clip(0.2 + 0.03 * rng.standard_normal(n), 0.01, 1),
            "sharpness": np.abs(rng.normal(0.1, 0.02, n)),
            "entropy": rng.normal(4, 0.5, n),
            "colorfulness": np.zeros(n),
            "aspect": np.ones(n),
            "bytes_per_pixel": rng.normal(0.5, 0.1, n),
        }
    )


def make_quarantine(**reasons: int) -> pa.Table:
    rows = [(f"{reason}/{i}.png", reason) for reason, n in reasons.items() for i in range(n)]
    return pa.table(
        {
            "path": pa.array([p for p, _ in rows], pa.string()),
            "reason": pa.array([r for _, r in rows], pa.string()),
            "detail": pa.array([""] * len(rows), pa.string()),
        }
    )


def make_record(rows: pa.Table, quarantine: pa.Table, **changes: Any) -> dict[str, Any]:
    reasons = quarantine["reason"].to_pylist()
    return {
        "batch": "b1",
        "status": "landed",
        "counts": {
            "inputs": rows.num_rows + len(reasons),
            "samples": rows.num_rows,
            "aliases": 0,
            "relabels": 0,
            "quarantined": len(reasons),
        },
        "reasons": {r: reasons.count(r) for r in sorted(set(reasons))},
        "times": {"landed": 1_000_000.0, "newest_input": 999_900.0},
        "seconds": {"ingest": 1.0},
    } | changes


@pytest.fixture
def rows() -> Callable[..., pa.Table]:
    return make_rows


@pytest.fixture
def properties() -> Callable[..., pa.Table]:
    return make_properties


@pytest.fixture
def quarantine() -> Callable[..., pa.Table]:
    return make_quarantine


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    return make_record


@pytest.fixture
def classes() -> tuple[str, ...]:
    return CLASSES
