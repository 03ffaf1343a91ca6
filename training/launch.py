"""Starting training as processes of its own: from the library, the command line, or Dagster Pipes.

    launch()  ->  python -m sevenfold.training.launch SPEC --parent PID      dies with its parent
                    ranks 1: becomes the rank    ranks > 1: becomes torchrun, which starts the ranks

A spec is a JSON file {root, mode, config}; its folder receives progress.jsonl and result.json: working files of one
launch on this machine, in runs/.launches/ of a lake on a disk, beside the copies of one in a bucket. This module
imports nothing heavy, so that the environment (threads, allocator) is set before torch is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from sevenfold.storage import files
from sevenfold.storage.canonical import canonical_json, digest_json
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.storage.room import cache_folder
from sevenfold.storage.store import absolute

if TYPE_CHECKING:
    from sevenfold.training.config import TrainConfig

Mode = Literal["train", "score"]
SPEC, PROGRESS, RESULT, ERROR, LOG = "spec.json", "progress.jsonl", "result.json", "error.json", "log.txt"
_LAST_LINES = 25

KEPT = 7 * 86400.0
"""Seconds for which a launch that failed stays to be read where no garbage collection of a lake comes by."""


def launch(
    lake: str | os.PathLike[str],
    config: TrainConfig,
    mode: Mode = "train",
    *,
    ranks: int | None = None,
    progress: Progress = silent,
    extra_env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Train (or score) in processes of their own and wait for the result.

    Returns {"mode": "train", "runs": [result per seed]} or {"mode": "score", "score": result}; `ranks` overrides the
    configuration's. Raises SevenfoldError with the last lines of the log when a rank fails.

    Parameters
    ----------
    lake : a folder or s3://bucket/prefix.
    """
    spec = prepare(lake, config if ranks is None else config.changed(ranks=ranks), mode)
    return run(spec, progress=progress, extra_env=extra_env)


def prepare(lake: str | os.PathLike[str], config: TrainConfig, mode: Mode = "train") -> Path:
    """Write the spec file of a launch into a new folder (see :func:`folder_of_launches`) and return its path."""
    root = absolute(lake, Path.cwd())
    spec = {"root": root, "mode": mode, "config": config.model_dump(mode="json")}
    launches = folder_of_launches(root)
    launches.mkdir(parents=True, exist_ok=True)
    if "://" in root:
        _forget_old(launches)
    path = Path(tempfile.mkdtemp(prefix=f"{digest_json(spec)[:16]}-", dir=launches)) / SPEC
    path.write_bytes(canonical_json(spec))
    return path


def folder_of_launches(root: str) -> Path:
    """Where the launches of a lake have their folders on this machine.

    In the lake itself where that is a folder, so that `gc` clears away those that failed; for one in a bucket under
    SEVENFOLD_CACHE (default: ~/.cache/sevenfold), where each launch removes failed ones older than KEPT.
    """
    if "://" not in root:
        return Path(root) / "runs" / ".launches"
    return cache_folder() / "launches"


def _forget_old(launches: Path) -> None:
    for spec in launches.glob(f"*-*/{SPEC}"):
        folder = spec.parent
        try:
            newest = max(p.stat().st_mtime for p in folder.iterdir())
        except (FileNotFoundError, ValueError):  # it has just ended
            continue
        if time.time() - newest > KEPT and not files.is_locked(launches / f"{folder.name.partition('-')[0]}.lock"):
            shutil.rmtree(folder, ignore_errors=True)


def command(config_path: str | os.PathLike[str]) -> list[str]:
    """The argument list that carries out a spec; the processes end when the calling process does."""
    return [sys.executable, "-m", "sevenfold.training.launch", str(config_path), "--parent", str(os.getpid())]


