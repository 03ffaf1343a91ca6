"""How many labels are wrong, which, and how: a noise model fitted to out-of-sample probabilities.

The question. A prediction that differs from the label is either the model's error or the label's. Confident learning
(Northcutt et al. 2021) counts only confident disagreements; "argmax differs" counts all. The first cuts too early for a
good model, the second too late for a weak one. So the two causes are fitted instead.

The model. Let p[i, j] be the model's probability that sample i is of class j, never trained on its label. The true
class is drawn from the *recalibrated* prediction and the label is drawn from the true class:

    true_i ~ softmax(beta * log p[i])        label_i ~ M[true_i],  M[j, k] = P(label k | true class j)

beta (one over a temperature: label smoothing and short training leave models unsure) and M (class-conditional noise, as
in Dawid and Skene 1979 with one annotator and Patrini et al. 2017 "forward") are found by expectation-maximisation: the
expectation is r[i, j] = P(true_i = j | p_i, label_i); M is its weighted counts, the off-diagonal shrunk towards even by
a prior of weight 2; beta takes a Newton step. What identifies them is how disagreement depends on confidence: a
calibrated model's own errors thin out where it is sure, wrong labels do not.

First, though, what the model has learnt of the noise is taken out. A network trained on labels of which 30 % of the
trucks say car predicts trucks as .7 truck, .3 car: it is calibrated for the labels given, and no label would surprise
it. So p is multiplied by the inverse of A, A[j, k] = the share of label k among the surest twentieth of the samples
predicted as j (the anchor points of Liu and Tao 2016 and Patrini et al. 2017, counted by labels and therefore blind to
temperature), less half a standard error, so that clean labels leave p as it is.

P(label_i wrong) = 1 - r[i, label_i]. The estimated number of errors is their sum.

The cut. People err most where the model errs too, on ambiguous pictures, and a noise that depends on the picture is
under-counted by any model in which it depends on the class alone. So the interval reaches farther up than down, and the
suspects named are as many as lie a third of the way from the estimate to its upper end.

The interval adds three squares: sampling of the data (a jackknife over 10 groups of ids), the draw of the labels given
the fit, sum r (1 - r), and the fit's own form, which is measured, not derived (FORM_ERROR, and FORM_ERROR_ABOVE: on
CIFAR-10 with real human labels the estimate was 4.3 % where 9.0 % were wrong, a quarter of the disagreements).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

FORM_ERROR = 0.1
"""Standard error per disagreement that comes from the model's form; measured, see above."""
FORM_ERROR_ABOVE = 0.15
"""The same towards more errors: noise that goes with the picture is under-counted."""
MOST_FITTED = 100_000
"""Samples that the noise model is fitted on; more change nothing but the time it takes."""
PER_CLASS = 20
"""Labels per class below which the noise is not measurable."""
SUREST = 0.05
"""Share of the samples of a predicted class that serve as its anchor points."""
CAUTION = 0.5
"""Standard errors by which the noise among them is believed to be lower than seen."""
_FEWEST = 30
_PRIOR = 2.0
_GROUPS = 10
_BLOCK = 1 << 18
_TINY = 1e-9


@dataclass(frozen=True)
class LabelNoise:
    """What is known about n labels of k classes.

    wrong : float64 [n], P(label wrong).
    score : float64 [n], its log-odds, unsaturated: what suspects are ranked by.
    suggestion : int64 [n], the class that is likeliest if the label is wrong.
    errors, low, high : the estimated number of wrong labels, with its 95 % interval.
    disagreements : how many predictions differ from their label.
    suspects : int64, the rows above the cut, the worst first.
    noise : float64 [k, k], P(label given | true class); rows are the true classes and sum to 1.
    counts : float64 [k, k], the expected number of labels behind it.
    measurable : false below 20 labels a class, and when the model is `weak`. Then the interval is [0, n] and nobody is
        suspected.
    """

    wrong: np.ndarray
    score: np.ndarray
    suggestion: np.ndarray
    errors: float
    low: float
    high: float
    disagreements: int
    suspects: np.ndarray
    noise: np.ndarray
    counts: np.ndarray
    measurable: bool

    @property
    def n(self) -> int:
        """How many labels were judged."""
        return len(self.wrong)

    @property
    def weak(self) -> bool:
        """Whether the model disagrees with most labels: too poor to accuse any."""
        return self.disagreements > self.n / 2

    def __str__(self) -> str:
        if self.weak:
            agrees = 1 - self.disagreements / self.n
            return f"not measurable: the model agrees with only {agrees:.0%} of the labels, too weak to accuse any"
        if not self.measurable:
            return f"not measurable on {self.n} labels ({PER_CLASS} per class are needed)"
        share = f"{self.errors / self.n:.1%} (95 % interval {self.low / self.n:.1%} to {self.high / self.n:.1%})"
        return f"about {self.errors:.0f} of {self.n} labels are wrong, {share}"


