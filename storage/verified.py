"""What verification says: findings in a fixed vocabulary, and the totals of what was looked at."""

from __future__ import annotations

from dataclasses import dataclass

PROBLEMS = {
    "missing": "the file is not there",
    "unreadable": "the file cannot be read or parsed",
    "digest": "the bytes are not those of the file's name, and no member can be blamed",
    "size": "the file or member has another size than it should have",
    "truncated": "the file ends too early",
    "end": "the two zero blocks at the end are not as they should be",
    "trailing": "there are bytes behind the end",
    "header": "a member's header is damaged",
    "content": "a member's bytes are not those of the sample's id",
    "label": "a .cls member holds another class number than the label's",
    "padding": "the padding behind a member is not zero",
    "missing_member": "the index names a member that the shard lacks",
    "extra_member": "the shard holds a member that the index does not name, or holds it twice",
    "offset": "members lie elsewhere than the index says",
    "index": "the index is whole and says what is not so",
    "manifest": "the manifest's numbers are not those of its index",
    "duplicate": "an id is twice in one version",
    "overlay": "an overlay edits a sample that the version does not store",
    "embedding": "the vectors of one encoder do not fit each other, or are not finite",
    "decode": "the image does not decode",
    "pixels": "the image decodes to other pixels or another size than the index says",
}
"""The words a finding's `problem` can be."""

CACHE = "cache"
"""A finding's `where` when only this machine's copy of a bucket's file is bad."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the file, if it can be known the member and its bytes [byte, end), and what."""

    key: str
    problem: str
    detail: str
    member: str | None = None
    byte: int | None = None
    end: int | None = None
    versions: tuple[str, ...] = ()
    where: str = "lake"


@dataclass(frozen=True)
class Report:
    """What verification looked at, and what it found."""

    findings: tuple[Finding, ...]
    versions: int
    indexes: int
    overlays: int
    shards: int
    variants: int
    samples: int
    bytes: int
    seconds: float
    deep: bool

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
