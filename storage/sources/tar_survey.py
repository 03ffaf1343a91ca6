"""What a set of foreign tars holds: the samples that can be taken, and a row for everything that is set aside.

A million samples are kept as columns of numbers; only what is set aside has an object with its story.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import MAX_INPUTS, Input, InputError, Places, counted, too_many
from sevenfold.storage.sources.blobs import Blob
from sevenfold.storage.sources.tar_samples import LABELS, Run, Unreadable, component_of, describe, image_of, runs, text
from sevenfold.storage.sources.tar_walk import Member, Stop, Window

_SHOWN = 4
"""Parts of one key that a detail tells of."""

_FEW = 20
"""Texts up to this many, or half the samples, may be labels; more of them are captions."""


class Survey:
    """Add tars in order, then ask for `inputs`, `places` and `notes`.

    Parameters
    ----------
    where : the source, for errors.
    splits : the split of each tar, None where it has none.
    """

    def __init__(self, where: str, splits: Mapping[str, str | None]) -> None:
        self.where, self.splits = where, splits
        self.tars: list[str] = []
        self.times: list[float] = []
        self.members = self.folders = 0
        self.component: str | None = None
        """Where `finish` found the labels to be."""
        # one entry for each row of the result, sample or not
        self._paths: list[str] = []
        self._rows = array("q")  # tar, header byte, content offset, size, members: five numbers a row
        self._keys = array("Q")
        self._components: list[tuple[str, ...]] = []
        self._said: list[tuple[str | None, ...]] = []
        self._problems: dict[int, tuple[str, str]] = {}
        self._same: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}  # equal tuples are kept once

    def add(self, name: str, blob: Blob, class_names: Sequence[str]) -> None:
        """Walk one tar. Raises SevenfoldError when there are too many inputs."""
        self._begin(name, blob.modified)
        last: tuple[int, Run] | None = None
        before: Run | None = None
        for item in runs(Window(blob), class_names):
            if isinstance(item, Run):
                before, last = last[1] if last else None, (len(self._paths), item)
                self._sample(item)
            elif isinstance(item, Stop):
                self._stop(item, last, before)
            elif item.kind == "folder":
                self.members += 1
                self.folders += 1
            else:
                self.members += 1
                reason, detail = item.refusal or ("no_key", "hidden, without a suffix or __meta__: no sample's member")
                self._row(item, [item], reason, f"{describe([item])}: {detail}")

    def refuse(self, name: str, modified: float, reason: str, detail: str) -> None:
        """A file that is not walked at all."""
        self._begin(name, modified)
        self._row(None, [], reason, detail)

    def _begin(self, name: str, modified: float) -> None:
        self.tars.append(name)
        self.times.append(modified)

    def _sample(self, run: Run) -> None:
        self.members += len(run.members)
        try:
            image = run.members[image_of(run)]
        except InputError as e:
            self._row(run.members[0], run.members, e.reason, e.detail, run)
            return
        self._row(image, run.members, "", "", run)

    def _stop(self, stop: Stop, last: tuple[int, Run] | None, before: Run | None) -> None:
        self._row(None, [], stop.reason, stop.detail)
        if stop.name is not None:
            self._paths[-1] += f"/{text(stop.name)}"
            self.members += 1
        if last is None or stop.after_end:
            return
        place, run = last
        cut = component_of(stop.name) if stop.name is not None else None
        whole = before is not None and set(before.components) <= set(run.components) and (not cut or cut[0] != run.key)
        if not whole and place not in self._problems:
            detail = f"the last of a tar that is cut, so members may be missing: {describe(run.members)}"
            self._problems[place] = ("truncated", detail)

    def _row(
        self, shown: Member | None, members: Sequence[Member], reason: str, detail: str, run: Run | None = None
    ) -> None:
        if len(self._paths) >= MAX_INPUTS:
            raise too_many(self.where)
        name = self.tars[-1]
        self._paths.append(f"{name}/{text(shown.name)}" if shown else name)
        header, offset, size = (shown.header, shown.offset, shown.size) if shown else (0, 0, 0)
        self._rows.extend((len(self.tars) - 1, header, offset, size, len(members)))
        if reason:
            self._problems[len(self._paths) - 1] = (reason, detail)
        components = tuple(run.components) if run else ()
        said = tuple(run.said) if run else ()
        self._components.append(self._same.setdefault(components, components))  # type: ignore[arg-type]
        self._said.append(self._same.setdefault(said, said))
        # 64 bits are enough: two of a million keys are taken for one another once in 40 million sets
        key = (self.splits.get(name) or "").encode() + b"\0" + run.key if run else b"\0\0%d" % len(self._paths)
        self._keys.append(int.from_bytes(blake2b(key, digest_size=8).digest(), "big"))

    # What came of it

    def finish(self) -> tuple[list[Input], Places, tuple[str, ...]]:
        """(inputs, path -> (tar, offset, size), notes). Raises SevenfoldError when the only tar is none."""
        rows = np.array(self._rows, np.int64).reshape(-1, 5)
        if len(self.tars) == 1 and not self.members and self._problems:
            raise SevenfoldError(next(iter(self._problems.values()))[1], where=self.where, expected="a plain tar")
        self._repeated_keys(rows)
        self._unique_paths(rows)
        component = self.component = self._label_component()
        number = LABELS.index(component) if component else 0
        inputs: list[Input] = []
        for i, (path, said) in enumerate(zip(self._paths, self._said, strict=True)):
            tar, size = int(rows[i, 0]), int(rows[i, 3])
            split = self.splits.get(self.tars[tar])
            label = said[number] if said and component and split != "pool" else None
            problem = self._problems.get(i)
            if isinstance(label, Unreadable):
                detail = f"the {component} of {path.rpartition('/')[2]} at byte {rows[i, 1]}: {label}"
                problem = problem or ("label_unreadable", detail)
                label = None
                self._problems[i] = problem
            inputs.append(Input(path, label, split, size, self.times[tar], problem))
        notes = tuple(self._notes(rows, component))
        return inputs, Places(self._paths, rows[:, [0, 2, 3]]), notes

    def _repeated_keys(self, rows: np.ndarray) -> None:
        """Set aside every part of a key that is there twice: in one tar its members lie apart."""
        keys = np.array(self._keys, np.uint64)
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(keys[order][1:] == keys[order][:-1])
        groups: dict[int, list[int]] = {}
        for at in same.tolist():
            group = groups.setdefault(int(keys[order[at]]), [int(order[at])])
            group.append(int(order[at + 1]))
        for group in groups.values():
            told = [self._part(i, rows) for i in group[:_SHOWN]]
            more = f" and {len(group) - _SHOWN} more" if len(group) > _SHOWN else ""
            tars = Counter(int(rows[i, 0]) for i in group)
            for i in group:
                apart = tars[int(rows[i, 0])] > 1
                why = "the key's members lie apart" if apart else "the key is in more than one tar"
                own = self._part(i, rows)
                detail = f"{why}: {own}; also {', '.join(t for t in told if t != own)}{more}"
                if i in self._problems:
                    detail += f"; and {self._problems[i][1]}"
                self._problems[i] = ("not_adjacent" if apart else "same_key_twice", detail)

    def _part(self, i: int, rows: np.ndarray) -> str:
        """'a.tar/d/k.jpg at byte 512 with d/k.cls'."""
        path = self._paths[i]
        folder, slash, base = path.removeprefix(f"{self.tars[rows[i, 0]]}/").rpartition("/")
        stem, _, shown = base.partition(".")
        others = [f"{folder}{slash}{stem}.{c}" for c in self._components[i] if c != shown.lower()]
        return f"{path} at byte {rows[i, 1]}" + (f" with {', '.join(others)}" if others else "")

    def _unique_paths(self, rows: np.ndarray) -> None:
        """Names that are there twice get the byte of their header behind an @."""
        order = sorted(range(len(self._paths)), key=self._paths.__getitem__)
        twice = set()
        for a, b in pairwise(order):
            if self._paths[a] == self._paths[b]:
                twice |= {a, b}
        for i in twice:
            self._paths[i] += f"@{rows[i, 1]}"

    def _label_component(self) -> str | None:
        """The component that holds the labels in these tars."""
        said = Counter(self._said)  # few different ones, unless they are captions
        n = sum(count for told, count in said.items() if told)
        for place, component in enumerate(LABELS):
            values = {told[place] for told in said if told and told[place] is not None}
            good = {v for v in values if not isinstance(v, Unreadable)}
            if component == "cls" and values:
                return component
            if component == "json" and good:
                return component
            if component == "txt" and good and good == values and len(good) <= max(_FEW, n // 2):
                return component
        return None

    def _notes(self, rows: np.ndarray, component: str | None) -> Iterator[str]:
        images = labels = aside = without = 0
        unused: Counter[str] = Counter()
        for components, count in Counter(c for i, c in enumerate(self._components) if i not in self._problems).items():
            images += count
            has = component in components if component else False
            labels += has * count
            without += count - has * count
            for other in _others(components, component):
                unused[other] += count
        cut = sum(
            1 for i in self._problems if not rows[i, 4] and "/" in self._paths[i].removeprefix(self.tars[rows[i, 0]])
        )
        aside = sum(int(rows[i, 4]) for i in self._problems) + cut
        yield (
            f"{len(self.tars):,} tars, {self.members:,} members = {images:,} images + {labels:,} labels + "
            f"{sum(unused.values()):,} not used + {self.folders:,} folders + {aside:,} set aside"
        )
        yield f"labels from {component}" if component else "no component of labels (cls, json with a label, txt)"
        if component and without:
            yield f"{without:,} samples without {component} are unlabelled"
        if unused:
            yield f"components not used: {counted(unused)}"


def _others(components: Sequence[str], label: str | None) -> list[str]:
    """The components of a good sample that are neither its image nor its label."""
    run = Run(b"", [Member(b"", 0, 0, 0, "file")] * len(components), list(components))
    image = image_of(run)
    return [c for i, c in enumerate(components) if i != image and c != label]
