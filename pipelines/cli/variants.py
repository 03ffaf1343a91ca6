"""The command that makes and removes variants: other bytes for a version's samples, resized once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.console import date, example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import session
from sevenfold.pipelines.cli.versions import Ref
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    import pyarrow as pa

    from sevenfold.storage.variants import Variant

SHOWN = 5
"""Samples that do not decode that are named; --json names all."""


def materialize(
    context: typer.Context,
    ref: Ref = "main",
    size: Annotated[int | None, typer.Option(help="Side of the square that every image becomes, in pixels.")] = None,
    format: Annotated[str, typer.Option(help="jpeg, or raw: uint8 pixels that need no decoding.")] = "jpeg",
    quality: Annotated[int | None, typer.Option(help="Of JPEG, 1 to 100; 90 unless given.")] = None,
    channels: Annotated[int | None, typer.Option(help="1 (grey) or 3 (RGB); else 1 when every image is grey.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call it; else SIZE-FORMAT.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of decoding and encoding; else one per core.")] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Instead: remove a variant; gc deletes its files.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a variant of a version: the same samples, resized and encoded once, for a loader that decodes less.

    Ids, labels, splits and signals stay the version's. A raw variant gives training the very pixels that decoding and
    resizing the originals gives; JPEG gives nearly these in far fewer bytes. Shows bytes and decoding rate of both.
    """
    from sevenfold.storage.materialize import materialize as make
    from sevenfold.training.lever import measure

    at = session(context)
    version = at.lake.version(at.dataset, ref)
    if remove is not None:
        at.lake.remove_variant(version.content_id, remove)
        if json:
            print_json({"version": version.name, "removed": remove})
        else:
            say(f"removed the variant {remove} of {version.name}; `sevenfold gc --delete` deletes its files")
        return
    if size is None:
        raise SevenfoldError("there is no size", do="give the side of the square in pixels: --size 160")
    if quality is not None and format != "jpeg":
        raise SevenfoldError(f"--quality {quality} with --format {format}", do="leave it out: only JPEG has a quality")
    with progress("materialising") as report:
        variant, made = make(
            at.lake.store, at.dataset, ref, size=size, format=format, quality=90 if quality is None else quality,
            channels=channels, name=name, shard_bytes=at.lake.shard_bytes, threads=threads,
            by="sevenfold materialize", progress=report,
        )  # fmt: skip
    rows = [at.lake.samples_of(version.content_id), at.lake.variant_samples(version.content_id, variant.name)]
    table = measure(at.lake, variant, *rows)
    lost = _lost(*rows)
    if json:
        levers = [dataclasses.asdict(x) for x in table]
        print_json({"version": version.name, "new": made, **_facts(variant), "undecodable": lost, "levers": levers})
        return
    told = "made" if made else "was there"
    say(f"{variant.name} of {version.name} {told}: {_sizes(variant)}", "bold")
    print_table(
        ["", "bytes a sample", "samples/s a core", "times"],
        [[x.what, f"{x.bytes_each:,.0f}", f"{x.rate:,.0f}", f"{x.rate / table[0].rate:.2f}"] for x in table],
        right=["bytes a sample", "samples/s a core", "times"],
    )
    say(f"delivered by the loader at {variant.recipe['size']} pixels, from memory, in this run")
    if lost:
        few = ", ".join(i[:12] for i in lost[:SHOWN]) + (" ..." if len(lost) > SHOWN else "")
        say(f"{len(lost):,} samples do not decode and are not in it; training masks them: {few}", "bold yellow")
    say(f"next: sevenfold urls {version.name} --variant {variant.name}{at.same}")


def _lost(original: pa.Table, derived: pa.Table) -> list[str]:
    """Ids of the samples that have bytes in the version and none in the variant."""
    ids: list[str] = original["id"].filter(derived["offset"].is_null()).to_pylist()
    return ids


def _facts(variant: Variant) -> dict[str, Any]:
    from sevenfold.storage.lineage import facts_of

    return {"content_id": variant.content_id, **facts_of(variant)}


def _sizes(variant: Variant) -> str:
    return f"{variant.counts['samples']:,} samples, {len(variant.shards)} shards, {variant.tar_bytes:,} bytes"


def say_variants(found: Sequence[Mapping[str, Any]]) -> None:
    """A table of variants, given as lineage.facts_of has them."""
    print_table(
        ["variant", "samples", "shards", "bytes", "quality", "made", "by"],
        [
            [v["name"], v["counts"]["samples"], v["shards"], v["bytes"], v["recipe"].get("quality"),
             date(v["created"].get("time")), v["created"].get("by")]
            for v in found
        ],
        right=["samples", "shards", "bytes", "quality"],
    )  # fmt: skip


COMMANDS = (
    (
        "materialize",
        materialize,
        example(
            "sevenfold materialize --size 160",
            "sevenfold materialize v3 --size 64 --format raw",
            "sevenfold materialize v3 --remove 160-jpeg",
        ),
    ),
)
