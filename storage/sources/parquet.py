"""Parquet files that name images or hold them, as Hugging Face `datasets` writes them among others.

Parquet has no address for one value: a row is reached by decoding its row group up to it. Batches of a few rows are
decoded in order and the newest kept within a budget of bytes, so that memory stays bounded whatever the file says.
Read in path order (as landing does) every row is decoded once; in random order each read costs up to a row group,
so row groups of about a hundred images (what Hugging Face writes) are best.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.sources.base import Input, InputError, Source, check_size
from sevenfold.storage.sources.blobs import Blob, open_blob
from sevenfold.storage.sources.columns import (
    EMBEDDED,
    PATHS,
    Columns,
    find_columns,
    huggingface_names,
    label_of,
    read_named,
    size_and_time,
    split_of_word,
)
from sevenfold.storage.sources.folder import bucket_entries
from sevenfold.storage.sources.further import Further, Gathering
from sevenfold.storage.sources.layout import is_hidden, splits_of_files

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH = 16
"""Rows decoded at once where images are embedded."""

CACHE_BYTES = 128 << 20
"""Decoded batches that are kept, in each process."""


class ParquetSource(Source):
    """One Parquet file or a folder of them, on a disk or in a bucket.

    A column of images (bytes, struct<bytes, path>, or paths), of labels, of splits.

    An input that is a path is known by it (relative to its file's folder), every other as `file.parquet#00000012`,
    counted from 0 within the file. Whole numbers in a Hugging Face ClassLabel column become their names. Without a
    column of splits, the files of a folder may name them (train-00000-of-00002.parquet). Rows that cannot be used are
    set aside as `bad_row` or `label_unreadable`.
    """

    kind = "parquet"
    carried = ("problems",)

    @cached_property
    def _files(self) -> dict[str, _File]:
        if isinstance(self.root, str) and not self.root.endswith(".parquet"):
            keys = sorted(
                e.key for e in bucket_entries(self.root) if e.key.endswith(".parquet") and not is_hidden(e.key)
            )
            return {key: _File(f"{self.root.rstrip('/')}/{key}", key) for key in keys}
        if isinstance(self.root, str) or not self.path.is_dir():
            return {self.name: _File(self.root, self.name)}
        paths = sorted(p for p in self.path.rglob("[!.]*.parquet") if p.is_file())
        return {name: _File(p, name) for p in paths for name in [p.relative_to(self.path).as_posix()]}

    def _list(self) -> Iterator[Input]:
        splits = splits_of_files(self._files) if self.name not in self._files else {}
        for name, file in self._files.items():
            yield from file.inputs(splits.get(name))

    def _remarks(self) -> Iterable[str]:
        yield from dict.fromkeys(file.remark() for file in self._files.values())
        if isinstance(self.root, Path) and self.root.is_dir():
            paths = (p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())
            beside = sum(p not in self._files and not is_hidden(p) for p in paths)
            if beside:
                yield f"{beside:,} other files in the folder are no inputs, unless a table names them"

    @property
    def stamp(self) -> str:
        """See Source.stamp."""
        return "; ".join(file.stamp for file in self._files.values() if file.has_further)

    def further(self) -> Further | None:
        """See Source.further."""
        gathering = Gathering()
        for file in self._files.values():
            file.gather(gathering)
        return gathering.finish()

    def read(self, path: str) -> bytes:
        """See Source.read."""
        name, mark, number = path.rpartition("#")
        file = self._files.get(name)
        if mark and file is not None and number.isdecimal():
            if path in self.problems:
                raise InputError(*self.problems[path])
            return file.read(int(number))
        if isinstance(self.root, str):
            raise InputError("outside", "a table in a bucket that names files is not read: its images must be embedded")
        return read_named(self.path if self.path.is_dir() else self.path.parent, path)

    @property
    def at_once(self) -> int:
        """See Source.at_once: a shard's worth, since every call may decode the row groups that it touches."""
        return 1 << 20

    def read_many(self, paths: Sequence[str]) -> list[bytes | InputError]:
        """See Source.read_many: in path order, in which each row group is decoded once."""
        found = {path: self._try(path) for path in sorted(set(paths))}
        return [found[path] for path in paths]


class _File:
    """One Parquet file. `name`: its path within the source."""

    def __init__(self, location: Path | str, name: str) -> None:
        self.location, self.name = location, name
        self._cache: OrderedDict[tuple[int, int], pa.Array] = OrderedDict()
        self._cached = 0
        self._cursor: tuple[int, int, Iterator[pa.RecordBatch]] | None = None

    @cached_property
    def _blob(self) -> Blob:
        return open_blob(self.location)

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            local = isinstance(self.location, Path)
            return pq.ParquetFile(self.location if local else self._blob.file(), pre_buffer=False, buffer_size=1 << 20)
        except (pa.ArrowException, OSError) as e:
            raise self._unreadable(e) from None

    def _unreadable(self, error: Exception) -> SevenfoldError:
        return SevenfoldError(
            f"this is no readable Parquet file ({str(error)[:200]})",
            where=str(self.location),
            expected="a whole Parquet file",
            do="copy or download it again",
        )

    @cached_property
    def _columns(self) -> Columns:
        schema = self._parquet.schema_arrow
        return find_columns(schema.names, list(dict.fromkeys((*EMBEDDED, *PATHS))), str(self.location))

    @cached_property
    def _embedded(self) -> bool:
        """Whether the images are in the table; raises SevenfoldError when the column is neither bytes nor paths."""
        import pyarrow.types as t

        kind = self._parquet.schema_arrow.field(self._columns.image).type
        if t.is_dictionary(kind):
            kind = kind.value_type
        if t.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} & {"bytes", "path"}:
            return True
        if t.is_binary(kind) or t.is_large_binary(kind):
            return True
        if t.is_string(kind) or t.is_large_string(kind):
            return False
        raise SevenfoldError(
            f"the column {self._columns.image} is of type {kind}",
            where=str(self.location),
            expected="binary, struct<bytes, path> or string",
            do="embed the images' files as bytes, or name their paths",
        )

    @cached_property
    def _names(self) -> list[str] | None:
        label = self._columns.label
        return huggingface_names(self._parquet.schema_arrow.metadata, label) if label else None

    def remark(self) -> str:
        """What was guessed about the columns."""
        how = "embedded" if self._embedded else "paths"
        return f"{self._columns} ({how}{', named by its ClassLabel' if self._names else ''})"

    def inputs(self, file_split: str | None) -> Iterator[Input]:
        """Every row as an input; the images themselves are not read."""
        import pyarrow as pa

        image, label, split = self._columns.image, self._columns.label, self._columns.split
        wanted = [c for c in (label, split, None if self._embedded else image) if c]
        beside = Path(self.location).parent if isinstance(self.location, Path) else Path()
        number = 0
        texts: dict[str, str] = {}
        try:
            for rows in self._rows(wanted):
                for row in rows:
                    address = f"{self.name}#{number:08d}"
                    said, words = None, file_split
                    number += 1
                    try:
                        if split:
                            words = split_of_word(row[split], f"{self.location}, row {number - 1}")
                        said = label_of(row[label], self._names) if label and words != "pool" else None
                        said = texts.setdefault(said, said) if said is not None else None
                        path = None if self._embedded else (row[image] or "").strip()
                        if path == "":
                            raise InputError("bad_row", f"{image} is empty")
                    except InputError as e:
                        yield Input(address, said, words, 0, self._blob.modified, (e.reason, e.detail))
                        continue
                    if path is None:
                        yield Input(address, said, words, 0, self._blob.modified)
                    else:
                        yield Input(self._shown(path), said, words, *size_and_time(beside, path))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
            raise self._unreadable(e) from None

    @property
    def has_further(self) -> bool:
        """Whether there are columns besides image, label and split."""
        return bool(self._columns.rest)

    @property
    def stamp(self) -> str:
        """What changes with the file's content."""
        return f"{self.name} {self._blob.size} {self._blob.modified}"

    def gather(self, gathering: Gathering) -> None:
        """Add the further columns of every row; of nested ones and bytes no value is read."""
        import pyarrow as pa

        image, rest = self._columns.image, list(self._columns.rest)
        schema = self._parquet.schema_arrow
        heavy = [c for c in rest if pa.types.is_nested(schema.field(c).type) or _is_bytes(schema.field(c).type)]
        light = [c for c in rest if c not in heavy]
        names = light if self._embedded else [*light, image]
        number = 0
        try:
            for batch in self._parquet.iter_batches(batch_size=1 << 14, columns=names) if names else ():
                if self._embedded:
                    paths = [f"{self.name}#{n:08d}" for n in range(number, number + batch.num_rows)]
                else:
                    said = [(value or "").strip() for value in batch.column(image).to_pylist()]
                    paths = [
                        self._shown(value) if value else f"{self.name}#{n:08d}" for n, value in enumerate(said, number)
                    ]
                number += batch.num_rows
                bytes_there = {c: pa.array([b""] * batch.num_rows) for c in heavy}  # told of, never read
                gathering.add(paths, {**{c: batch.column(c) for c in light}, **bytes_there})
        except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
            raise self._unreadable(e) from None

    def _shown(self, path: str) -> str:
        return path if path.startswith("/") else (Path(self.name).parent / path).as_posix()

    def _rows(self, columns: list[str]) -> Iterator[list[dict[str, Any]]]:
        if not columns:
            for start in range(0, self._parquet.metadata.num_rows, 4096):
                yield [{}] * min(4096, self._parquet.metadata.num_rows - start)
            return
        for batch in self._parquet.iter_batches(batch_size=4096, columns=columns):
            yield batch.to_pylist()

    # Reading one

    @cached_property
    def _starts(self) -> list[int]:
        """The first row of each row group, and one past the last."""
        meta = self._parquet.metadata
        starts = [0]
        for g in range(meta.num_row_groups):
            starts.append(starts[-1] + meta.row_group(g).num_rows)
        return starts

    def read(self, number: int) -> bytes:
        """The bytes of the image in row `number`; raises InputError."""
        import pyarrow as pa

        if number >= self._starts[-1]:
            raise InputError("unreadable", "the file has no such row any more")
        group = bisect_right(self._starts, number) - 1
        within = number - self._starts[group]
        try:
            value = self._batch(group, within // BATCH)[within % BATCH]
            if pa.types.is_dictionary(value.type):
                value = value.value
            if pa.types.is_struct(value.type):
                fields = {value.type.field(i).name for i in range(value.type.num_fields)} if value.is_valid else set()
                data = value["bytes"] if "bytes" in fields else None
                path = value["path"].as_py() if "path" in fields else None
                if (data is None or not data.is_valid) and path and isinstance(self.location, Path):
                    return read_named(self.location.parent, path)
                value = data
            if value is None or not value.is_valid:
                raise InputError("bad_row", f"{self._columns.image} is empty")
            check_size(value.as_buffer().size)
            return value.as_py()
        except (pa.ArrowException, OSError, IndexError, UnicodeDecodeError) as e:
            raise InputError("unreadable", f"parquet: {str(e)[:200]}") from None

    def _batch(self, group: int, batch: int) -> pa.Array:
        """Rows batch * BATCH ... of a row group: from the cache, or by decoding on from where the cursor is."""
        found = self._cache.get((group, batch))
        if found is not None:
            self._cache.move_to_end((group, batch))
            return found
        if self._cursor is None or self._cursor[0] != group or self._cursor[1] > batch:
            rows = self._parquet.iter_batches(batch_size=BATCH, row_groups=[group], columns=[self._columns.image])
            self._cursor = (group, 0, rows)
        _, position, rows = self._cursor
        while True:
            array = next(rows, None)
            if array is None:
                self._cursor = None
                raise IndexError("the row group ends early")
            column = array.column(0)
            self._cache[group, position] = column
            self._cached += column.nbytes
            while self._cached > CACHE_BYTES and len(self._cache) > 1:
                self._cached -= self._cache.popitem(last=False)[1].nbytes
            position += 1
            self._cursor = (group, position, rows)
            if position > batch:
                return column


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow.types as t

    return t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind)