def run(spec: Path, *, progress: Progress = silent, extra_env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Carry out a spec written by :func:`prepare` and return its result."""
    with (
        open(spec.parent / LOG, "wb") as log,
        subprocess.Popen(
            command(spec),
            env={**os.environ, **(extra_env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            _follow(process, spec.parent / PROGRESS, progress)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
    return read_result(spec, process.returncode)


def read_result(spec: Path, code: int = 0) -> dict[str, Any]:
    """The result of a launch that has ended; its folder is removed.

    Raises SevenfoldError when it failed, with what a rank said or the end of the log; the folder stays.
    """
    folder = spec.parent
    if code == 0 and (folder / RESULT).exists():
        result = json.loads((folder / RESULT).read_bytes())
        shutil.rmtree(folder)
        return result
    if (folder / ERROR).exists():
        raise SevenfoldError(**json.loads((folder / ERROR).read_bytes()))
    lines = (folder / LOG).read_text(errors="replace").splitlines() if (folder / LOG).exists() else []
    tail = "\n    ".join(lines[-_LAST_LINES:])
    raise SevenfoldError(
        f"training ended with code {code}" + (f"; the log ends with\n    {tail}" if tail else ""),
        where=str(folder / LOG),
        do="mend what the log names and start again: finished steps are kept",
    )


def environment(ranks: int, threads: int | None) -> dict[str, str]:
    """What must be set before torch starts: threads per rank, the allocator, loopback only, no shared store."""
    cores = len(os.sched_getaffinity(0))
    return {
        "OMP_NUM_THREADS": str(threads or max(cores // ranks, 1)),
        "MALLOC_TRIM_THRESHOLD_": "1000000000",
        "MALLOC_MMAP_THRESHOLD_": "1000000000",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
    }


def _follow(process: subprocess.Popen[bytes], path: Path, progress: Progress) -> None:
    """Turn lines of the progress file into calls until the process ends."""
    at = 0
    while True:
        ended = process.poll() is not None
        if path.exists():
            with open(path, "rb") as f:
                f.seek(at)
                data = f.read()
            whole = data[: data.rfind(b"\n") + 1]
            at += len(whole)
            for line in whole.splitlines():
                progress(*json.loads(line))
        if ended:
            return
        time.sleep(0.05)


def _wrapper(spec: Path, parent: int) -> NoReturn:
    """Tie this process to its parent, set the environment, and become the rank or torchrun."""
    _die_with_parent(parent)
    config = json.loads(spec.read_bytes())["config"]
    ranks = config["ranks"]
    _hold_lock(spec.parent)
    env = {**os.environ, **environment(ranks, config["threads"])}
    for stale in ("rendezvous", "store"):
        (spec.parent / stale).unlink(missing_ok=True)
    if ranks > 1:  # files, since torch's TCP stores listen on every interface
        env["SEVENFOLD_STORE"] = str(spec.parent / "store")
    rank = ["-m", "sevenfold.training.launch", str(spec), "--rank"]
    if ranks > 1:
        rank = [
            "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
            "--rdzv-conf=store_type=file", f"--rdzv-endpoint={spec.parent / 'rendezvous'}",
            "--local-addr=127.0.0.1", "--max-restarts=0", *rank,
        ]  # fmt: skip
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *rank], env)


def _rank(spec: Path) -> NoReturn:
    """One rank's whole life."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _die_with_parent(os.getppid())
    from sevenfold.training.worker import work

    work(spec)


def _die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux); survives exec."""
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            sys.exit("the process that started this training has ended")


def _hold_lock(folder: Path) -> None:
    """Wait for equal launches to end; the lock is held over exec and released by the kernel."""
    import fcntl

    fd = os.open(folder.parent / f"{folder.name.partition('-')[0]}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(fd, True)
    fcntl.flock(fd, fcntl.LOCK_EX)


def main(arguments: list[str]) -> NoReturn:
    """`SPEC --parent PID` starts a launch; `SPEC --rank` is one rank of it."""
    if len(arguments) == 2 and arguments[1] == "--rank":
        _rank(Path(arguments[0]))
    if len(arguments) == 3 and arguments[1] == "--parent" and arguments[2].isdigit():
        _wrapper(Path(arguments[0]), int(arguments[2]))
    sys.exit("usage: python -m sevenfold.training.launch SPEC --parent PID")


if __name__ == "__main__":
    main(sys.argv[1:])
