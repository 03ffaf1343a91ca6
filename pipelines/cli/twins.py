"""The command about twins: which samples show the same picture, and whether a picture is in already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sevenfold.pipelines.cli.console import example, print_json, print_table, progress, say
from sevenfold.pipelines.cli.data import Json
from sevenfold.pipelines.cli.session import Session, session
from sevenfold.pipelines.cli.versions import Ref
from sevenfold.storage.errors import SevenfoldError

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 20
"""Pairs that are printed; --json and --out give all."""


def twins(
    context: typer.Context,
    ref: Ref = "main",
    find: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: is this picture in the version already?")
    ] = None,
    across: Annotated[
        bool, typer.Option("--across", help="Only what leaks: val or test pictures that another split shows.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all pairs, with their group, as Parquet.")
    ] = None,
    grid: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the first 100 pairs as a PNG.")] = None,
    json: Json = False,
) -> None:
    """List samples that show the same picture: re-encoded, shifted, cropped, brightened or mirrored ones too.

    Pairs across splits come first. What a picture looks like is kept in the lake, so that asking again reads little.
    """
    at = session(context)
    if find is not None:
        _find(at, ref, find, json)
        return
    from sevenfold.assets import twinning

    version = at.lake.version(at.dataset, ref)
    with progress(f"searching {version.name} for twins") as report:
        found = twinning.twins(at.lake, at.project, ref, progress=report)
    leaks = twinning.leaks(found)
    pairs = twinning.listed(found, across=across)
    samples = at.lake.samples_of(version.content_id)
    if out is not None:
        _write(out, pairs)
    if grid is not None:
        _save(grid, twinning.grid(at.lake, samples, pairs))
    counts = twinning.counts(pairs)
    if json:
        print_json({"version": version.name, **counts, "leaks": leaks.num_rows, "twins": pairs.to_pylist()})
        return
    if not pairs.num_rows:
        say(f"{version.name} has no twins{' across splits' if across else ''} among {samples.num_rows:,} samples")
        return
    told = f"{counts['pairs']:,} pairs, {counts['groups']:,} groups of {counts['samples']:,} samples"
    _print(pairs, samples, f"twins in {version.name}: {told}")
    for path, what in ((out, "all pairs"), (grid, f"the first {min(pairs.num_rows, twinning.SHOWN)} pairs")):
        if path is not None:
            say(f"wrote {what} to {path}")
    if leaks.num_rows:
        say(f"{leaks.num_rows:,} samples show a picture of val or test in another split", "yellow")
        say(f"next: sevenfold review --exclude-twins --ref {version.name} --commit{at.same}")


def _find(at: Session, ref: str, file: Path, json: bool) -> None:
    from sevenfold.assets import twinning

    version = at.lake.version(at.dataset, ref)
    with progress(f"opening the index of {version.name}") as report:
        finder = twinning.Finder.open(at.lake, at.project, ref, progress=report)
    matches = finder.find(twinning.read_file(file), file.name)
    if json:
        print_json({"version": version.name, "file": str(file), "matches": [vars(m) for m in matches]})
        return
    if not matches:
        say(f"{file} is not in {version.name}: none of {finder.samples.num_rows:,} samples shows it")
        return
    print_table(
        ["id", "split", "path", "score", "it is"],
        [[m.id[:12], m.split, m.path, f"{m.score:.3f}", m.transform] for m in matches],
        title=f"{file} is in {version.name}",
        right=["score"],
    )


def _print(pairs: pa.Table, samples: pa.Table, title: str) -> None:
    shown = pairs.slice(0, SHOWN).to_pylist()
    paths = _paths(samples, {r[k] for r in shown for k in ("keep", "exclude")})
    rows: list[list[Any]] = [
        [
            f"{r['score']:.3f}", r["transform"], f"{r['keep_split']}: {paths[r['keep']]}",
            f"{r['exclude_split']}: {paths[r['exclude']]}", r["exclude"][:12],
        ]
        for r in shown
    ]  # fmt: skip
    print_table(["score", "the second is", "first", "second", "second's id"], rows, title=title, right=["score"])
    if pairs.num_rows > SHOWN:
        say(f"{pairs.num_rows - SHOWN:,} more: --out pairs.parquet or --json gives all")


def _paths(samples: pa.Table, ids: set[str]) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = samples.filter(pc.is_in(samples["id"], pa.array(list(ids), pa.string())))
    return dict(zip(rows["id"].to_pylist(), rows["path"].to_pylist(), strict=True))


def _write(path: Path, pairs: pa.Table) -> None:
    import io

    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pairs, buffer)
    _save(path, buffer.getvalue())


def _save(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise SevenfoldError(f"it cannot be written: {error.strerror}", where=str(path)) from None


COMMANDS = (
    (
        "twins",
        twins,
        example(
            "sevenfold twins v3 --grid twins.png --out pairs.parquet",
            "sevenfold twins --across",
            "sevenfold twins --find photo.jpg",
        ),
    ),
)
