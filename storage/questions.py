"""Named example queries: what people ask of a lake, as SQL to run, read and change."""

from __future__ import annotations

from dataclasses import dataclass

from sevenfold.storage.errors import SevenfoldError


@dataclass(frozen=True)
class Question:
    """A named query: its name, the question in words, and one SELECT over the views."""

    name: str
    question: str
    sql: str


def question(name: str) -> Question:
    """The question of this name. Raises SevenfoldError naming those that there are."""
    for q in QUESTIONS:
        if q.name == name:
            return q
    names = ", ".join(q.name for q in QUESTIONS)
    raise SevenfoldError(f"there is no example {name!r}", expected=f"one of: {names}")


QUESTIONS = (
    Question(
        "class-balance",
        "How many samples of each class does every version hold, and what share is that?",
        """
SELECT dataset, version, label, count(*) AS samples,
       round(count(*) / sum(count(*)) OVER (PARTITION BY dataset, version), 3) AS share
FROM samples_all
GROUP BY dataset, version, label
ORDER BY dataset, version, samples DESC, label NULLS LAST""",
    ),
    Question(
        "what-changed",
        "What did this version change, compared with the one it was built on?",
        """
WITH pair AS (SELECT dataset, version AS new, parents[1] AS old FROM this_version),
     a AS (SELECT s.* FROM samples_all s JOIN pair p ON s.dataset = p.dataset AND s.version = p.old),
     b AS (SELECT s.* FROM samples_all s JOIN pair p ON s.dataset = p.dataset AND s.version = p.new)
SELECT CASE WHEN a.id IS NULL THEN 'added' WHEN b.id IS NULL THEN 'removed'
            WHEN a.label IS DISTINCT FROM b.label THEN 'relabelled'
            WHEN a.split <> b.split THEN 'moved' ELSE 'reweighted' END AS change,
       a.label AS label_before, b.label AS label_after, count(*) AS samples
FROM a FULL JOIN b ON a.id = b.id
WHERE a.id IS NULL OR b.id IS NULL OR a.label IS DISTINCT FROM b.label
   OR a.split <> b.split OR a.weight <> b.weight
GROUP BY ALL
ORDER BY change, samples DESC, label_before, label_after""",
    ),
    Question(
        "top-hard",
        "Which training samples does the model, which never saw them, find hardest?",
        """
SELECT id, label, predicted, round(loss, 3) AS loss, path
FROM scored
WHERE split = 'train' AND loss IS NOT NULL
ORDER BY scored.loss DESC, id
LIMIT 10""",
    ),
    Question(
        "suspected-label-errors",
        "Which classes does the model confuse with which, and how sure is it?",
        """
SELECT label, predicted, count(*) AS samples, round(avg(confidence), 3) AS confidence,
       arg_max(id, confidence) AS surest
FROM scored
WHERE label <> predicted
GROUP BY ALL
ORDER BY samples DESC, label, predicted""",
    ),
    Question(
        "duplicates",
        "Which images are the same pixels in different files, and do they agree on split and label?",
        """
SELECT count(*) AS copies, list(DISTINCT split ORDER BY split) AS splits,
       list(DISTINCT label ORDER BY label) AS labels, list(path ORDER BY path) AS paths
FROM samples
GROUP BY pixel_digest
HAVING count(*) > 1
ORDER BY copies DESC, paths""",
    ),
    Question(
        "leaks",
        "Which images of the test split look the same (equal perceptual hash) as one that is trained on?",
        """
SELECT t.path AS trained_on, x.path AS tested_on, t.label AS train_label, x.label AS test_label
FROM samples t JOIN samples x ON t.phash = x.phash
WHERE t.split = 'train' AND x.split = 'test'
ORDER BY trained_on, tested_on""",
    ),
    Question(
        "label-noise",
        "Per annotator: how many labels did they give, how many are new, and how often does the model agree?",
        """
WITH given AS (
    SELECT o.reviewer, o.id, o.label AS given, l.label AS landed
    FROM overlays o JOIN (SELECT id, any_value(label) AS label FROM landed GROUP BY id) l ON l.id = o.id
    WHERE o.label IS NOT NULL
)
SELECT reviewer, count(*) AS labels, count(*) FILTER (landed <> given) AS changed,
       round(avg((p.predicted = given)::INT), 3) AS model_agrees
FROM given LEFT JOIN scored p ON p.id = given.id
GROUP BY ALL
ORDER BY reviewer""",
    ),
    Question(
        "disagreements",
        "Where do two annotators give one sample different labels?",
        """
SELECT a.id, a.reviewer AS one, a.label AS says, b.reviewer AS other, b.label AS says_other
FROM reviews a JOIN reviews b ON a.id = b.id AND a.reviewer < b.reviewer
WHERE a.label <> b.label
ORDER BY a.id, one, other""",
    ),
    Question(
        "drift",
        "Is a new batch darker or brighter than the ones before? A histogram of brightness per batch.",
        """
SELECT batch, floor(brightness * 10) / 10 AS brightness_from, count(*) AS samples,
       bar(count(*), 0, 20, 20) AS histogram
FROM scored
GROUP BY ALL
ORDER BY batch, brightness_from""",
    ),
    Question(
        "freshness",
        "How old was the data when it became part of a version, and what still waits?",
        """
SELECT dataset, batch, status, make_timestamp((landed * 1e6)::BIGINT) AS landed_utc,
       round((admitted - landed) / 3600, 2) AS hours_to_admit, round((committed - landed) / 3600, 2) AS hours_to_commit
FROM batches
ORDER BY landed, dataset, batch""",
    ),
    Question(
        "loader-idle",
        "Per training run: what share of its time did it wait for data?",
        """
SELECT run_id, r.dataset, count(*) AS steps, round(sum(total), 2) AS seconds,
       round(sum(data) / sum(total), 3) AS waiting, round(sum(samples) / sum(total)) AS images_per_second
FROM steps JOIN runs r USING (run_id)
GROUP BY ALL
ORDER BY waiting DESC, run_id""",
    ),
    Question(
        "failing-checks",
        "Which checks fail or warn now, what is the remedy, and how many samples do they name?",
        """
SELECT dataset, subject, "check", result, round(statistic, 3) AS statistic, len(findings) AS findings, remedy
FROM verdicts
QUALIFY row_number() OVER (PARTITION BY dataset, subject, "check" ORDER BY "at" DESC) = 1
    AND result IN ('fail', 'warn')
ORDER BY dataset, subject, "check", result""",
    ),
    Question(
        "quarantine",
        "Why were inputs set aside, in which batch, and what does one look like?",
        """
SELECT dataset, batch, reason, count(*) AS inputs, min(path) AS example
FROM quarantine
GROUP BY ALL
ORDER BY inputs DESC, dataset, batch, reason""",
    ),
    Question(
        "queue-progress",
        "How far is each review queue: asked, decided, left?",
        """
SELECT q.dataset, q.queue, count(*) AS asked, count(r.id) AS decided, count(*) - count(r.id) AS remaining
FROM queues q LEFT JOIN (SELECT DISTINCT dataset, id FROM reviews) r ON r.dataset = q.dataset AND r.id = q.id
GROUP BY ALL
ORDER BY q.dataset, q.queue""",
    ),
    Question(
        "lineage",
        "Which runs trained on which version?",
        """
SELECT v.dataset, v.version, v.message, count(r.run_id) AS runs,
       list(r.run_id ORDER BY r.run_id) FILTER (r.run_id IS NOT NULL) AS run_ids
FROM versions v LEFT JOIN runs r ON r.content_id = v.content_id
GROUP BY ALL
ORDER BY v.dataset, v.version""",
    ),
)
"""Every question that `sevenfold query --examples` lists; docs/queries.md shows each with an answer."""
