"""The loader beside webdataset, MosaicML Streaming, LitData, plain files and the bare decode loop, in one run.

    python -m venv peers && peers/bin/pip install -r benchmarks/peers/requirements.txt
    python benchmarks/loader.py --peers peers/bin/python --zip cifar10_jpeg.zip --photos photos/ [--rounds 5] [--quick]

The zip holds train/<class>/*.jpg of 32x32; the folder holds photographs, repeated with a comment of their own. Every
loader reads the same images (webdataset: the lake's very tars) and delivers the same bytes and pixels, which is checked
first. Each figure is a fresh process; rounds go round all of them, so that each is measured beside all others.
A cold epoch follows upon dropping the files' pages; a warm rate is that of the epochs after it. Workloads:
bytes, decoded (with bare), resume, memory. Prints Markdown; run it on an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loader_data import Images, drop_pages, photos, prepare, small
from loader_tables import report

HERE = Path(__file__).parent
PEERS = ("files", "webdataset", "streaming", "litdata")
DECODERS = ("pillow", "simplejpeg")
WORKLOADS = ("bytes", "decoded", "resume", "memory")
LIMIT = 900


@dataclass(frozen=True)
class Case:
    """One figure to measure: in this process, with this spec. `key` is what the tables look it up by."""

    loader: str
    images: Images
    spec: dict[str, Any]
    key: tuple[Any, ...]


@dataclass
class Runner:
    """Starts each task in a process of its own, in a session of its own, with a temporary folder that goes away."""

    peers: str
    scratch: Path
    warnings: set[str] = field(default_factory=set)

    def ask(self, loader: str, spec: dict[str, Any]) -> dict[str, Any]:
        ours = loader in ("ours", "bare")
        script = HERE / ("loader_ours.py" if loader == "ours" else f"peers/{_script(loader)}")
        path = [str(HERE), *([os.environ["PYTHONPATH"]] if ours and os.environ.get("PYTHONPATH") else [])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TMPDIR": str(self.scratch)}
        env |= {"LITDATA_CACHE_DIR": str(self.scratch), "HF_HUB_OFFLINE": "1"}
        words = [sys.executable if ours else self.peers, str(script), json.dumps(spec)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, env=env, start_new_session=True, **pipes) as process:
            try:
                out, err = process.communicate(timeout=LIMIT)
            except BaseException:  # a time-out, or this run was told to end: whoever raises it, the child goes too
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode:
            raise SystemExit(f"{loader} {spec} ended with {process.returncode}:\n{err}")
        self._nothing_left(process.pid, loader)
        self.warnings |= {f"{loader}: {line.strip()}" for line in err.splitlines() if "Warning" in line}
        return dict(json.loads(out.strip().splitlines()[-1]))

    def _nothing_left(self, session: int, loader: str) -> None:
        """Every process of the child's session has ended, give or take the moments that takes."""
        for _ in range(50):
            try:
                os.killpg(session, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
        os.killpg(session, signal.SIGKILL)
        self.warnings.add(f"{loader}: processes outlived it and were ended")


def _script(loader: str) -> str:
    return "bare.py" if loader == "bare" else f"with_{loader}.py"


def base(images: Images, loader: str, **more: Any) -> dict[str, Any]:
    """What every spec has."""
    return {
        "store": str(images.store(loader)), "side": images.side, "batch": images.batch, "buffer": images.buffer,
        "samples": images.samples, "workers": 0, "threads": 0, **more,
    }  # fmt: skip


def rates(images: Images, work: str, seconds: float, quick: bool, processes: list[int]) -> list[Case]:
    """The measured cases of bytes or decoded: every loader, decoder and number of workers; and the bare loops."""
    cases = []
    known = DECODERS[1:] if quick else DECODERS
    for loader in ("ours", *PEERS):
        decoders = [None] if work == "bytes" else ["simplejpeg"] if loader == "ours" else list(known)
        ways = [(0, 0)] if quick else [(0, 0), *((n, 1) for n in processes)]
        if loader == "ours":  # also threads that work ahead, in this process
            ways = [(0, 0), (2, 1), (0, 2)] if quick else [*ways, *([(0, 1), (0, 2)] if work == "decoded" else [])]
        for decoder in decoders:
            for workers, threads in ways[:1] if decoder == "pillow" else ways:  # with workers, by the fast decoder
                spec = base(
                    images, loader, task="measure", work=work, decoder=decoder, workers=workers, threads=threads,
                    seconds=seconds,
                )  # fmt: skip
                cases.append(Case(loader, images, spec, (images.name, work, loader, decoder, workers, threads)))
    if work == "decoded":
        for decoder in known:
            for threads in (1, 2):
                for side in (0, images.side) if images.side > 32 else (0,):
                    spec = base(images, "bare", task="bare", decoder=decoder, threads=threads, seconds=seconds)
                    key = (images.name, work, "bare+resize" if side else "bare", decoder, 0, threads)
                    cases.append(Case("bare", images, spec | {"side": side}, key))
    return cases


def check(runner: Runner, images: Images, works: list[str], quick: bool) -> None:
    """Every loader delivers every sample once, with the same bytes, pixels and label as the others."""
    for work in works:
        found = {}
        for loader in ("ours", *PEERS):
            for decoder in (None,) if work == "bytes" else DECODERS[1:] if quick else DECODERS:
                if loader == "ours" and decoder == "pillow":
                    continue
                spec = base(images, loader, task="verify", work=work, decoder=decoder)
                told = runner.ask(loader, spec)
                found[loader, decoder] = (told["samples"], told["digest"])
        resized = work == "decoded" and images.side > 32  # by Pillow or by torch, whose results differ by 1
        if any(len({v for (_, d), v in found.items() if d in (None, one) or not resized}) > 1 for one in DECODERS):
            listed = "\n".join(f"  {k}: {v}" for k, v in found.items())
            raise SystemExit(f"{images.name} {work}: the loaders do not deliver the same\n{listed}")


def resuming(runner: Runner, images: Images, scratch: Path) -> list[Case]:
    """First batches of a fresh start and of a resumed one; the states are saved here, once."""
    cases = []
    for loader in ("ours", *PEERS):
        state = scratch / f"{images.name}-{loader}.state"
        spec = base(images, loader, work="decoded", decoder="simplejpeg", seed=1, state=str(state), at=0.9)
        told = runner.ask(loader, spec | {"task": "save"})
        for how in ("fresh", "resumed"):
            one = spec | {"task": "first", "state": str(state) if how == "resumed" else None}
            cases.append(Case(loader, images, one, (images.name, "resume", loader, how, 0, told["next"])))
    return cases


def measure(
    runner: Runner, cases: list[Case], rounds: int, cold: bool, keep: Path | None
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Round after round through all cases, every other round backwards."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    begun = time.monotonic()
    for turn in range(rounds):
        # Pillow is several times slower than its rival whatever the loader: two rounds tell that
        due = [c for c in cases if turn < 2 or c.spec.get("decoder") != "pillow"]
        for i, case in enumerate(due if turn % 2 == 0 else due[::-1]):
            left = drop_pages(case.images.read_by(case.loader)) if cold and case.spec["task"] == "measure" else None
            told = runner.ask(case.loader, case.spec)
            found.setdefault(case.key, []).append(told | {"resident": left})
            took = time.monotonic() - begun
            print(f"\rround {turn + 1}/{rounds}, {i + 1}/{len(due)}, {took:.0f} s ", end="", file=sys.stderr)
        if keep:
            write_raw(keep, found)  # a run that breaks off leaves the rounds it finished
    print(file=sys.stderr)
    return found


def write_raw(folder: Path, found: dict[tuple[Any, ...], list[dict[str, Any]]]) -> None:
    """Every run of every figure, as JSON."""
    (folder / "raw.json").write_text(json.dumps([{"key": list(k), "runs": v} for k, v in found.items()]))


def shared_memory() -> set[str]:
    """Names in /dev/shm that no living process has mapped: what a process left behind (others may run beside us)."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is somebody else's
            mapped += maps.read_text()
    return {p.name for p in Path("/dev/shm").iterdir() if f"/dev/shm/{p.name}" not in mapped}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True, help="the Python of the peers' environment")
    parser.add_argument("--zip", type=Path, help="small images; without it there are none")
    parser.add_argument("--photos", type=Path, help="photographs; without it there are none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each warm rate")
    parser.add_argument(
        "--quick", action="store_true", help="few images, one short round without Pillow: to see that it runs"
    )
    parser.add_argument("--workers", default="2", help="numbers of worker processes beside none: 1,2")
    parser.add_argument("--no-cold", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the data and the figures (raw.json) there")
    chosen = parser.parse_args()
    works = chosen.workloads.split(",")
    processes = [int(n) for n in chosen.workers.split(",")]
    if unknown := set(works) - set(WORKLOADS):
        parser.error(f"there is no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, 0.3
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders and children go away
    before = shared_memory()
    with tempfile.TemporaryDirectory(prefix="sevenfold-benchmark-") as temporary:
        scratch = Path(temporary) / "scratch"
        scratch.mkdir()
        folder = chosen.keep or Path(temporary)
        runner = Runner(chosen.peers, scratch)
        sets = [small(folder, chosen.zip, 2_000 if chosen.quick else 20_000)] if chosen.zip else []
        sets += [photos(folder, chosen.photos, 200 if chosen.quick else 1_000)] if chosen.photos else []
        cases: list[Case] = []
        for images in sets:
            prepare(images, ("ours", *PEERS), runner.ask)
            rated = [w for w in ("bytes", "decoded") if w in works]
            check(runner, images, rated[-1:] if chosen.quick else rated, chosen.quick)
            for work in rated:
                cases += rates(images, work, chosen.seconds, chosen.quick, processes)
            if "resume" in works:
                cases += resuming(runner, images, scratch)
        found = measure(runner, cases, chosen.rounds, not chosen.no_cold, chosen.keep)
        if "memory" in works:
            for images in sets:
                for workers, threads in ((0, 2),) if chosen.quick else ((0, 2), (2, 1)):
                    epochs = 5 if chosen.quick else 20
                    spec = base(images, "ours", task="memory", work="decoded", epochs=epochs, workers=workers)
                    key = (images.name, "memory", "ours", None, workers, threads)
                    found[key] = [runner.ask("ours", spec | {"threads": threads})]
        versions = {loader: runner.ask(loader, {"task": "versions"}) for loader in ("ours", *PEERS)}
        if chosen.keep:
            write_raw(chosen.keep, found)
        report(found, versions, sets)
    for line in sorted(runner.warnings):
        print(line, file=sys.stderr)
    for name in sorted(shared_memory() - before):
        print(f"left in /dev/shm: {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
