"""One file of bytes at known offsets, on a disk or in a bucket: what archives are read through, in place."""

from __future__ import annotations

import io
import os
import stat
from functools import cached_property
from pathlib import Path
from typing import Any

from sevenfold.storage.errors import SevenfoldError

_READ_AHEAD = 1 << 20
"""Bytes fetched at once when a file in a bucket is read in order."""


class Blob:
    """A file whose `size` and `modified` (unix seconds) are known and that is read at offsets."""

    size: int
    modified: float

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        raise TypeError("a blob reads")

    def file(self) -> io.BufferedReader:
        """The blob as a seekable file object for libraries that want one."""
        return io.BufferedReader(_BlobFile(self), _READ_AHEAD)


class LocalBlob(Blob):
    """A regular file on a disk; the handle closes with the object."""

    def __init__(self, path: Path) -> None:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would hang
            raise SevenfoldError("it is not a regular file", where=str(path), do="name the file itself")
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self.size, self.modified = status.st_size, status.st_mtime

    def read_at(self, offset: int, length: int) -> bytes:
        """See Blob.read_at."""
        data = os.pread(self._file.fileno(), length, offset)
        while len(data) < length and (more := os.pread(self._file.fileno(), length - len(data), offset + len(data))):
            data += more
        return data

    def file(self) -> io.BufferedReader:
        """See Blob.file."""
        return open(self._file.name, "rb")


class BucketBlob(Blob):
    """An object in a bucket, read by ranges."""

    def __init__(self, url: str) -> None:
        self.url = url
        bucket, self._key = split_url(url)
        self._store = s3_store(bucket)
        meta = self._head
        self.size, self.modified = meta["size"], meta["last_modified"].timestamp()

    @cached_property
    def _head(self) -> Any:
        import obstore

        try:
            return obstore.head(self._store, self._key)
        except (FileNotFoundError, obstore.exceptions.BaseError) as e:
            raise bucket_error(e, self.url) from None

    def read_at(self, offset: int, length: int) -> bytes:
        """See Blob.read_at."""
        import obstore

        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        try:
            return bytes(obstore.get_range(self._store, self._key, start=offset, length=length))
        except (FileNotFoundError, obstore.exceptions.BaseError) as e:
            raise bucket_error(e, self.url) from None


class _BlobFile(io.RawIOBase):
    def __init__(self, blob: Blob) -> None:
        self._blob, self._at = blob, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._blob.size}[whence]
        if start + offset < 0:
            raise ValueError("a seek to before the start")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._blob.read_at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_blob(root: Path | str) -> Blob:
    """The blob at a path or `s3://` URL. Raises SevenfoldError when it cannot be opened."""
    if isinstance(root, str) and "://" in root:
        return BucketBlob(root)
    try:
        return LocalBlob(Path(root))
    except OSError as e:
        raise SevenfoldError(f"it cannot be opened ({e.strerror})", where=str(root), do="check the path") from None


def split_url(url: str) -> tuple[str, str]:
    """(bucket, key or prefix) of `s3://bucket/...`; raises SevenfoldError for another scheme."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise SevenfoldError(
            f"{url!r} cannot be read from", expected="a path, or s3://bucket/prefix", do="check the address"
        )
    return bucket, key.strip("/")


def s3_store(bucket: str) -> Any:
    """An obstore client of `bucket`; credentials, region and endpoint come from the AWS_... environment."""
    try:
        from obstore.store import S3Store
    except ImportError:
        raise SevenfoldError(
            "reading from a bucket needs obstore", where=f"s3://{bucket}", do="pip install 'sevenfold[s3]'"
        ) from None
    return S3Store(bucket)


def bucket_error(error: Exception, url: str) -> SevenfoldError:
    """What obstore could not do, as the user's error: obstore has tried again by itself before."""
    first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
    return SevenfoldError(
        f"the bucket does not answer this request ({first})",
        where=url,
        expected="an object or prefix that these credentials may list and read",
        do="check the address and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL; then again",
    )
