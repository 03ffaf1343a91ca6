"""Lineage as a layered graph: batches -> versions -> models -> next version, left to right, drawn as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sevenfold.quality.report import plot
from sevenfold.quality.report.format import shorten
from sevenfold.quality.report.markup import Html, el, join, numbers
from sevenfold.quality.report.model import Edge, Lineage, Node

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, LANE = 122.0, 50.0, 48.0, 20.0, 18.0
_KINDS = ("batch", "version", "model", "review")

Slots = list[list[str]]  # per column: node keys and "edge number:column" of edges that pass through


def columns(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, int]:
    """A column per node: one past its furthest source; a node without sources stands just before its first target.

    Edges that would close a circle, and edges to unknown nodes, do not count.
    """
    keys = [node.key for node in nodes]
    ahead: dict[str, list[str]] = {key: [] for key in keys}
    for edge in forward(nodes, edges):
        ahead[edge.source].append(edge.target)
    column = dict.fromkeys(keys, 0)
    for _ in keys:  # relaxation: paths have at most len(keys) edges
        for source, targets in ahead.items():
            for target in targets:
                column[target] = max(column[target], column[source] + 1)
    reached = {target for targets in ahead.values() for target in targets}
    for key in keys:
        if key not in reached and ahead[key]:
            column[key] = min(column[target] for target in ahead[key]) - 1
    return column


def forward(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[Edge]:
    """The edges that can be drawn left to right: in order, leaving out each that closes a circle."""
    ahead: dict[str, list[str]] = {node.key: [] for node in nodes}
    kept = []
    for edge in edges:
        if edge.source not in ahead or edge.target not in ahead:
            continue
        seen, queue = set(), [edge.target]
        while queue:
            key = queue.pop()
            if key not in seen:
                seen.add(key)
                queue += ahead[key]
        if edge.source not in seen:
            ahead[edge.source].append(edge.target)
            kept.append(edge)
    return kept


def order(column: Mapping[str, int], edges: Sequence[Edge]) -> Slots:
    """Each column's slots from top to bottom; sweeps of the barycentre rule keep crossings few."""
    slots: Slots = [[] for _ in range(max(column.values(), default=-1) + 1)]
    for key, at in column.items():
        slots[at].append(key)
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for number, edge in enumerate(edges):
        chain = [edge.source]
        for at in range(column[edge.source] + 1, column[edge.target]):
            chain.append(f"{number}:{at}")
            slots[at].append(chain[-1])
        chain.append(edge.target)
        for one, other in pairwise(chain):
            after.setdefault(one, []).append(other)
            before.setdefault(other, []).append(one)
    for sweep in range(8):
        neighbours = before if sweep % 2 == 0 else after
        path = range(1, len(slots)) if sweep % 2 == 0 else range(len(slots) - 2, -1, -1)
        for at in path:
            beside = slots[at - 1] if sweep % 2 == 0 else slots[at + 1]
            place = {key: (i + 0.5) / len(beside) for i, key in enumerate(beside)}
            here = {key: (i + 0.5) / len(slots[at]) for i, key in enumerate(slots[at])}

            def wish(key: str, place: dict[str, float] = place, here: dict[str, float] = here,
                     neighbours: dict[str, list[str]] = neighbours) -> float:  # fmt: skip
                found = [place[other] for other in neighbours.get(key, []) if other in place]
                return sum(found) / len(found) if found else here[key]

            slots[at].sort(key=wish)
    return slots


