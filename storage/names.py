"""Names that become file names: checked once, here, so that none can climb out of its folder."""

from __future__ import annotations

import re

from sevenfold.storage.errors import SevenfoldError

SPLITS = ("train", "val", "test", "pool")
"""Every sample is in one of these; `pool` holds what is not labelled yet."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_VERSION = re.compile(r"v?([0-9]{1,18})")

ALIASES_SUFFIX = ".aliases"
"""What the name of a batch's alias file adds to the batch id."""

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
    "pool": "pool",
    "unlabelled": "pool",
    "unlabeled": "pool",
}
"""Folder or column values that name a split, lower-cased."""


def is_name(name: str) -> bool:
    """Whether :func:`check_batch` and :func:`check_name` would take it as a batch id."""
    return bool(_NAME.fullmatch(name)) and not name.endswith(ALIASES_SUFFIX)


def check_name(name: str, what: str) -> str:
    """Return `name` when it is safe as one path component; raise SevenfoldError naming `what` otherwise."""
    if not _NAME.fullmatch(name):
        raise SevenfoldError(
            f"the {what} {name!r} cannot be used as a name",
            expected="letters, digits and . _ + = -, starting with a letter or digit, at most 100 characters",
            do="choose another name",
        )
    return name


def check_batch(batch: str) -> str:
    """Return `batch` when it can name a batch's files; `<batch>.aliases` would be another batch's alias file."""
    if batch.endswith(ALIASES_SUFFIX):
        raise SevenfoldError(
            f"the batch id {batch!r} ends in {ALIASES_SUFFIX}, as the files of aliases do", do="choose another id"
        )
    return check_name(batch, "batch id")


def check_ref(name: str, what: str) -> str:
    """Return `name` when it can name a branch or tag: a name, and not one that reads as a version or a date."""
    if version_number(name) is not None:
        raise SevenfoldError(
            f"the {what} {name!r} reads as a version number", expected="a name", do="choose another name"
        )
    if _DATE.match(name):
        raise SevenfoldError(
            f"the {what} {name!r} reads as a date", expected="a name", do=f"choose another name, v-{name} for instance"
        )
    return check_name(name, what)


def check_digest(digest: str, what: str) -> str:
    """Return `digest` when it is 64 lower-case hex digits; raise SevenfoldError otherwise."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise SevenfoldError(f"{digest!r} is not a {what}", expected="64 lower-case hex digits (sha256)")
    return digest


def version_number(text: str) -> int | None:
    """7 for "v7" or "7", None for anything else."""
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None
