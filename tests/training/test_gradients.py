"""Two ranks' gradients are the one-process gradient of the same global block: real processes, real gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("gradient_rank.py")


def gradients(folder: Path, world: int, norm: str) -> dict[str, np.ndarray]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    out = folder / f"{norm}-{world}.npz"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(out), norm],
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(world)
    ]  # fmt: skip
    assert [p.wait(120) for p in ranks] == [0] * world
    return dict(np.load(out))


@pytest.mark.e2e
def test_two_ranks_compute_the_one_process_gradient(tmp_path: Path) -> None:
    """Blocks of 13 over 2 ranks (7 + 6), the second with 6 empty slots, all but one on the second rank; one broken."""
    one, two = gradients(tmp_path, 1, "group"), gradients(tmp_path, 2, "group")
    assert one.keys() == two.keys()
    for name, expected in one.items():
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
    assert one["1.loss"][1] < one["0.loss"][1], "the second block holds fewer samples"


@pytest.mark.e2e
def test_batch_norm_does_not(tmp_path: Path) -> None:
    """The proof above can fail: BatchNorm's statistics depend on how a block is cut."""
    one, two = gradients(tmp_path, 1, "batch"), gradients(tmp_path, 2, "batch")
    assert not np.allclose(one["0.stem.weight"], two["0.stem.weight"], rtol=1e-3)
