"""Lineage: from batches over versions and reviews to models, read from the lake."""

from __future__ import annotations

from sevenfold.quality.report import Edge, Lineage, Node
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.storage.records import Version


def ancestors(lake: Lake, version: Version) -> list[Version]:
    """The version and those it grew from along first parents, oldest first."""
    line = [version]
    while line[-1].parents:
        line.append(lake.version(version.dataset, f"v{line[-1].parents[0]}"))
    return line[::-1]


def lineage(lake: Lake, project: Project, version: Version) -> Lineage:
    """What led to a version, and every model trained on a version of that line."""
    from sevenfold.training import aliases, registry

    nodes: list[Node] = []
    edges: list[Edge] = []
    there: set[str] = set()
    reviews = {r.name: r for r in lake.reviews(project.dataset)}
    line = ancestors(lake, version)
    for v in line:
        nodes.append(Node(v.name, "version", v.name, f"{lake.samples_of(v.content_id).num_rows:,} samples"))
        for batch in lake.manifest(v.content_id).batch_ids:
            if batch not in there:
                there.add(batch)
                samples = lake.batch(project.dataset, batch).counts["samples"]
                nodes.append(Node(f"batch:{batch}", "batch", batch, f"{samples:,} samples"))
                edges.append(Edge(f"batch:{batch}", v.name))
        if v.parents and v is not line[0]:
            edges.append(Edge(f"v{v.parents[0]}", v.name))
        for name in v.provenance.get("reviews", ()):
            review = reviews.get(name)
            if review is None:
                continue
            key = f"review:{name}"
            nodes.append(Node(key, "review", name, f"{review.rows:,} decisions by {review.reviewer}"))
            edges.append(Edge(key, v.name))
            if v.parents:
                edges.append(Edge(f"v{v.parents[0]}", key, "mined" if review.queues else ""))
    names = {v.content_id: v.name for v in line}
    for model in registry.models(lake, project.model):
        if model.content_id not in names:
            continue
        pointing = [a.alias for a in aliases.aliases(lake, model.name) if a.number == model.number]
        nodes.append(Node(model.ref, "model", model.ref, ", ".join(pointing)))
        edges.append(Edge(names[model.content_id], model.ref, "trained"))
        if model.parent:
            edges.append(Edge(model.parent, model.ref, "continued"))
    return Lineage(tuple(nodes), tuple(edges))
