from sevenfold.quality import validity
from sevenfold.quality.policy import Policy

LIMITS = Policy().validity


def test_rejects_above_the_limit_block_and_list_their_paths(rows, quarantine, record) -> None:
    good, bad = rows(98), quarantine(truncated=1, not_an_image=1)
    v = validity.rejected_share(bad, record(good, bad), subject="b1", policy=LIMITS)
    assert (v.result, v.blocking, v.statistic, v.n) == ("fail", True, 0.02, 100)
    assert set(v.findings) == {"truncated/0.png", "not_an_image/0.png"}
    assert v.interval[0] < 0.02 < v.interval[1]


def test_rejects_at_the_limit_pass(rows, quarantine, record) -> None:
    good, bad = rows(99), quarantine(truncated=1)
    assert validity.rejected_share(bad, record(good, bad), subject="b1", policy=LIMITS).result == "pass"


def test_an_input_that_is_neither_sample_nor_quarantined_fails(rows, quarantine, record) -> None:
    good, bad = rows(10), quarantine(truncated=2)
    fine = record(good, bad)
    assert validity.reconciled(good, bad, fine, subject="b1").result == "pass"
    lost = record(good, bad, counts=fine["counts"] | {"inputs": 13})
    v = validity.reconciled(good, bad, lost, subject="b1")
    assert (v.result, v.blocking, v.statistic) == ("fail", True, 1.0) and "1 inputs are unaccounted for" in v.message
    v = validity.reconciled(good.slice(1), bad, fine, subject="b1")
    assert v.result == "fail" and "the table has 9" in v.message


def test_clean_rows_break_no_rule(rows, classes) -> None:
    v = validity.invalid_share(rows(), subject="b1", policy=LIMITS, classes=classes)
    assert (v.result, v.statistic, v.findings) == ("pass", 0.0, ())


def test_each_rule_finds_its_sample(rows, classes) -> None:
    n = 9
    ids = [f"id{i}" for i in range(n)]
    ids[8] = "id7"
    table = rows(
        n,
        id=ids,
        width=[0, *[28] * 8],
        height=[28, None, *[28] * 7],
        label=["boot", "boot", "hat", None, None, *["coat"] * 4],
        split=["train", "train", "train", "train", "pool", "tset", "train", "train", "train"],
        ext=["png"] * 6 + ["jpg", "png", "png"],
    )
    found = {rule: mask.nonzero()[0].tolist() for rule, mask in validity.broken_rules(table, classes).items()}
    assert found == {
        "width missing or zero": [0],
        "height missing or zero": [1],
        "label not among the classes": [2],
        "no label outside the pool": [3],
        "unknown split": [5],
        "extension contradicts the format": [6],
        "id occurs twice": [7, 8],
    }
    v = validity.invalid_share(table, subject="b1", policy=LIMITS, classes=classes)
    assert v.result == "fail" and v.blocking and set(v.findings) == {"id0", "id1", "id2", "id3", "id5", "id6", "id7"}


def test_one_bad_test_sample_fails_however_small_its_share(rows) -> None:
    n = 5000
    train = rows(n, split=["train"] * n, width=[0] + [28] * (n - 1))
    assert validity.invalid_share(train, subject="b1", policy=LIMITS).result == "warn"
    test = rows(n, split=["test"] + ["train"] * (n - 1), width=[0] + [28] * (n - 1))
    assert validity.invalid_share(test, subject="b1", policy=LIMITS).result == "fail"


def test_no_rows_is_not_measurable(rows) -> None:
    assert validity.invalid_share(rows(0), subject="b1", policy=LIMITS).result == "not_measurable"
