"""How many threads or worker processes the loader should have here: measured on the version's own images, explained.

Which is quicker depends on the image. Small ones are decoded in microseconds: threads then wait for each other at
Python's lock, and processes for their deliveries. Large ones take milliseconds in libjpeg, which needs no lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_MARGIN = 1.1
"""A setting must be this much quicker than a simpler one: less is within the noise of a short probe."""
_QUICK = 100
"""Microseconds of decoding below which handing over costs as much."""
_BUSY = 0.5
"""Load per core from which a measurement is worth little."""


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
    load: float = 0.0


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


def choose(rates: Rates, batch_size: int, step_ms: float | None = None) -> Choice:
    """The simplest setting that is within a tenth of the quickest, and the reasons.

    Parameters
    ----------
    step_ms : what the trainer takes for a step without its loader; a loader that outruns it need not be quicker.
    """
    decoded = rates.decoded
    serial = decoded[Setting()]
    read, decode = 1e6 / rates.reading, 1e6 / rates.decoding
    total = max(1e6 / serial, read + decode)  # measured apart: on a busy machine the parts may exceed the whole
    rest = total - read - decode
    share = decode / total
    reasons = []
    if rates.load >= _BUSY:
        reasons.append(f"The machine was busy (load {rates.load:.1f} per core): measure again when it is idle.")
    reasons.append(
        f"In one thread a sample takes {_us(total)}: {_share(share)} of it is decoding, {_share(read / total)} reading"
        + (f", {_share(rest / total)} the rest." if rest > 0.02 * total else ".")
    )
    allowed = {s: r for s, r in decoded.items() if not s.workers or share >= 0.5}
    if share < 0.5:
        reasons.append(
            f"Decoding is {share:.0%} of that: worker processes would be busy handing over, so none are used."
        )
    wanted = batch_size / step_ms * 1000 if step_ms else None
    ahead = Setting(threads=1)
    if wanted and decoded[ahead] >= wanted * _MARGIN:
        reasons.append(
            f"A step of {step_ms:g} ms takes {_text(wanted)}; one thread ahead of it delivers "
            f"{_text(decoded[ahead])}: that suffices, the training is what limits."
        )
        return Choice(ahead, tuple(reasons))
    best = max(allowed.values())
    chosen = next(s for s, rate in allowed.items() if rate * _MARGIN >= best)
    if chosen == Setting():
        chosen = ahead
        reasons.append(
            f"Nothing is more than a tenth quicker than serial ({_text(serial)}). "
            "One thread works ahead while the trainer computes."
        )
    else:
        many = "" if chosen.workers + chosen.threads > 1 else "s"
        reasons.append(
            f"{chosen.name} deliver{many} {_text(decoded[chosen])}, {decoded[chosen] / serial:.1f} times as many as "
            "serial."
        )
    reasons.extend(_what_holds_back(decoded, chosen, decode))
    if wanted and decoded[chosen] < wanted:
        reasons.append(
            f"A step of {step_ms:g} ms could use {_text(wanted)}: the loader limits the training. Smaller images "
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
        "load": round(rates.load, 2),
        "choice": asdict(choice.setting),
        "reasons": list(choice.reasons),
    }


def _what_holds_back(decoded: dict[Setting, float], chosen: Setting, decode: float) -> Iterator[str]:
    """Why the other ways are not quicker; `decode` is the microseconds an image takes."""
    threads = max((r for s, r in decoded.items() if s.threads > 1), default=0.0)
    processes = max((r for s, r in decoded.items() if s.workers > 1), default=0.0)
    if threads and chosen.threads < 2 and threads < 1.5 * decoded[Setting()]:
        if decode < _QUICK:
            yield "Images this small are decoded so quickly that threads mostly wait for Python's lock."
        else:
            yield "More threads found no idle core: something else uses them, or the disk is what limits."
    if processes and not chosen.workers and processes < max(threads, decoded[chosen]):
        yield "Worker processes lose time handing their pixels over."


def _us(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms" if microseconds >= 1000 else f"{microseconds:.1f} us"


def _share(part: float) -> str:
    return f"{part:.0%}" if part >= 0.01 else "under 1%"


def _text(rate: float) -> str:
    return f"{rate:,.0f} samples/s"


def settings_table(rates: Rates) -> list[Sequence[str]]:
    """Rows (setting, decoded/s, bytes/s) of text."""
    return [(s.name, f"{r:,.0f}", f"{rates.bytes_only[s]:,.0f}") for s, r in rates.decoded.items()]