def draw(lineage: Lineage) -> Html:
    """The figure: boxes by kind, curved arrows, edge labels; and the same edges as a table."""
    named = {node.key: node for node in lineage.nodes}
    edges = forward(lineage.nodes, lineage.edges)
    column = columns(lineage.nodes, edges)
    slots = order(column, edges)
    heights = [[BOX_HEIGHT + GAP_Y if key in named else LANE for key in slot] for slot in slots]
    tall = max((sum(column_heights) for column_heights in heights), default=0.0)
    pitch = BOX_WIDTH + GAP_X
    centre: dict[str, tuple[float, float]] = {}
    for at, (slot, sizes) in enumerate(zip(slots, heights, strict=True)):
        y = 10 + (tall - sum(sizes)) / 2
        for key, size in zip(slot, sizes, strict=True):
            centre[key] = (4 + at * pitch, round(y + size / 2, 2))
            y += size
    width, height = 8 + (len(slots) - 1) * pitch + BOX_WIDTH, tall + 16
    paths, labels = [], []
    for number, edge in enumerate(edges):
        lanes = [f"{number}:{at}" for at in range(column[edge.source] + 1, column[edge.target])]
        start, end = centre[edge.source], centre[edge.target]
        paths.append(_path(edge, [start, *(centre[lane] for lane in lanes), end]))
        if edge.label:
            nearest = centre[lanes[-1]] if lanes else start
            at_x, at_y = end[0] - GAP_X / 2 - 2, (nearest[1] + end[1]) / 2 - (6 if nearest[1] == end[1] else -4)
            labels.append(plot.label(at_x, at_y, shorten(edge.label, 9), anchor="middle", kind="edge"))
    boxes = (_box(node, *centre[node.key]) for node in lineage.nodes)
    tip = el("path", d="M0 0L8 4L0 8z", class_="tip")
    defs = el("defs", el("marker", tip, id="tip", viewBox="0 0 8 8", refX=7, refY=4, markerWidth=7, markerHeight=7,
                         orient="auto"))  # fmt: skip
    says = "Lineage: which batch, version and model came from which"
    drawn = plot.drawing(join((defs, *paths, *labels, *boxes)), width, height, says=says)
    rows = ((named[e.source].title, e.label, named[e.target].title) for e in edges)
    kinds = [kind for kind in _KINDS if any(node.kind == kind for node in lineage.nodes)]
    keys = el("ul", *(el("li", el("span", class_=f"key-box {kind}"), kind) for kind in kinds), class_="legend")
    return el("figure", keys, drawn, numbers(("from", "how", "to"), rows, caption=says), class_="lineage")


def _path(edge: Edge, through: Sequence[tuple[float, float]]) -> Html:
    """A smooth line from the right side of the source, straight across each column it passes, to the target."""
    (x, y), bend = through[0], GAP_X / 2 + 10
    x += BOX_WIDTH
    steps = [f"M{x:.1f} {y:.1f}"]
    for i, (next_x, next_y) in enumerate(through[1:], start=1):
        last = i == len(through) - 1
        stop = next_x - (2 if last else 0)  # room for the arrow's tip
        steps.append(f"C{x + bend:.1f} {y:.1f} {next_x - bend:.1f} {next_y:.1f} {stop:.1f} {next_y:.1f}")
        x, y = next_x, next_y
        if not last:
            x += BOX_WIDTH
            steps.append(f"H{x:.1f}")
    hint = f"{edge.source} to {edge.target}" + (f": {edge.label}" if edge.label else "")
    return el("path", el("title", hint), d="".join(steps), class_="edge", marker_end="url(#tip)")


def _box(node: Node, x: float, y: float) -> Html:
    kind = node.kind if node.kind in _KINDS else "plain"
    shape = el(
        "rect", x=x, y=y - BOX_HEIGHT / 2, width=BOX_WIDTH, height=BOX_HEIGHT, rx=14 if kind == "model" else 5,
        class_=f"box {kind}",
    )  # fmt: skip
    middle, title_y = x + BOX_WIDTH / 2, y - 3 if node.subtitle else y + 4.5
    lines = [plot.label(middle, title_y, shorten(node.title, 14), anchor="middle", kind="node")]
    if node.subtitle:
        lines.append(plot.label(middle, y + 14, shorten(node.subtitle, 18), anchor="middle", kind="tick"))
    return el("g", el("title", f"{node.kind} {node.title} {node.subtitle}".strip()), shape, *lines)
