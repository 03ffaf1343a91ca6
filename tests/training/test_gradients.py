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


def run_ranks(folder: Path, world: int) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(world)
    ]  # fmt: skip
    assert [p.wait(120) for p in ranks] == [0] * world


@pytest.fixture(scope="module")
def gradients(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, np.ndarray]]:
    """(norm, number of ranks) -> gradients, losses and final state of gradient_rank.py."""
    folder = tmp_path_factory.mktemp("gradients")
    for world in (1, 2):
        run_ranks(folder, world)
    return {(p.stem[:-2], int(p.stem[-1])): dict(np.load(p)) for p in folder.glob("*.npz")}


@pytest.mark.e2e
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_two_ranks_compute_the_one_process_gradient(
    gradients: dict[tuple[str, int], dict[str, np.ndarray]], norm: str
) -> None:
    """Blocks of 13 over 2 ranks (7 and 6), one sample broken; the second block has 7 samples, all on the first rank."""
    one, two = gradients[norm, 1], gradients[norm, 2]
    assert one.keys() == two.keys()
    for name, expected in one.items():
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-5 * scale, err_msg=name)
    assert one["1.loss"][1] < one["0.loss"][1], "the second block holds fewer samples"


@pytest.mark.e2e
def test_ordinary_batch_norm_does_not(gradients: dict[tuple[str, int], dict[str, np.ndarray]]) -> None:
    """The proof above can fail: torch's own BatchNorm takes its statistics from one rank's part of the block."""
    one, two = gradients["local", 1], gradients["local", 2]
    assert not np.allclose(one["0.stem.weight"], two["0.stem.weight"], rtol=1e-3)
