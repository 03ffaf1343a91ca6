"""Several people label the same samples: how far they agree, who errs how, and what the label most likely is.

Everything is a function of three int arrays of one length m, one entry per answer: `items`, `annotators`, `labels`.

- Agreement: the share of pairs of answers about one item that are equal, and Krippendorff's alpha (nominal data), which
  sets it against chance: 1 is perfect, 0 what random answers of the same frequencies give. Items may have any number of
  answers; those with one count for nothing. The interval is a bootstrap over items.
- Dawid and Skene (1979): an annotator a answers l to a sample of class c with probability confusion[a, c, l]. That, the
  classes' shares and the true classes are found by expectation-maximisation. An annotator with few answers is drawn
  towards the pooled confusion by a Dirichlet prior, so that nobody is condemned by three answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.intervals import wilson

PRIOR = 4.0
"""Weight of the pooled confusion in each row of an annotator's, in answers."""
MOST_ITEMS = 200_000
"""Items that the confusions are fitted on; more change nothing but the time it takes."""
_BOOTSTRAP = 1000
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Answers:
    """A table of answers as numbers: int64 [m] each, with what the numbers stand for."""

    items: np.ndarray
    annotators: np.ndarray
    labels: np.ndarray
    ids: pa.Array
    names: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Agreement:
    """`alpha` with its interval, the share of equal `pairs`, float64 [n] `per_item` (nan below two answers), counts."""

    alpha: float
    interval: tuple[float, float]
    pairs: float
    per_item: np.ndarray
    items: int
    answers: int


@dataclass(frozen=True)
class DawidSkene:
    """The fitted model.

    shares : float64 [k], of the classes.
    confusion : float64 [a, k, k], P(annotator answers l | class c) at [a, c, l]; rows sum to 1.
    posterior : float64 [n, k], P(class | answers) of each item.
    objective : the log-likelihood plus log-prior after each step; it never falls.
    converged : whether the last step gained less than the tolerance.
    """

    shares: np.ndarray
    confusion: np.ndarray
    posterior: np.ndarray
    objective: tuple[float, ...]
    converged: bool


@dataclass(frozen=True)
class Skill:
    """How often an annotator gives the label that the *others'* answers make likely: `right` of `answers`."""

    name: str
    answers: int
    right: float
    interval: tuple[float, float]
    far: bool


def read_answers(table: pa.Table, classes: Sequence[str] = ()) -> Answers:
    """Columns id, annotator, label as numbers; rows with a null are left out.

    The classes are those given, in their order, and then whatever else occurs, sorted.
    """
    whole = pc.and_(pc.and_(pc.is_valid(table["id"]), pc.is_valid(table["annotator"])), pc.is_valid(table["label"]))
    table = table.filter(whole)
    ids, items = _numbered(table["id"])
    names, annotators = _numbered(pc.cast(table["annotator"], pa.string()))
    found, labels = _numbered(pc.cast(table["label"], pa.string()))
    known = list(classes) + sorted(set(found.to_pylist()) - set(classes))
    place = {name: i for i, name in enumerate(known)}
    translate = np.array([place[name] for name in found.to_pylist()], dtype=np.int64)
    return Answers(
        items, annotators, translate[labels] if len(labels) else labels, ids, tuple(names.to_pylist()), tuple(known)
    )


