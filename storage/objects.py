"""Requests to an S3 bucket: obstore with timeouts and retries, whose failures become OSErrors that name the object."""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sevenfold.storage.errors import SevenfoldError

PAUSES = (0.1, 0.3, 1.0, 3.0, *(10.0,) * 9)
"""Seconds between tries of a conditional put (times 0.5 to 1.5), for two timeouts at most."""

AT_FIRST = 8
"""How often a store that has never answered is asked again: its address may be wrong. Then only the time counts."""

LARGE = 1 << 20
"""Bytes from which an upload is given ten times as long."""

_CLIENT = ("allow_http", "allow_invalid_certificates", "proxy_url")
"""Settings of the HTTP client that the AWS_... environment may hold."""

_BROKE_OFF = "response body error"
"""What obstore says when an answer has begun and does not end."""


class Objects:
    """The objects of `s3://bucket`, by their full names.

    Parameters
    ----------
    timeout : seconds until a server that says nothing is given up; a large transfer may take ten times as long.

    Reads, listings and plain puts are tried again by obstore for two timeouts, conditional puts by `put` itself; a
    store that has never answered is given up sooner.
    Methods raise FileNotFoundError for an absent object, PermissionError where access is denied, OSError for whatever
    else fails, and SevenfoldError when the bucket does not exist or there are no credentials.
    """

    def __init__(self, bucket: str, url: str, timeout: float) -> None:
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import S3Store
        except ImportError:
            raise SevenfoldError(
                "a lake in a bucket needs obstore", where=url, do="pip install 'sevenfold[s3]'"
            ) from None
        if not bucket:
            raise SevenfoldError("this names no bucket", where=url, expected="s3://bucket/prefix")
        self.bucket, self.url = bucket, url
        self._there = self._answered = False
        self._patience = 2 * timeout
        library: Any = obstore
        self._obstore, self._errors = library, exceptions
        self._missing = (FileNotFoundError, exceptions.NotFoundError)
        self._refused = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
        short, long = timedelta(seconds=timeout), timedelta(seconds=10 * timeout)
        options: dict[str, Any] = {"connect_timeout": timedelta(seconds=min(10.0, timeout))}
        for name in _CLIENT:  # obstore looks for none of them itself once it is given any option
            if os.environ.get(f"AWS_{name.upper()}"):
                options[name] = os.environ[f"AWS_{name.upper()}"]
        self._plain = "allow_http" not in options

        def store(retries: Any, **limits: timedelta) -> Any:
            client: Any = {**options, **limits}
            try:
                return S3Store(bucket, retry_config=retries, client_options=client)
            except exceptions.BaseError as e:  # one of the two keys is set, the other is not
                if "Missing" in str(e):
                    raise _no_credentials(url) from None
                raise

        first, again = ({"max_retries": n, "retry_timeout": 2 * short} for n in (AT_FIRST, 1000))
        never = {"max_retries": 0}
        self._patient = store(again, timeout=long, read_timeout=short)
        self._hasty = store(first, timeout=long, read_timeout=short)
        self._large = store(again, timeout=long)
        self._once = {True: store(never, timeout=long), False: store(never, timeout=short)}

    @property
    def _many(self) -> Any:
        return self._patient if self._answered else self._hasty

    def get(self, name: str) -> tuple[bytes, str]:
        """(bytes, ETag). An answer that broke off is asked for once more: obstore does so in most cases, not in all."""
        try:
            return self._get(name)
        except OSError as e:
            if _BROKE_OFF not in str(e):
                raise
        return self._get(name)

    def _get(self, name: str) -> tuple[bytes, str]:
        with self._asking(name):
            found = self._obstore.get(self._many, name)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

    def stream(self, name: str, offset: int = 0, tag: str = "") -> tuple[dict[str, Any], Iterator[memoryview]]:
        """The object's metadata (size, e_tag) and its bytes from `offset` on, piece by piece.

        With a tag, only while that is its ETag: an OSError (ESTALE) says that it is another's.
        """
        options: dict[str, Any] = {"if_match": tag} if tag else {}
        if offset:
            options["range"] = {"offset": offset}
        with self._asking(name):
            found = self._obstore.get(self._many, name, options=options or None)

        def pieces() -> Iterator[memoryview]:
            with self._asking(name):
                for piece in found.stream(min_chunk_size=4 << 20):
                    yield memoryview(piece)

        return found.meta, pieces()

    def head(self, name: str) -> dict[str, Any]:
        """Metadata: path, size, e_tag, last_modified."""
        try:
            with self._asking(name):
                meta: dict[str, Any] = self._obstore.head(self._many, name)
                return meta
        except FileNotFoundError:
            if not self._there:  # this answer has no body, which would tell that the bucket itself is absent
                self.children(f"{name}/.nothing")
            raise

    def below(self, folder: str) -> list[dict[str, Any]]:
        """Metadata of every object below a folder ("": of all)."""
        with self._asking(folder):
            return [meta for chunk in self._obstore.list(self._many, folder or None) for meta in chunk]

    def children(self, folder: str) -> tuple[list[str], list[dict[str, Any]]]:
        """Directly in a folder: the folders' full names, and the metadata of the objects."""
        with self._asking(folder):
            found = self._obstore.list_with_delimiter(self._many, folder or None)
            self._there = True
            return list(found["common_prefixes"]), list(found["objects"])

    def delete(self, name: str) -> None:
        """Remove an object, whether it is there or not."""
        with self._asking(name):
            self._obstore.delete(self._many, name)

    def overwrite(self, name: str, data: bytes) -> None:
        """Write an object whether it is there or not."""
        with self._asking(name):
            self._obstore.put(self._large if len(data) >= LARGE else self._many, name, data, use_multipart=False)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object only if it is absent; False when it is there."""
        return self._put(name, data, "create")

    def change(self, name: str, data: bytes, tag: str) -> bool:
        """Write an object only while its ETag is `tag`; False when it is not."""
        return self._put(name, data, {"e_tag": tag})

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        """A conditional put, tried again here and not by obstore, whose second try would not know its first.

        When an answer was lost, "it exists" may mean that our own try arrived: the object itself tells.
        """
        store = self._once[len(data) >= LARGE]
        unsure, until = False, time.monotonic() + self._patience
        for pause in (*(PAUSES if self._answered else PAUSES[:5]), None):
            error: Exception = OSError(errno.EAGAIN, "the object comes and goes", f"s3://{self.bucket}/{name}")
            try:
                self._obstore.put(store, name, data, mode=mode, use_multipart=False)
                self._answered = True
                return True
            except self._refused:
                self._answered = True
                if unsure and self._content(name) == data:
                    return True
                if mode != "create" or self._exists(name):  # absent: deleted at this instant, so the name is free
                    return False
            except self._missing as e:
                if "NoSuchBucket" in str(e):
                    raise self._failed(name, e) from None
                return False  # to be changed, but deleted meanwhile
            except self._errors.BaseError as e:
                error = self._failed(name, e)
                if not isinstance(error, OSError) or error.errno in (errno.EACCES, errno.ENOTSUP):
                    raise error from None
                unsure = True
            if pause is None or time.monotonic() + pause > until:
                raise error
            time.sleep(pause * (0.5 + random.random()))
        raise AssertionError("the last try returns or raises")

    def _exists(self, name: str) -> bool:
        try:
            self.head(name)
        except FileNotFoundError:
            return False
        return True

    def _content(self, name: str) -> bytes | None:
        try:
            return self.get(name)[0]
        except FileNotFoundError:
            return None

    @contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        try:
            yield
            self._answered = True
        except self._missing as e:
            if "NoSuchBucket" in str(e):
                raise self._failed(name, e) from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object", f"s3://{self.bucket}/{name}") from None
        except self._errors.BaseError as e:
            raise self._failed(name, e) from None

    def _failed(self, name: str, error: Exception) -> Exception:
        """What is to be raised for an error of obstore."""
        where, text = f"s3://{self.bucket}/{name}", str(error)
        if "NoSuchBucket" in text:
            return SevenfoldError(f"there is no bucket {self.bucket}", where=self.url, do="make it, or mend the name")
        if "/latest/api/token" in text or "/latest/meta-data" in text:  # the last place where obstore looks for them
            return _no_credentials(self.url)
        if "builder error" in text and self._plain:
            return SevenfoldError(
                "the endpoint has no TLS (http://)", where=self.url, do="set AWS_ALLOW_HTTP=true if that is meant"
            )
        if isinstance(error, self._errors.PermissionDeniedError | self._errors.UnauthenticatedError):
            return PermissionError(errno.EACCES, f"access denied: {said(text)}", where)
        if isinstance(error, self._errors.PreconditionError):
            return OSError(errno.ESTALE, "it changed while it was read", where)
        if isinstance(error, self._errors.NotSupportedError) or "501 Not Implemented" in text:
            return OSError(errno.ENOTSUP, f"the store does not know this request: {said(text)}", where)
        return OSError(errno.EIO, f"the store does not answer as it should: {said(text)}", where)


def _no_credentials(url: str) -> SevenfoldError:
    return SevenfoldError(
        "there are no credentials for this bucket",
        where=url,
        do="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, AWS_ENDPOINT_URL)",
    )


def said(text: str) -> str:
    """One line of an error of obstore: without its dump of data structures, and of an XML answer only the message."""
    line = " ".join(text.partition("Debug source")[0].split())
    message = re.search(r"<Message>(.*?)</Message>", line)
    line = re.sub(r"<\?xml.*", message[1] if message else "", line)
    return line if len(line) <= 300 else line[:300] + " ..."
