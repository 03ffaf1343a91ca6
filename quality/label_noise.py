"""How many labels are wrong? An estimate with an interval from out-of-fold probabilities, and which ones come first.

A prediction that differs from its label is the model's error or the label's. Where the model is surest its own errors
are rare, so there the difference is mostly the labels' (the anchor points of Liu and Tao 2016, Patrini et al. 2017).
For each predicted class, take the surest tenth of the predictions and measure how many differ from their label:

- estimate: the median over the predicted classes, so that a few hard classes (shirt or coat?) do not count as noise;
- low end: the lower quartile over classes, what even the best separated classes show;
- high end: the mean over classes weighted by their predictions, which charges all of it to the labels.

Each end is moved out to its 2.5 % (97.5 %) quantile under binomial resampling.

Measured. Fashion-MNIST (10,000 images, MLPs right on 82 % and 80 %, 0, 5, 10 and 20 % uniform noise): the interval held
the truth in all 8 settings; the estimate was 1.0, 6.1, 12.0, 25.9 % and 2.3, 6.7, 11.9, 22.5 %. CIFAR-10 with the human
labels (20,000 images, 9.3 % wrong, a network right on 66 %): 6.9 % (1.7 to 12.2). Confident learning's count charges
confident model errors to the labels: 10.8 and 13.4 % on clean Fashion-MNIST. Errors that people make on ambiguous
images are under-counted here, since the surest tenth has few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SUREST = 0.1
_FEWEST = 30
_DRAWS = 1000


@dataclass(frozen=True)
class LabelNoise:
    """The share of wrong labels with its interval, the share of predictions that differ, and classes measured."""

    share: float
    interval: tuple[float, float]
    differs: float
    classes: int


def margins(probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """p(label) minus the largest other probability: float [n, k], int [n] -> float [n] in -1..1; low is suspect."""
    rows = np.arange(len(labels))
    own = probs[rows, labels]
    others = probs.copy()
    others[rows, labels] = -np.inf
    return own - others.max(1)


def estimate_label_noise(probs: np.ndarray, labels: np.ndarray) -> LabelNoise | None:
    """The estimate above from float [n, k] out-of-sample probabilities and int [n] labels; None when too few.

    A predicted class counts when it has 30 predictions or more; more than half of the classes that have labels must.
    """
    predicted, sure = probs.argmax(1), probs.max(1)
    wrong = predicted != labels
    sizes, hits, weights = [], [], []
    for j in range(probs.shape[1]):
        rows = np.flatnonzero(predicted == j)
        if len(rows) < _FEWEST:
            continue
        top = rows[np.argsort(-sure[rows], kind="stable")[: max(_FEWEST, round(SUREST * len(rows)))]]
        sizes.append(len(top))
        hits.append(int(wrong[top].sum()))
        weights.append(len(rows))
    if len(sizes) < 2 or 2 * len(sizes) <= len(np.unique(labels)):
        return None
    k, m, w = np.array(hits), np.array(sizes), np.array(weights) / np.sum(weights)
    rng = np.random.default_rng(20160411)
    drawn = rng.binomial(m, (k + 0.5) / (m + 1), (_DRAWS, len(m))) / m
    share = float(np.median(k / m))
    low = min(float(np.quantile(np.quantile(drawn, 0.25, axis=1), 0.025)), share)
    high = max(float(np.quantile(drawn @ w, 0.975)), share)
    return LabelNoise(share, (low, high), float(wrong.mean()), len(sizes))


def suspects(probs: np.ndarray, labels: np.ndarray, share: float) -> np.ndarray:
    """The rows most likely mislabelled, worst first: the share n lowest margins among predictions that differ."""
    margin = margins(probs, labels)
    order = np.argsort(margin, kind="stable")[: round(share * len(labels))]
    return order[margin[order] < 0]