def agreement(items: np.ndarray, labels: np.ndarray, n: int, *, confidence: float = 0.95, seed: int = 0) -> Agreement:
    """Krippendorff's alpha for nominal answers (Krippendorff 2011), with a percentile bootstrap over items.

    alpha = 1 - observed / expected disagreement, where an item with m answers, m_c of them c, disagrees by
    (m^2 - sum m_c^2) / (m - 1), and the expectation pairs all N answers: (N^2 - sum N_c^2) / (N - 1).
    Items with the same counts are interchangeable, so a bootstrap draw is one multinomial over the distinct patterns of
    counts: its cost does not grow with the items. When all answers are equal alpha is 1 by convention.
    """
    k = int(labels.max()) + 1 if len(labels) else 1
    m = np.bincount(items, minlength=n)
    cells, counts = np.unique(items.astype(np.int64) * k + labels, return_counts=True)
    of_item, of_class = cells // k, cells % k
    squares = np.bincount(of_item, weights=counts.astype(np.float64) ** 2, minlength=n)
    paired = m >= 2
    per_item = np.full(n, np.nan)
    per_item[paired] = (squares[paired] - m[paired]) / (m[paired] * (m[paired] - 1.0))
    if not paired.any():
        return Agreement(1.0, (-1.0, 1.0), 1.0, per_item, 0, 0)
    # each (class, count) has a random 64-bit word; their sums name the pattern of an item
    words = np.random.default_rng(seed).integers(0, 2**64, k, dtype=np.uint64)
    starts = np.flatnonzero(np.r_[True, np.diff(of_item) > 0])
    name = np.zeros(n, np.uint64)
    name[of_item[starts]] = np.add.reduceat(words[of_class] * counts.astype(np.uint64), starts)
    rows = np.flatnonzero(paired)
    _, first, size = np.unique(name[rows], return_index=True, return_counts=True)
    chosen = rows[first]
    table = np.zeros((len(chosen), k))
    at = np.full(n, -1)
    at[chosen] = np.arange(len(chosen))
    held = at[of_item] >= 0
    table[at[of_item[held]], of_class[held]] = counts[held]
    observed = (m[chosen] ** 2.0 - squares[chosen]) / (m[chosen] - 1.0)

    def alpha(weights: np.ndarray) -> np.ndarray:
        per_class = weights @ table
        total = per_class.sum(-1)
        expected = (total**2 - (per_class**2).sum(-1)) / (total - 1)
        return 1 - np.divide(weights @ observed, expected, out=np.zeros_like(expected), where=expected > 0)

    drawn = np.random.default_rng(seed + 1).multinomial(len(rows), size / len(rows), _BOOTSTRAP).astype(np.float64)
    value = float(alpha(size.astype(np.float64)))
    low, high = np.quantile(alpha(drawn), [0.5 - confidence / 2, 0.5 + confidence / 2])
    pairs = m[rows] * (m[rows] - 1.0)
    return Agreement(
        value,
        (min(float(low), value), max(float(high), value)),
        float((per_item[rows] * pairs).sum() / pairs.sum()),
        per_item,
        len(rows),
        int(m[rows].sum()),
    )


def dawid_skene(
    items: np.ndarray,
    annotators: np.ndarray,
    labels: np.ndarray,
    n: int,
    *,
    number_of_annotators: int,
    k: int,
    steps: int = 200,
    tolerance: float = 1e-7,
    most_items: int = MOST_ITEMS,
    seed: int = 0,
) -> DawidSkene:
    """Fit the model, starting from the majority of each item's answers.

    `tolerance` is the gain per answer below which it has converged. On more than `most_items` items the confusions are
    fitted on a random part of them (seeded), and the posterior is that of all.
    """
    shape = (number_of_annotators, k)
    votes = _posterior_from(np.ones(len(items)), items, labels, n, k)
    if n > most_items:
        keep = np.zeros(n, bool)
        keep[np.random.default_rng(seed).choice(n, most_items, replace=False)] = True
        renumber, part = np.cumsum(keep) - 1, keep[items]
        fitted = _maximise(renumber[items[part]], annotators[part], labels[part], votes[keep], shape, steps, tolerance)
    else:
        fitted = _maximise(items, annotators, labels, votes, shape, steps, tolerance)
    shares, confusion, objective, converged = fitted
    posterior, _ = _expect(items, annotators, labels, n, shares, confusion)
    return DawidSkene(shares, confusion, posterior, tuple(objective), converged)


