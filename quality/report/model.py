"""What a report says: frozen dataclasses, filled by the caller, drawn by the other files of this folder.

Every field but the heading has an empty default, and a section whose data is empty is left out of the page. Shares
and accuracies are fractions (0..1), durations milliseconds, dates unix seconds. Text is plain: the page
escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sevenfold.quality.verdict import Verdict

Interval = tuple[float, float]


@dataclass(frozen=True)
class ClassBalance:
    """How many samples of each class one version holds, in the order in which the classes are to be shown."""

    version: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class Tile:
    """One picture with its caption.

    Parameters
    ----------
    key : sample id or input path.
    image : the encoded bytes, or None; bytes that do not decode are shown as a tile that says `missing`.
    title : the caption's first line (a label, a reason).
    change : given label and suggested label, shown as "given -> suggested".
    lines : further caption lines, each short.
    review : what the reviewer decided, when known.
    agreed : whether the review agreed with the proposal (colours and marks `review`).
    missing : why there is no picture.
    """

    key: str
    image: bytes | None = field(default=None, repr=False)
    title: str = ""
    change: tuple[str, str] | None = None
    lines: tuple[str, ...] = ()
    review: str | None = None
    agreed: bool | None = None
    missing: str = "no preview"


@dataclass(frozen=True)
class Grid:
    """Tiles with one sentence about them; `total` counts all there are (None: as many as tiles)."""

    tiles: tuple[Tile, ...]
    caption: str = ""
    total: int | None = None


@dataclass(frozen=True)
class Curve:
    """Validation accuracy (0..1) by epoch of one run; runs of one `group` (an arm, a version) share a colour."""

    run: str
    group: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Arm:
    """Final accuracy (0..1) by seed of one arm of an experiment, e.g. mined or random."""

    name: str
    accuracy: Mapping[int, float]


@dataclass(frozen=True)
class StepTimes:
    """Mean milliseconds of a step's phases, in order (data, forward, backward, optimizer); the loader's idle share."""

    run: str
    phases: Mapping[str, float]
    idle_share: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Reason:
    """One sentence of an explanation; `ok` says whether it spoke for (True), against (False) or neither (None).

    A plain string does for a reason that is neither.
    """

    text: str
    ok: bool | None = None


@dataclass(frozen=True)
class GateSlice:
    """Champion and challenger on one slice: accuracy (0..1) with its interval; `ok` is the gate's word on the slice."""

    name: str
    n: int
    champion: float | None
    challenger: float | None
    champion_interval: Interval | None = None
    challenger_interval: Interval | None = None
    difference_interval: Interval | None = None
    ok: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Gate:
    """What the gate decided about a challenger, and why."""

    promoted: bool
    alias: str
    champion: str
    challenger: str
    reasons: tuple[Reason | str, ...] = ()
    slices: tuple[GateSlice, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What the retrain policy decided, and why."""

    retrain: bool
    headline: str
    reasons: tuple[Reason | str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A box of the lineage: kind is batch, version, model or review (others are drawn plainly)."""

    key: str
    kind: str
    title: str
    subtitle: str = ""


@dataclass(frozen=True)
class Edge:
    """From what to what, by node keys; `label` is short, e.g. "mined"."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True)
class Lineage:
    """Where everything came from: batches -> versions -> models -> next version."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class BatchCounts:
    """One landing's reconciliation: inputs = samples + aliases + relabels + quarantined.

    A relabel is a known sample under another label: it waits for review, its bytes are not stored twice.
    """

    batch: str
    status: str
    inputs: int
    samples: int
    aliases: int
    quarantined: int
    relabels: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def reconciles(self) -> bool:
        """True when nothing was dropped silently."""
        return self.inputs == self.samples + self.aliases + self.relabels + self.quarantined


@dataclass(frozen=True)
class Facts:
    """What is known of the keys among the findings, a column each (of one length); a key that is absent has none.

    `notes`: what a key itself tells, such as why an input was quarantined; a verdict's own note about it wins.
    """

    keys: Sequence[str] = ()
    labels: Sequence[str | None] = ()
    splits: Sequence[str | None] = ()
    paths: Sequence[str | None] = ()
    notes: Sequence[str | None] = ()


@dataclass(frozen=True)
class Flow:
    """How many samples changed in one way: relabelled from `before` to `after`, moved from split to split."""

    change: str
    before: str
    after: str
    n: int


@dataclass(frozen=True)
class Changes:
    """What differs from the reference.

    Parameters
    ----------
    counts : added, removed, relabelled, moved ... -> samples.
    samples : (of the reference, of the subject).
    flows : the commonest changes from what to what, largest first.
    balance : classes of the reference and of the subject.
    examples : a few of the changed samples.
    """

    reference: str
    counts: Mapping[str, int]
    samples: tuple[int, int] = (0, 0)
    flows: tuple[Flow, ...] = ()
    balance: tuple[ClassBalance, ...] = ()
    examples: Grid | None = None


@dataclass(frozen=True)
class Command:
    """A command to try next and what it shows."""

    command: str
    what: str = ""


@dataclass(frozen=True)
class Report:
    """Everything on the page.

    Parameters
    ----------
    version : what the page is about: a version, or a batch where `kind` says so.
    kind : "version" or "batch".
    created : unix seconds, from the caller's clock (the page prints it in UTC).
    summary : what happened, in sentences.
    findings_at : where the whole list of findings lies, said when the page shows only a part.
    pictures : key -> image bytes of findings and of `Verdict.data`'s pairs and examples (see evidence.wanted).
    facts : label, split, path of the findings' keys.
    """

    dataset: str
    version: str
    content_id: str
    created: float
    title: str = ""
    summary: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    batches: tuple[BatchCounts, ...] = ()
    quarantine: Grid | None = None
    balance: tuple[ClassBalance, ...] = ()
    suspected: Grid | None = None
    hard: Grid | None = None
    control: Grid | None = None
    drifted: Grid | None = None
    reference: Grid | None = None
    curves: tuple[Curve, ...] = ()
    arms: tuple[Arm, ...] = ()
    arms_note: str = ""
    steps: tuple[StepTimes, ...] = ()
    decision: Decision | None = None
    gate: Gate | None = None
    lineage: Lineage | None = None
    commands: tuple[Command, ...] = ()
    findings_at: str = ""
    kind: str = "version"
    pictures: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    facts: Facts = field(default_factory=Facts, repr=False)
    changes: Changes | None = None
