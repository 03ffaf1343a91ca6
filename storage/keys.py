"""The layout of a lake: the key of every kind of file, in one place."""

from __future__ import annotations

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import ALIASES_SUFFIX, check_batch, check_digest, check_name, check_ref

LAKE = "lake.json"
"""What makes a folder a lake."""


def batch_key(dataset: str, batch: str) -> str:
    """Where a batch's record lies."""
    return f"batches/{check_name(dataset, 'dataset name')}/{check_batch(batch)}.json"


def landing_key(dataset: str, batch: str) -> str:
    """Where the rows a batch landed lie."""
    return f"batches/{dataset}/{batch}.parquet"


def aliases_key(dataset: str, batch: str) -> str:
    """Where a batch's aliases lie."""
    return f"batches/{dataset}/{batch}{ALIASES_SUFFIX}.parquet"


def quarantine_key(dataset: str, batch: str) -> str:
    """Where what a batch set aside lies."""
    return f"quarantine/{dataset}/{batch}.parquet"


def metadata_key(dataset: str, batch: str) -> str:
    """Where the further columns of a batch's samples lie."""
    return f"metadata/{dataset}/{batch}.parquet"


def annotations_key(dataset: str, batch: str) -> str:
    """Where what several annotators said of a batch's samples lies."""
    return f"annotations/{dataset}/{batch}.parquet"


def lost_keys(digest: str) -> tuple[str, str]:
    """Where a damaged shard's bytes are kept, and the rows of what was lost with it."""
    return f"quarantine/shards/{digest}.tar", f"quarantine/shards/{digest}.parquet"


def queue_key(dataset: str, name: str) -> str:
    """Where a review queue lies."""
    return f"queues/{check_name(dataset, 'dataset name')}/{check_name(name, 'queue name')}.parquet"


def relabels_key(dataset: str, batch: str) -> str:
    """Where the relabels that a batch proposes lie, a queue."""
    return f"queues/{dataset}/relabels-{batch}.parquet"


def shard_key(digest: str) -> str:
    """Where a shard lies."""
    return f"shards/{digest[:2]}/{digest}.tar"


def index_key(digest: str) -> str:
    """Where a batch's index lies."""
    return f"index/{digest[:2]}/{digest}.parquet"


def overlay_key(digest: str) -> str:
    """Where an overlay lies."""
    return f"overlays/{digest}.parquet"


def manifest_key(content_id: str) -> str:
    """Where a manifest lies."""
    return f"manifests/{content_id}.json"


def variants_folder(content_id: str) -> str:
    """The variants of a content id: their manifests and indexes."""
    return f"variants/{check_digest(content_id, 'content id')}"


def variant_key(content_id: str, name: str) -> str:
    """Where a variant's manifest lies."""
    return f"{variants_folder(content_id)}/{check_name(name, 'name of a variant')}.json"


def variant_index_key(content_id: str, digest: str) -> str:
    """Where a variant's index lies."""
    return f"{variants_folder(content_id)}/{digest}.parquet"


def digest_in(key: str) -> str:
    """The digest in the key of a shard, an index or an overlay."""
    return key.rpartition("/")[2].partition(".")[0]


def versions_folder(dataset: str) -> str:
    """The log of a dataset's versions."""
    return f"datasets/{check_name(dataset, 'dataset name')}/versions"


def version_key(dataset: str, number: int) -> str:
    """Where a version lies."""
    return f"{versions_folder(dataset)}/{number:08d}.json"


def refs_folder(dataset: str, kind: str) -> str:
    """The folder of the `branches` or `tags`."""
    if kind not in ("branches", "tags"):
        raise SevenfoldError(f"{kind!r} is no kind of ref", expected="branches or tags")
    return f"datasets/{check_name(dataset, 'dataset name')}/refs/{kind}"


def ref_key(dataset: str, kind: str, name: str) -> str:
    """Where a branch or tag lies."""
    what = "branch" if kind == "branches" else "tag"
    return f"{refs_folder(dataset, kind)}/{check_ref(name, what)}.json"


def commits_key(dataset: str) -> str:
    """What a writer locks while it gives a version its number and moves the branch."""
    return f"datasets/{check_name(dataset, 'dataset name')}/commits"
