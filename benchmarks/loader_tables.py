"""The loader benchmark's figures as Markdown: medians and spreads, and the ratios its goals ask for."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loader_data import Images

Key = tuple[Any, ...]
Figures = dict[Key, list[dict[str, Any]]]
NAMES = {
    "ours": "Sevenfold", "files": "plain files", "webdataset": "webdataset", "streaming": "MosaicML Streaming",
    "litdata": "LitData", "bare": "bare loop", "bare+resize": "bare loop with resize",
}  # fmt: skip
PEERS = ("files", "webdataset", "streaming", "litdata")


def report(found: Figures, versions: dict[str, dict[str, str]], sets: list[Images]) -> None:
    """Print everything."""
    print(f"{os.cpu_count()} cores ({_processor()}), Linux {platform.release()}, Python {platform.python_version()}.")
    for loader, packages in versions.items():
        print(f"{NAMES[loader]}: {', '.join(f'{p} {v}' for p, v in packages.items())}.")
    rounds = max((len(v) for v in found.values()), default=0)
    print(f"Median of {rounds} rounds (lowest to highest), samples/s.")
    left = max((r.get("resident") or 0.0 for v in found.values() for r in v), default=0.0)
    print(f"Before cold epochs the files' pages were dropped; at most {left:.1%} of them stayed in memory.")
    for images in sets:
        for work in ("bytes", "decoded"):
            _rates(found, images, work)
        _resume(found, images)
        _memory(found, images)
    _goals(found, sets)


def _rates(found: Figures, images: Images, work: str) -> None:
    keys = [k for k in found if k[:2] == (images.name, work)]
    if not keys:
        return
    done = f"decoded to {images.side}x{images.side}" if work == "decoded" else "bytes and labels"
    print(f"\n### {images.samples:,} {images.name}, {done}, batches of {images.batch}\n")
    print("| loader | decoder | workers | warm | cold | first batch, s |\n|---|---|---|---|---|---|")
    for key in keys:
        _, _, loader, decoder, workers, threads = key
        runs = found[key]
        ways = f"{workers}" if workers or not threads else f"{threads} thread{'s' * (threads > 1)}"
        cold = spread([r["cold"] for r in runs]) if "cold" in runs[0] else ""
        first = f"{statistics.median(r['first'] for r in runs):.2f}" if "first" in runs[0] else ""
        warm = spread([r["warm"] for r in runs])
        print(f"| {NAMES[loader]} | {decoder or ''} | {ways} | {warm} | {cold} | {first} |")


def _resume(found: Figures, images: Images) -> None:
    keys = [k for k in found if k[:2] == (images.name, "resume") and k[3] == "fresh"]
    if not keys:
        return
    print(f"\n### {images.name}: seconds to the first decoded batch, fresh and resumed at 90 % of an epoch\n")
    print(
        "| loader | workers | fresh | resumed | ratio | continues with the very next batch |\n|---|---|---|---|---|---|"
    )
    for key in keys:
        again = (*key[:3], "resumed", *key[4:])
        fresh, resumed = ([r["seconds"] for r in found[k]] for k in (key, again))
        same = all(r["next"] == key[5] for r in found[again])
        middle = _ratio(found, again, key, "seconds")
        row = f"{spread(fresh, 3)} | {spread(resumed, 3)} | {middle:.2f} | {'yes' if same else 'no'} |"
        print(f"| {NAMES[key[2]]} | {key[4]} | {row}")


def _memory(found: Figures, images: Images) -> None:
    for key in [k for k in found if k[:2] == (images.name, "memory")]:
        told = found[key][0]
        ways = f"{key[4]} workers, {key[5]} threads"
        parts = []
        for what in ("rss", "anonymous"):
            slope, half = trend(told[what][2:])
            parts.append(
                f"{what} {told[what][-1] / 1024:,.0f} MiB, {slope / 1024:+.3f} ± {half / 1024:.3f} MiB an epoch"
            )
        print(f"\n{images.name}, {ways}, {len(told['rss'])} epochs (first two left out): {'; '.join(parts)} (95 %).")


def _goals(found: Figures, sets: list[Images]) -> None:
    print("\n| goal | median of the rounds' ratios | bar | |\n|---|---|---|---|")

    def row(title: str, value: float | None, bar: float, above: bool = True) -> None:
        if value is not None:
            met = value >= bar if above else value <= bar
            print(f"| {title} | {value:.2f} | {'>=' if above else '<='} {bar:g} | {'met' if met else 'NOT met'} |")

    for images in sets:
        small = images.side == 32
        for workers in (0, 2):
            way = (workers, int(workers > 0))
            one = (images.name, "bytes", "ours", None, *way)
            peers = [(images.name, "bytes", p, None, *way) for p in PEERS]
            title = f"{images.name}, bytes, {workers} workers:"
            row(f"{title} / webdataset", _ratio(found, one, peers[1], "warm"), 10 if small else 5)
            best = max((p for p in peers if p in found), key=lambda k: _median(found, k), default=None)
            row(f"{title} / {NAMES[best[2]]}, the fastest peer", _ratio(found, one, best, "warm"), 1) if best else None
        alone = (images.name, "decoded", "ours", "simplejpeg", 0, 0)
        bare = "bare" if small else "bare+resize"
        for threads in (0, 1, 2):
            one = (*alone[:5], threads)
            limit = (images.name, "decoded", bare, "simplejpeg", 0, max(threads, 1))
            title = f"{images.name}, decoded, {threads} threads ahead: / {NAMES[bare]}, {limit[-1]} threads"
            row(title, _ratio(found, one, limit, "warm"), 0.8 if small else 0.95)
        for workers in (0, 2):
            all_of = [k for k in found if k[:2] == alone[:2] and k[2] in PEERS and k[4] == workers]
            best = max(all_of, key=lambda k: _median(found, k), default=None)
            title = f"{images.name}, decoded, {workers} workers: / "
            if best:
                row(
                    f"{title}{NAMES[best[2]]} with {best[3]}",
                    _ratio(found, (*alone[:4], workers, int(workers > 0)), best, "warm"),
                    1,
                )
        row(f"{images.name}, decoded: 2 workers / none", _ratio(found, (*alone[:4], 2, 1), alone, "warm"), 1)
        for key in [k for k in found if k[:4] == (images.name, "resume", "ours", "fresh")]:
            again = (*key[:3], "resumed", *key[4:])
            row(f"{images.name}, resumed / fresh, {key[4]} workers", _ratio(found, again, key, "seconds"), 1.1, False)


def _median(found: Figures, key: Key) -> float:
    return statistics.median(r["warm"] for r in found[key])


def _ratio(found: Figures, key: Key, other: Key, what: str) -> float | None:
    """The median over the rounds of one figure divided by another."""
    if key not in found or other not in found:
        return None
    return statistics.median(a[what] / b[what] for a, b in zip(found[key], found[other], strict=True))


def trend(values: list[float]) -> tuple[float, float]:
    """Slope of values over their number, and half the width of its 95 % interval (least squares, Student's t)."""
    n = len(values)
    if n < 3:
        return 0.0, float("inf")
    x = [i - (n - 1) / 2 for i in range(n)]
    mean = statistics.fmean(values)
    squares = sum(a * a for a in x)
    slope = sum(a * (v - mean) for a, v in zip(x, values, strict=True)) / squares
    rest = sum((v - mean - slope * a) ** 2 for a, v in zip(x, values, strict=True))
    return slope, _student(n - 2) * (rest / (n - 2) / squares) ** 0.5


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to a few per mille from four degrees of freedom on (Cornish-Fisher)."""
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def spread(values: list[float], digits: int = 0) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _processor() -> str:
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")
