"""WebDataset tars that somebody else wrote, read in place; whatever their readers pass over in silence is set aside.

What becomes of each hazard (the quarantine row is named `<tar>/<member>`, its detail gives bytes):

- `not_adjacent`: a key's members lie apart; stock readers make several samples of them. No part is taken.
- `same_key_twice`: one key in two tars of one split (each split may count its keys anew). Neither is taken.
- `same_member_twice`: a name twice, or a.JPG and a.jpg. `no_image`, `several_images`: as they say.
- `label_unreadable`: the component that holds the labels elsewhere cannot be read here.
- `no_key`: hidden and extensionless names and those like `__this__`.
- `outside`, `unsupported`, `too_large`: absolute and climbing names; links, devices, sparse files and nested archives;
  members over the limit. A sample with such a member is not taken without it.
- `truncated`, `unreadable`: the tar is cut (also between members), a header is damaged, or more follows its end. The
  samples before that are taken; the last one only if it has the components that the one before it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import Input, InputError, Places, Source
from sevenfold.storage.sources.blobs import Blob, open_blob
from sevenfold.storage.sources.columns import class_names
from sevenfold.storage.sources.folder import bucket_entries
from sevenfold.storage.sources.further import MAX_TEXT, Further, Gathering
from sevenfold.storage.sources.layout import is_hidden, splits_of_files
from sevenfold.storage.sources.tar_samples import MAX_LABEL_BYTES, Run, image_of, runs, text
from sevenfold.storage.sources.tar_survey import Survey
from sevenfold.storage.sources.tar_walk import Window

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
"""Files of a folder that are looked at; the compressed ones are refused, since they cannot be read at offsets."""

_PIECE = 1 << 14
"""Samples whose further columns are gathered at once."""


class WebdatasetSource(Source):
    """One tar, or a folder of tars, on a disk or in a bucket. See the module for what is set aside.

    The labels come from the first of cls, json (its "label") and txt (if it holds few short lines) that the tars
    have; a `classes.txt` beside them names the numbers. Splits come from the names of a folder's tars.
    """

    kind = "webdataset"
    _label_component: str | None
    carried = ("problems", "_places", "_locations")

    @cached_property
    def _files(self) -> dict[str, Path | str]:
        """Name within the source -> where it lies, of every file that is not hidden."""
        if self.location.endswith(SUFFIXES) and not (isinstance(self.root, Path) and self.path.is_dir()):
            return {self.name: self.root}
        if isinstance(self.root, str):
            there: dict[str, Path | str] = {
                e.key: f"{self.root.rstrip('/')}/{e.key}" for e in bucket_entries(self.root)
            }
        else:
            there = {p.relative_to(self.root).as_posix(): p for p in self.root.rglob("*") if p.is_file()}
        return {n: there[n] for n in sorted(there) if not is_hidden(n)}

    @cached_property
    def _locations(self) -> dict[str, Path | str]:
        """The tars among the files."""
        return {n: place for n, place in self._files.items() if n.endswith(SUFFIXES)}

    @cached_property
    def _blobs(self) -> dict[str, Blob]:
        return {}

    def _blob(self, name: str) -> Blob:
        if name not in self._blobs:
            self._blobs[name] = open_blob(self._locations[name])
        return self._blobs[name]

    @cached_property
    def _survey(self) -> tuple[list[Input], Places, tuple[str, ...]]:
        one = isinstance(self.root, str) or not self.path.is_dir()
        folder = self.path.parent if one else self.path
        names = class_names(folder) if isinstance(self.root, Path) else []
        survey = Survey(self.location, {} if one else splits_of_files(self._locations))
        for name in self._locations:
            blob = self._blob(name)
            if name.endswith(".tar"):
                survey.add(name, blob, names)
            else:
                survey.refuse(
                    name, blob.modified, "unsupported", "it is compressed, and only a plain tar is read in place"
                )
        if not survey.tars:
            raise SevenfoldError("there is no tar", where=self.location, expected="files named .tar")
        found = survey.finish()
        self._label_component = survey.component
        return found

    @cached_property
    def _places(self) -> Places:
        return self._survey[1]

    def _list(self) -> Iterator[Input]:
        inputs, self._places, self._notes = self._survey
        del self.__dict__["_survey"]  # the inputs would be kept twice
        return iter(inputs)

    def _remarks(self) -> Iterable[str]:
        beside = [n for n in self._files if n not in self._locations and n != "classes.txt"]
        more = f", the first is {beside[0]}" if beside else ""
        return (*self._notes, *([f"{len(beside):,} other files are no inputs{more}"] if beside else []))

    def further(self) -> Further | None:
        """See Source.further: the keys of json components, and txt components (captions) where they are no labels.

        The tars are walked again, by their headers.
        """
        self.inputs  # noqa: B018  (where the labels are is known from here on)
        gathering, label = Gathering(), self._label_component
        for name in self._locations:
            if not name.endswith(".tar"):
                continue
            blob = self._blob(name)
            found = (item for item in runs(Window(blob), ()) if isinstance(item, Run))
            said = (
                (path, keys) for run in found if (path := _address(name, run)) for keys in [_said(blob, run, label)]
            )
            while piece := list(islice(said, _PIECE)):
                keys = dict.fromkeys(k for _, row in piece for k in row)
                if keys:
                    gathering.add([path for path, _ in piece], {k: [row.get(k) for _, row in piece] for k in keys})
        return gathering.finish()

    def read(self, path: str) -> bytes:
        """See Source.read."""
        if path in self.problems:
            raise InputError(*self.problems[path])
        place = self._places.of(path)
        if place is None:
            raise InputError("unreadable", "the tars have no such member any more")
        number, offset, size = place
        data = self._blob(list(self._locations)[number]).read_at(offset, size)
        if len(data) < size:
            raise InputError("truncated", f"the tar ends {size - len(data)} bytes before the member does")
        return data


def _address(tar: str, run: Run) -> str | None:
    """The input's path of a sample; None when it cannot be taken."""
    try:
        return f"{tar}/{text(run.members[image_of(run)].name)}"
    except InputError:
        return None


def _said(blob: Blob, run: Run, label: str | None) -> dict[str, Any]:
    """What a sample's json and txt say of it besides the label. What cannot be read says nothing."""
    said: dict[str, Any] = {}
    for member, component in zip(run.members, run.components, strict=True):
        if component not in ("json", "txt") or component == label == "txt" or member.size > MAX_LABEL_BYTES:
            continue
        data = blob.read_at(member.offset, member.size)
        try:
            if component == "txt":
                said["txt"] = data.decode().strip()[:MAX_TEXT]
                continue
            value = json.loads(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            said |= {key: inner for key, inner in value.items() if key != "label" or label != "json"}
    return said
