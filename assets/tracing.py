"""Lineage as a picture: from batches over versions and reviews to models, read from the lake."""

from __future__ import annotations

from pathlib import Path

from sevenfold.quality.report import Edge, Lineage, Node
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Batch, Version


def ancestors(lake: Lake, version: Version) -> list[Version]:
    """The version and those it grew from along first parents, oldest first."""
    line = [version]
    while line[-1].parents:
        line.append(lake.version(version.dataset, f"v{line[-1].parents[0]}"))
    return line[::-1]


def lineage(lake: Lake, project: Project, version: Version) -> Lineage:
    """What led to a version, merged branches too, and every model trained on one of those versions."""
    from sevenfold.training import aliases, registry

    found = lake.lineage(project.dataset, version.name)
    reviews = {r.name: r for r in lake.reviews(project.dataset)}
    nodes: list[Node] = []
    edges: list[Edge] = []
    line = found.ancestors[::-1]
    for v in line:
        name = v["version"]
        nodes.append(Node(name, "version", name, f"{lake.samples_of(v['content_id']).num_rows:,} samples"))
        for batch in found.batches:
            if batch["version"] == name:
                key = f"batch:{batch['batch']}"
                samples = batch.get("counts", {}).get("samples", 0)
                nodes.append(Node(key, "batch", batch["batch"], f"{samples:,} samples"))
                edges.append(Edge(key, name))
        edges += [Edge(parent, name) for parent in v["parents"]]
        for review in filter(None, map(reviews.get, v["provenance"].get("reviews", ()))):
            key = f"review:{review.name}"
            nodes.append(Node(key, "review", review.name, f"{review.rows:,} decisions by {review.reviewer}"))
            edges.append(Edge(key, name))
            if v["parents"]:
                edges.append(Edge(v["parents"][0], key, "mined" if review.queues else ""))
    names = {v["content_id"]: v["version"] for v in line}
    for model in registry.models(lake, project.model):
        if model.content_id not in names:
            continue
        pointing = [a.alias for a in aliases.aliases(lake, model.name) if a.number == model.number]
        nodes.append(Node(model.ref, "model", model.ref, ", ".join(pointing)))
        edges.append(Edge(names[model.content_id], model.ref, "trained"))
        if model.parent:
            edges.append(Edge(model.parent, model.ref, "continued"))
    return Lineage(tuple(nodes), tuple(edges))


def batch_lineage(lake: Lake, project: Project, batch: Batch) -> Lineage:
    """Where a batch came from and which versions hold it, the first and the newest three."""
    key = f"batch:{batch.batch}"
    source = Node("source", "source", Path(batch.source).name or batch.source, batch.kind)
    nodes = [source, Node(key, "batch", batch.batch, f"{batch.counts['samples']:,} samples")]
    edges = [Edge("source", key, "landed")]
    holding = [v for v in lake.versions(project.dataset) if batch.batch in lake.manifest(v.content_id).batch_ids]
    for version in holding[:1] + holding[1:][-3:]:
        nodes.append(Node(version.name, "version", version.name))
        edges.append(Edge(key, version.name))
    return Lineage(tuple(nodes), tuple(edges))