@dataclass(frozen=True)
class _Fit:
    beta: float
    noise: np.ndarray  # [k, k], rows sum to 1
    undo: np.ndarray  # [k, k], takes out of probabilities what the model has learnt of the noise


# ---- scores: high is suspect


def self_confidence(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """1 - p(label): float [n, k], int [n] -> float [n] in 0..1."""
    return 1.0 - probs[np.arange(len(labels)), labels]


def normalised_margin(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(1 + largest other probability - p(label)) / 2: float [n] in 0..1; above 1/2 the prediction differs."""
    rows = np.arange(len(labels))
    own = probs[rows, labels]
    others = probs.copy()
    others[rows, labels] = -np.inf
    return (1.0 + others.max(1) - own) / 2


def confidence_weighted_entropy(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Entropy / log k divided by p(label), squashed to 0..1 (Kuan and Mueller 2022): float [n]."""
    p = np.maximum(probs, _TINY)
    entropy = -(p * np.log(p)).sum(1) / np.log(max(probs.shape[1], 2))
    ratio = entropy / p[np.arange(len(labels)), labels]
    return ratio / (1.0 + ratio)


def posterior(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log-odds that the label is wrong under the fitted noise model; the default."""
    return estimate_label_noise(probs, labels).score


SCORES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "posterior": posterior,
    "self_confidence": self_confidence,
    "normalised_margin": normalised_margin,
    "confidence_weighted_entropy": confidence_weighted_entropy,
}
"""Rankings by name, the default first: float [n, k] probabilities, int [n] labels -> float [n], high is suspect."""


# ---- the fit


def estimate_label_noise(
    probs: np.ndarray, labels: np.ndarray, *, most_fitted: int = MOST_FITTED, seed: int = 0
) -> LabelNoise:
    """Fit the noise model of this module.

    Parameters
    ----------
    probs : float [n, k], out-of-sample class probabilities.
    labels : int [n], index of the label under suspicion.
    most_fitted : the model is fitted on so many at most, a random part.
    seed : of the groups of the jackknife, and of that part.
    """
    n, k = probs.shape
    if n == 0:
        nothing, none = np.zeros(0), np.zeros(0, np.int64)
        return LabelNoise(nothing, nothing, none, 0.0, 0.0, 0.0, 0, none, np.eye(k), np.zeros((k, k)), False)
    rng = np.random.default_rng(seed)
    part = rng.choice(n, most_fitted, replace=False) if n > most_fitted else np.arange(n)
    given = labels[part]
    undo = np.linalg.inv(anchors(probs[part], given))
    log_p = _logs(probs[part], undo)
    fit = _fit(log_p, given, _Fit(1.0, _even(k), undo), 300)
    wrong, score, suggestion, counts = _judge(probs, labels, fit)
    disagreements = sum(int((probs[b].argmax(1) != labels[b]).sum()) for b in _blocks(n))
    errors = float(wrong.sum())
    if n < PER_CLASS * k or disagreements > n / 2:
        return LabelNoise(
            wrong, score, suggestion, errors, 0.0, float(n), disagreements, np.zeros(0, int), fit.noise, counts, False
        )
    scale = n / len(part)
    sampling = scale**2 * _jackknife(log_p, given, fit, rng.integers(0, _GROUPS, len(part)))
    sampling += float((wrong * (1 - wrong)).sum())
    below, above = (1.96 * (sampling + (form * disagreements) ** 2) ** 0.5 for form in (FORM_ERROR, FORM_ERROR_ABOVE))
    order = np.argsort(-score, kind="stable")
    low, high = max(errors - below, 0.0), min(errors + above, float(n))
    suspects = order[: min(round(errors + (high - errors) / 3), disagreements)]
    return LabelNoise(wrong, score, suggestion, errors, low, high, disagreements, suspects, fit.noise, counts, True)


def anchors(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """float64 [k, k], rows sum to 1: the labels that the surest samples of each predicted class have, cautiously.

    Off the diagonal stands the lower end of Wilson's interval at CAUTION standard errors; classes predicted fewer than
    30 times count as clean. Rows that would leave less than .55 on the diagonal are shrunk to it, so that the matrix
    can be inverted.
    """
    predicted, k = probs.argmax(1), probs.shape[1]
    found = np.eye(k)
    for j in range(k):
        rows = np.flatnonzero(predicted == j)
        if len(rows) < _FEWEST:
            continue
        size = max(_FEWEST, round(SUREST * len(rows)))
        surest = rows[np.argsort(-probs[rows, j], kind="stable")[:size]]
        share = np.bincount(labels[surest], minlength=k) / size
        z = CAUTION
        low = share + z * z / (2 * size) - z * np.sqrt(share * (1 - share) / size + z * z / (4 * size**2))
        low /= 1 + z * z / size
        low = np.maximum(low, 0.0)
        low[j] = 0.0
        low *= min(1.0, 0.45 / max(low.sum(), _TINY))
        low[j] = 1.0 - low.sum()
        found[j] = low
    return found


def _judge(probs: np.ndarray, labels: np.ndarray, fit: _Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(P(wrong), log-odds, suggestion, expected counts [k, k]) of every sample, block by block."""
    n, k = probs.shape
    wrong, score, suggestion = np.empty(n), np.empty(n), np.empty(n, np.int64)
    counts = np.zeros((k, k))
    for block in _blocks(n):
        given = labels[block]
        rows = np.arange(len(given))
        joint = _softmax(fit.beta * _logs(probs[block], fit.undo)) * fit.noise[:, given].T
        total = joint.sum(1)
        post = joint / total[:, None]
        np.add.at(counts.T, given, post)
        right = joint[rows, given]
        joint[rows, given] = 0.0
        other = joint.sum(1)
        suggestion[block] = joint.argmax(1)
        wrong[block] = other / total
        score[block] = np.log(np.maximum(other, 1e-300)) - np.log(np.maximum(right, 1e-300))
    return wrong, score, suggestion, counts


def _even(classes: int) -> np.ndarray:
    """Where the fit begins: 5 % of each class wrong, evenly over the others."""
    return _with_diagonal(np.ones((classes, classes)), np.full(classes, 0.05))


def _fit(log_p: np.ndarray, labels: np.ndarray, start: _Fit, steps: int) -> _Fit:
    n, classes = log_p.shape
    beta, noise = start.beta, start.noise
    given = np.zeros((n, classes))
    given[np.arange(n), labels] = 1.0
    before = np.inf
    for _ in range(steps):
        q = _softmax(beta * log_p)
        post = q * noise[:, labels].T
        post /= post.sum(axis=1, keepdims=True)
        count = post.T @ given
        kept = np.diag(count).copy()
        np.fill_diagonal(count, 0.0)
        lost = count.sum(axis=1)
        noise = _with_diagonal(count + _PRIOR / max(classes - 1, 1), lost / np.maximum(kept + lost, 1e-9))
        mean = (q * log_p).sum(axis=1)
        slope = ((post * log_p).sum(axis=1) - mean).sum()
        curve = ((q * log_p**2).sum(axis=1) - mean**2).sum()
        beta = float(np.clip(np.clip(beta + slope / max(curve, 1e-9), beta / 2, beta * 2), 0.1, 10.0))
        if abs(lost.sum() - before) < 1e-3:
            break
        before = lost.sum()
    return _Fit(beta, noise, start.undo)


def _with_diagonal(off: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Rows whose off-diagonal parts sum to `rates`, in the proportions of `off`, and whose diagonal is the rest."""
    noise = off.copy()
    np.fill_diagonal(noise, 0.0)
    rates = np.clip(rates, 1e-6, 1 - 1e-6) if len(noise) > 1 else np.zeros(len(noise))
    noise *= (rates / np.maximum(noise.sum(axis=1), 1e-300))[:, None]
    np.fill_diagonal(noise, 1.0 - rates)
    return noise


def _jackknife(log_p: np.ndarray, labels: np.ndarray, fit: _Fit, group: np.ndarray) -> float:
    """Variance of the number of errors by leaving out one group at a time (grouped jackknife, Efron and Stein 1981)."""
    n = len(labels)
    values = []
    for g in range(_GROUPS):
        keep = np.flatnonzero(group != g)
        if 0 < len(keep) < n:
            part = _fit(log_p[keep], labels[keep], fit, 20)
            joint = _softmax(part.beta * log_p[keep]) * part.noise[:, labels[keep]].T
            right = joint[np.arange(len(keep)), labels[keep]] / joint.sum(axis=1)
            values.append(n * float((1 - right).mean()))
    if len(values) < 2:
        return float(n) ** 2
    deviations = np.asarray(values) - np.mean(values)
    return float((len(values) - 1) / len(values) * (deviations**2).sum())


def _logs(probs: np.ndarray, undo: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities of the true class: float [n, k] times the inverse of the anchors, not below 0."""
    p = np.maximum(probs.astype(np.float64), _TINY)
    p = np.maximum(p @ undo, 1e-4 * p)
    return np.log(p / p.sum(axis=1, keepdims=True))


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
