"""What the tests of several rooms share: an S3 server on loopback and buckets in it; labels of which some are wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[dict[str, str]]:
    """An S3 server on loopback (moto) for the session; yields the environment that points a client at it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert server.poll() is None, "the S3 server ended by itself"
            assert time.monotonic() < deadline, "the S3 server did not start"
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield {
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def bucket(bucket_server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://lakes-<n>/some/prefix`, fresh and empty. The environment is set, for processes that a test starts too."""
    import boto3

    for name, value in {**bucket_server, "SEVENFOLD_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    name = f"lakes-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=bucket_server["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)
    return f"s3://{name}/some/prefix"


def world(
    n: int = 4000, noise: float = 0.1, seed: int = 0, sharp: float = 1.0, smooth: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(probs float [n, 4], label int [n], truth int [n]): a calibrated model, then flips, then a distortion.

    `sharp` raises and `smooth` mixes the model's probabilities: as label smoothing does, it knows less than it shows.
    """
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.08), n)
    truth = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    flip = rng.random(n) < noise
    label = np.where(flip, (truth + rng.integers(1, 4, n)) % 4, truth)
    shown = np.maximum(p, 1e-7) ** sharp
    shown = (1 - smooth) * shown / shown.sum(1, keepdims=True) + smooth / 4
    return shown, label, truth