def skills(answers: Answers, model: DawidSkene, *, margin: float, confidence: float = 0.95) -> list[Skill]:
    """Each annotator against the label that the answers of the others make likely, the worst first.

    The annotator's own answer is divided out of the posterior. `far` from the rest: the upper end of the interval
    (Wilson's, at a level shared among all annotators, Bonferroni) lies more than `margin` below the rest's mean.
    """
    total = np.zeros(len(answers.names))
    log_confusion = np.log(model.confusion)
    log_posterior = np.log(np.maximum(model.posterior, 1e-300))
    for start in range(0, len(answers.items), _BLOCK):
        part = slice(start, start + _BLOCK)
        a, label = answers.annotators[part], answers.labels[part]
        others = log_posterior[answers.items[part]] - log_confusion[a, :, label]
        others = np.exp(others - others.max(1, keepdims=True))
        right = others[np.arange(len(a)), label] / others.sum(1)
        total += np.bincount(a, weights=right, minlength=len(total))
    size = np.bincount(answers.annotators, minlength=len(total))
    each = 1 - (1 - confidence) / max(len(total), 1)
    found = []
    for who, name in enumerate(answers.names):
        rest = (total.sum() - total[who]) / max(size.sum() - size[who], 1)
        low, high = _wilson_of(total[who], int(size[who]), each)
        found.append(
            Skill(name, int(size[who]), float(total[who] / size[who]), (low, high), bool(high < rest - margin))
        )
    return sorted(found, key=lambda s: (not s.far, s.right, s.name))


def _numbered(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """(distinct values in order of first appearance, int64 number of each row)."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def _wilson_of(right: float, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's interval of an expected count: between those of the whole numbers around it."""
    down, part = int(right), right - int(right)
    low, high = np.array(wilson(down, n, confidence)), np.array(wilson(min(down + 1, n), n, confidence))
    ends = low + part * (high - low)
    return float(ends[0]), float(ends[1])


def _posterior_from(weights: np.ndarray, items: np.ndarray, labels: np.ndarray, n: int, k: int) -> np.ndarray:
    votes = np.bincount(items * k + labels, weights=weights, minlength=n * k).reshape(n, k)
    return votes / np.maximum(votes.sum(1, keepdims=True), 1)


def _maximise(
    items: np.ndarray,
    annotators: np.ndarray,
    labels: np.ndarray,
    posterior: np.ndarray,
    shape: tuple[int, int],
    steps: int,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, list[float], bool]:
    """Expectation-maximisation from a first posterior float64 [n, k]: shares, confusion, objective, converged."""
    size, k = shape
    n = len(posterior)
    pooled = np.stack([np.bincount(labels, weights=posterior[items, c], minlength=k) for c in range(k)]) + 1.0 / k
    prior = PRIOR * pooled / pooled.sum(1, keepdims=True)
    cell = annotators * k + labels
    objective: list[float] = []
    while True:
        counts = np.stack([np.bincount(cell, weights=posterior[items, c], minlength=size * k) for c in range(k)])
        confusion = counts.reshape(k, size, k).transpose(1, 0, 2) + prior
        confusion /= confusion.sum(2, keepdims=True)
        shares = posterior.sum(0) + 1.0
        shares /= shares.sum()
        posterior, likelihood = _expect(items, annotators, labels, n, shares, confusion)
        objective.append(likelihood + float((prior * np.log(confusion)).sum() + np.log(shares).sum()))
        if len(objective) > 1 and objective[-1] - objective[-2] < tolerance * max(len(items), 1):
            return shares, confusion, objective, True
        if len(objective) >= steps:
            return shares, confusion, objective, False


def _expect(
    items: np.ndarray, annotators: np.ndarray, labels: np.ndarray, n: int, shares: np.ndarray, confusion: np.ndarray
) -> tuple[np.ndarray, float]:
    """(posterior float64 [n, k], log-likelihood of the answers)."""
    logs = np.log(confusion)
    joint = np.stack([np.bincount(items, weights=logs[annotators, c, labels], minlength=n) for c in range(len(shares))])
    joint = joint.T + np.log(shares)
    top = joint.max(1, keepdims=True, initial=-np.inf)
    joint = np.exp(joint - top)
    total = joint.sum(1, keepdims=True)
    return joint / total, float((np.log(total) + top).sum())
