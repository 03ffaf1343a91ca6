"""Mining: which samples a person should look at next, as queue tables made from out-of-sample judgements.

Three queues: labels that look wrong, unlabelled samples that look hard, and unlabelled samples at random (the control).
All are pure functions of tables and a seed. Rules that hold for each of them (the design's invariants 7 and 8):
the `test` split is never mined; a prediction made by a model that was trained on the sample's label is never used;
every row carries its inclusion probability; the first two hold a random control share.

Rows come in the order of `rank`. The two sampled queues are ranked by hash, not by score: whoever reviews only the
first k of n rows still has a sample, of inclusion probabilities k/n times those stated. Sort by `score` to see the
hardest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.index import QUEUE
from sevenfold.training import draw


def suspected_labels(
    judged: pa.Table,
    cut: int,
    samples: pa.Table,
    *,
    content_id: str,
    producer: str,
    limit: int | None = None,
    random_share: float = 0.1,
    seed: int = 0,
) -> pa.Table:
    """The labels that look wrong, likeliest first, up to a cut; who judged them is not this module's business.

    Rows of kind `suspected_label` (inclusion probability 1, with their `suggestion`; `score` is P(label wrong)) are
    followed by a control of kind `random`: `random_share` times as many, at least one, drawn evenly from the labels
    *not* suspected (no suggestion), so that what the ranking misses can be measured.

    Parameters
    ----------
    judged : id, label, suggestion, wrong (P(label wrong)), score (to rank by): one row per judged label, all of them.
    cut : how many are suspected: those of highest score, ties by id.
    samples : the version's samples (id, split, label): what is judged must be a current label outside test and pool.
    limit : at most so many suspected rows (the review budget).

    Raises
    ------
    SevenfoldError : a test or pool sample, a label that is not the current one, or an id twice among the judged.
    """
    _must_be_minable(judged, samples)
    judged = judged.sort_by("id")
    ids, wrong = judged["id"].to_pylist(), judged["wrong"].to_numpy()
    order = np.argsort(-judged["score"].to_numpy(), kind="stable")[: max(cut, 0)]
    chosen = order if limit is None else order[: max(limit, 0)]
    others = np.setdiff1d(np.arange(len(ids)), order)
    size = min(len(others), max(1, round(random_share * len(chosen)))) if random_share > 0 else 0
    control = others[draw.uniform([ids[i] for i in others], size, seed, "suspected control")]
    rows = np.concatenate([chosen, control])
    n = pa.array([content_id] * len(rows), pa.string())
    return _queue(
        judged.take(pa.array(rows)).append_column("content_id", n),
        kind=["suspected_label"] * len(chosen) + ["random"] * len(control),
        score=wrong[rows],
        probability=np.r_[np.ones(len(chosen)), np.full(len(control), size / max(len(others), 1))],
        suggestion=[judged["suggestion"][int(i)].as_py() for i in chosen] + [None] * len(control),
        producer=producer,
    )


def hard_queue(
    predictions: pa.Table,
    samples: pa.Table,
    size: int,
    *,
    producer: str,
    exclude_ids: Collection[str] = (),
    seed: int = 0,
    random_share: float = 0.1,
    balance: float = 0.5,
    sharpness: float = 2.0,
) -> pa.Table:
    """`size` unlabelled pool samples, the uncertain ones likelier, each with its exact probability of being chosen.

    1. Uncertainty u = 1 - margin (top two probabilities).
    2. Diversity: each predicted class gets a quota, proportional to m^(1 - balance), m being how many of the `size`
       most uncertain samples it has. balance 0: as they fall; 1: even over the classes; no quota above what is there.
    3. Within a class h is proportional to rank^-sharpness, rank 1 being the most uncertain, capped at 1 ("softrank",
       Kirsch et al. 2023: a sample beats the top, which is redundant). Ranks, unlike probabilities, do not depend on
       how sure label smoothing lets a model be.
    4. The inclusion probability mixes both aims, as in defensive importance sampling (Hesterberg 1995):
       pi = random_share * size/N + (1 - random_share) * h, never below random_share * size/N: weights stay bounded.
    5. One systematic draw, in order of predicted class and hash, takes exactly `size` rows with exactly these pi.
    6. Of these, a row is named control (kind `random`) with probability (random_share * size/N) / pi: over both steps
       every pool sample becomes a control with the same probability random_share * size/N, a fair sample of the pool.

    `inclusion_probability` is pi, of being in this queue as either kind. N counts the pool samples that were scored and
    are not in `exclude_ids`. When N <= size, all are taken with probability 1. No suggestion is given: a reviewer who
    sees the model's guess follows it.

    Raises
    ------
    SevenfoldError : a pool sample's prediction is in-sample, an id occurs twice, or a share is outside [0, 1].
    """
    for name, share in (("random_share", random_share), ("balance", balance)):
        if not 0.0 <= share <= 1.0:
            raise SevenfoldError(f"{share} is not a share", where=name, expected="a number from 0 to 1")
    rows = _pool(predictions, samples, exclude_ids)
    ids, count = rows["id"].to_pylist(), rows.num_rows
    if count == 0 or size <= 0:
        return QUEUE.empty_table()
    size = min(size, count)
    uncertainty = 1.0 - rows["margin"].to_numpy()
    hashed = draw.keys(ids, seed, "hard")
    _, group = np.unique(np.asarray(rows["predicted"].to_pylist(), dtype=str), return_inverse=True)
    hardest = np.lexsort((hashed, -uncertainty))
    members = np.bincount(group)
    quota = draw.capped(np.bincount(group[hardest[:size]], minlength=len(members)) ** (1.0 - balance), size, members)
    h = np.zeros(count)
    for g, share in enumerate(quota):
        inside = hardest[group[hardest] == g]
        h[inside] = draw.capped(np.arange(1.0, len(inside) + 1) ** -sharpness, share)
    even = random_share * size / count
    pi = even + (1.0 - random_share) * h
    chosen = draw.systematic(pi, np.lexsort((hashed, group)), draw.start(seed, "hard"))
    chosen = chosen[np.argsort(draw.keys([ids[i] for i in chosen], seed, "order"))]
    named = draw.systematic(even / pi[chosen], np.arange(len(chosen)), draw.start(seed, "control"))
    kind = np.full(len(chosen), "hard", dtype=object)
    kind[named] = "random"
    return _queue(
        rows.take(pa.array(chosen)),
        kind=kind.tolist(),
        score=uncertainty[chosen],
        probability=np.minimum(pi[chosen], 1.0),
        producer=producer,
    )


def random_queue(
    predictions: pa.Table,
    samples: pa.Table,
    size: int,
    *,
    producer: str,
    exclude_ids: Collection[str] = (),
    seed: int = 0,
) -> pa.Table:
    """The control arm: `size` samples drawn evenly from the same N that :func:`hard_queue` draws from.

    Inclusion probability size/N; `score` is the same uncertainty, for comparison only.
    """
    rows = _pool(predictions, samples, exclude_ids)
    chosen = draw.uniform(rows["id"].to_pylist(), size, seed, "random queue")
    return _queue(
        rows.take(pa.array(chosen)),
        kind=["random"] * len(chosen),
        score=1.0 - rows["margin"].to_numpy()[chosen],
        probability=np.full(len(chosen), len(chosen) / max(rows.num_rows, 1)),
        producer=producer,
    )


def _must_be_minable(judged: pa.Table, samples: pa.Table) -> None:
    place = pc.index_in(judged["id"], value_set=samples["id"].combine_chunks()).combine_chunks()
    split, label = (samples[c].combine_chunks().take(place) for c in ("split", "label"))
    for split_name, why in (("test", "promotion tests are never mined"), ("pool", "the pool has no labels to suspect")):
        if pc.any(pc.equal(split, split_name)).as_py():
            raise SevenfoldError(why, where=f"split {split_name}", expected="labels of train and/or val")
    current = pc.fill_null(pc.equal(label, judged["label"].combine_chunks()), False)
    if not pc.all(current, min_count=0).as_py():
        at = pc.index(current, False).as_py()
        raise SevenfoldError(
            f"{judged['id'][at].as_py()} was judged under another label than its current one",
            where="judged labels",
            expected="current labels of this version",
            do="judge the labels of this version again",
        )
    if pc.count_distinct(judged["id"]).as_py() != judged.num_rows:
        raise SevenfoldError("an id is judged several times", where="judged labels", expected="one row per id")


def _pool(predictions: pa.Table, samples: pa.Table, exclude_ids: Collection[str]) -> pa.Table:
    excluded = set(exclude_ids)
    pool = {
        i
        for i, split, label in zip(
            samples["id"].to_pylist(), samples["split"].to_pylist(), samples["label"].to_pylist(), strict=True
        )
        if split == "pool" and label is None and i not in excluded
    }
    rows = predictions.filter(pa.array([i in pool for i in predictions["id"].to_pylist()], pa.bool_()))
    inside = int(_in_sample(rows).sum())
    if inside:
        raise _refuse_in_sample(inside, "pool")
    return _unique(rows)


def _in_sample(rows: pa.Table) -> np.ndarray:
    return rows["in_sample"].to_numpy().astype(bool)


def _refuse_in_sample(count: int, what: str) -> SevenfoldError:
    return SevenfoldError(
        f"{count} {what} samples have nothing but in-sample predictions: the model was trained on them",
        where="predictions",
        expected="in_sample = false",
        do="score out of fold (`sevenfold score`), then mine that run",
    )


def _unique(rows: pa.Table) -> pa.Table:
    ids = rows["id"].to_pylist()
    if len(set(ids)) != len(ids):
        twice = sorted(i for i in set(ids) if ids.count(i) > 1)[:1] if len(ids) < 10_000 else []
        raise SevenfoldError(
            "an id has several out-of-sample predictions" + "".join(f" (for one, {i})" for i in twice),
            where="predictions",
            expected="one row per id",
            do="pass the predictions of one run",
        )
    return rows.sort_by("id")


def _queue(
    rows: pa.Table,
    *,
    kind: list[str],
    score: np.ndarray,
    probability: np.ndarray,
    producer: str,
    suggestion: Sequence[str | None] | None = None,
) -> pa.Table:
    return pa.table(
        {
            "id": rows["id"],
            "kind": pa.array(kind, pa.string()),
            "rank": pa.array(range(1, rows.num_rows + 1), pa.int32()),
            "score": pa.array(score, pa.float64()),
            "inclusion_probability": pa.array(probability, pa.float64()),
            "label": rows["label"],
            "suggestion": pa.array(suggestion or [None] * rows.num_rows, pa.string()),
            "content_id": rows["content_id"],
            "producer": pa.array([producer] * rows.num_rows, pa.string()),
        },
        schema=QUEUE,
    )
