"""How many threads or worker processes the loader should have here: measured on the version's own images, explained.

Which is quicker depends on the image. Small ones are decoded in microseconds: threads then wait for each other at
Python's lock, and processes for their deliveries. Large ones take milliseconds in libjpeg, which needs no lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.progress import Progress, silent
from sevenfold.training.decode import decode_into
from sevenfold.training.feed import Feed
from sevenfold.training.loader import ByteDataset, SampleDataset, make_loader

_ROUNDS = 5
_MARGIN = 1.1
"""A setting must be this much quicker than a simpler one: less is within the noise of a short probe."""
_BUDGET = 512
"""Samples of the version that the probe reads again and again, after one pass that warms the cache."""


@dataclass(frozen=True)
class Setting:
    """A way to load. Without workers and threads, a batch is made when it is asked for."""

    workers: int = 0
    threads: int = 0

    @property
    def name(self) -> str:
        """In words."""
        if self.workers:
            return f"{self.workers} worker{'s' * (self.workers > 1)}"
        return f"{self.threads} thread{'s' * (self.threads > 1)}" if self.threads else "serial"


@dataclass(frozen=True)
class Rates:
    """Samples per second: the median of some rounds.

    `bytes_only` and `decoded` by setting, in the order of :func:`candidates`; `reading` is the serial rate of bytes,
    `decoding` that of decoding alone, from memory, both in one thread.
    """

    decoded: dict[Setting, float]
    bytes_only: dict[Setting, float]
    reading: float
    decoding: float


@dataclass(frozen=True)
class Choice:
    """The setting to use, and why, a sentence each."""

    setting: Setting
    reasons: tuple[str, ...]

    def to_toml(self) -> str:
        """The lines for the table `train` of sevenfold.toml."""
        return f"[train]\nworkers = {self.setting.workers}\nloader_threads = {self.setting.threads}"


def candidates(cores: int) -> list[Setting]:
    """What is worth trying, the simplest first: serial, then 1, 2, 4 ... threads and worker processes up to `cores`."""
    counts = [n for n in (1, 2, 4, 8, 16, 32) if n <= cores]
    if cores not in counts and cores > 1:
        counts.append(cores)
    return [Setting(), *(Setting(threads=n) for n in counts), *(Setting(workers=n) for n in counts)]


def probe(
    images: SampleDataset,
    files: ByteDataset,
    rows: np.ndarray,
    batch_size: int,
    seconds: float,
    cores: int | None = None,
    progress: Progress = silent,
) -> Rates:
    """Measure every candidate, one after the other and again, so that a busy moment spoils no single one.

    Parameters
    ----------
    images, files : the same rows, decoded and not.
    rows : int64, what to read; a sample of them is used, in random order.
    seconds : for measuring; starting worker processes takes some more.

    Raises SevenfoldError when there are no rows or none of them decodes.
    """
    cores = cores or len(os.sched_getaffinity(0))
    if not len(rows):
        raise SevenfoldError("there are no samples to read", where="tune-loader", do="name a version that has some")
    batch_size = min(batch_size, len(rows))
    batches = _Repeated(rows, batch_size)
    settings = candidates(cores)
    feeds = {
        (kind, setting): make_loader(dataset, batches.copy(), setting.workers, setting.threads)
        for setting in settings
        for kind, dataset in (("decoded", images), ("bytes", files))
    }
    memory = _Decoding(images, files, batches.pool[:_BUDGET])
    if not memory.good:
        raise SevenfoldError("no image decodes", where="tune-loader", do="run `sevenfold verify --deep`")
    turn = seconds / (_ROUNDS * (len(feeds) + 1))
    found: dict[tuple[str, Setting], list[float]] = {key: [] for key in feeds}
    decoding = []
    try:
        for key, feed in feeds.items():  # starts the processes, and tells how many batches fill a turn
            progress(0, _ROUNDS, f"starting {key[1].name}")
            _calibrate(feed, turn)
        for done in range(_ROUNDS):
            progress(done, _ROUNDS, "measuring the loader")
            for key, feed in feeds.items():
                found[key].append(_rate(feed))
            decoding.append(memory.rate(turn))
    finally:
        for feed in feeds.values():
            feed.close()
    rates = {key: median(values) for key, values in found.items()}
    return Rates(
        decoded={s: rates["decoded", s] for s in settings},
        bytes_only={s: rates["bytes", s] for s in settings},
        reading=rates["bytes", Setting()],
        decoding=median(decoding),
    )


def choose(rates: Rates, batch_size: int, step_ms: float | None = None) -> Choice:
    """The simplest setting that is within a tenth of the quickest, and the reasons.

    Parameters
    ----------
    step_ms : what the trainer takes for a step without its loader; a loader that outruns it need not be quicker.
    """
    decoded = rates.decoded
    serial = decoded[Setting()]
    read, decode = 1e6 / rates.reading, 1e6 / rates.decoding
    total = 1e6 / serial
    rest = max(total - read - decode, 0.0)
    share = decode / max(total, read + decode)
    reasons = [
        f"In one thread a sample takes {_us(total)}: {_us(read)} to read, {_us(decode)} to decode"
        + (f", {_us(rest)} for the rest." if rest > 0.02 * total else ".")
    ]
    allowed = {s: r for s, r in decoded.items() if not s.workers or share >= 0.5}
    if share < 0.5:
        reasons.append(
            f"Decoding is {share:.0%} of that: worker processes would be busy handing over, so none are used."
        )
    wanted = batch_size / step_ms * 1000 if step_ms else None
    ahead = Setting(threads=1)
    if wanted and decoded[ahead] >= wanted * _MARGIN:
        reasons.append(
            f"A step of {step_ms:g} ms takes {_rate_text(wanted)}; one thread ahead of it delivers "
            f"{_rate_text(decoded[ahead])}: that suffices, the training is what limits."
        )
        return Choice(ahead, tuple(reasons))
    best = max(allowed.values())
    chosen = next(s for s, rate in allowed.items() if rate * _MARGIN >= best)
    if chosen == Setting():
        reasons.append(
            f"Nothing is more than a tenth quicker than one thread ({_rate_text(serial)}): "
            f"{_why_not(decoded, share)} One thread works ahead while the trainer computes."
        )
        chosen = ahead
    else:
        reasons.append(f"{_capital(chosen.name)} deliver{'s' * (chosen.workers + chosen.threads == 1)} "
                       f"{_rate_text(decoded[chosen])}, {decoded[chosen] / serial:.1f} times as many as serial."
                       f" {_why_not({s: r for s, r in decoded.items() if s != chosen}, share)}")  # fmt: skip
    if wanted and decoded[chosen] < wanted:
        reasons.append(
            f"A step of {step_ms:g} ms could use {_rate_text(wanted)}: the loader limits the training. Smaller images "
            "help most (sevenfold materialize --size)."
        )
    return Choice(chosen, tuple(reasons))


def report(rates: Rates, choice: Choice) -> dict[str, Any]:
    """Everything measured and chosen, as JSON."""
    return {
        "settings": [
            {**asdict(s), "decoded": round(rates.decoded[s]), "bytes": round(rates.bytes_only[s])}
            for s in rates.decoded
        ],
        "reading": round(rates.reading),
        "decoding": round(rates.decoding),
        "choice": asdict(choice.setting),
        "reasons": list(choice.reasons),
    }


class _Repeated:
    """Batches over a fixed pool of rows, `count` of them each time: a sampler for probing."""

    def __init__(self, rows: np.ndarray, batch_size: int) -> None:
        random = np.random.default_rng(0)
        self.pool = random.permutation(rows)[: max(_BUDGET, 4 * batch_size)]
        self.batch_size, self.count = batch_size, 2

    def copy(self) -> _Repeated:
        """The same, with a count of its own."""
        return _Repeated(self.pool, self.batch_size)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        at = np.arange(self.batch_size)
        for i in range(self.count):
            yield self.pool[(i * self.batch_size + at) % len(self.pool)].tolist()


class _Decoding:
    """Files in memory, decoded by one thread: what the pixels cost without the reading."""

    def __init__(self, images: SampleDataset, files: ByteDataset, rows: np.ndarray) -> None:
        batch = files.__getitems__(rows)
        data, offsets = memoryview(batch["data"].numpy()), batch["offsets"].tolist()
        self.files = [data[a:b] for (a, b), ok in zip(pairwise(offsets), batch["mask"].tolist(), strict=True) if ok]
        self.scaling = images.scaling
        self.place = np.zeros((1, images.size, images.size, images.channels), np.uint8)
        self.files = [file for file in self.files if not self._decode([file])]

    @property
    def good(self) -> bool:
        """Whether there is anything to decode."""
        return bool(self.files)

    def rate(self, seconds: float) -> float:
        """Images per second."""
        begun, n = perf_counter(), 0
        while perf_counter() - begun < seconds or not n:
            part = self.files[n % len(self.files) :][:32]
            self._decode(part)
            n += len(part)
        return n / (perf_counter() - begun)

    def _decode(self, files: Sequence[memoryview]) -> list[int]:
        return decode_into(self.place, [0] * len(files), files, self.scaling)


def _calibrate(feed: Feed, turn: float) -> None:
    """Run twice, the first time to start and warm up, and set the sampler's count so that a run takes one turn."""
    batches = feed.sampler
    assert isinstance(batches, _Repeated)
    _rate(feed)
    batches.count = max(4 * max(feed.workers, 1), 4)
    batches.count = max(batches.count, int(turn * _rate(feed) / batches.batch_size))


def _rate(feed: Feed) -> float:
    """Samples per second of one run."""
    begun, n = perf_counter(), 0
    for batch in feed:
        n += len(batch["row"])
    return n / (perf_counter() - begun)


def _why_not(others: dict[Setting, float], share: float) -> str:
    """What holds the other ways back, in a sentence."""
    serial = others.get(Setting())
    processes = [r for s, r in others.items() if s.workers > 1]
    threads = [r for s, r in others.items() if s.threads > 1]
    if serial and threads and max(threads) < serial * _MARGIN:
        return "images this small are decoded so quickly that threads mostly wait for Python's lock."
    if processes and threads and max(processes) < max(threads):
        return "Worker processes lose time handing their pixels over."
    if share < 0.5:
        return "reading is the larger part, and the memory it goes through is shared."
    return ""


def _us(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms" if microseconds >= 1000 else f"{microseconds:.1f} us"


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f} samples/s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def settings_table(rates: Rates) -> list[Sequence[str]]:
    """Rows (setting, decoded/s, bytes/s) of text."""
    return [(s.name, f"{r:,.0f}", f"{rates.bytes_only[s]:,.0f}") for s, r in rates.decoded.items()]
