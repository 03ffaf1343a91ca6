import io
import math

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.quality.verdict import RESULTS, SCHEMA, VS, Verdict, blocks, from_table, to_table
from sevenfold.storage.errors import SevenfoldError

numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(min_size=1, max_size=10)
verdicts = st.builds(
    Verdict,
    v=st.sampled_from(VS),
    check=words,
    subject=words,
    result=st.sampled_from(RESULTS),
    blocking=st.booleans(),
    statistic=st.none() | numbers,
    statistic_name=st.text(max_size=5),
    interval=st.none() | st.tuples(numbers, numbers).map(lambda t: (min(t), max(t))),
    n=st.integers(0, 2**40),
    effect=st.none() | numbers,
    p=st.none() | numbers,
    thresholds=st.dictionaries(words, numbers, max_size=3),
    reference=st.none() | words,
    message=st.text(max_size=20),
    remedy=st.text(max_size=20),
    findings=st.lists(words, max_size=5).map(tuple),
)


@given(st.lists(verdicts, max_size=4))
def test_verdicts_survive_parquet(some: list[Verdict]) -> None:
    buffer = io.BytesIO()
    pq.write_table(to_table(some, at=12.5), buffer)
    table = pq.read_table(buffer)
    assert table.schema.equals(SCHEMA)
    assert from_table(table) == some
    assert set(table["at"].to_pylist()) <= {12.5}


@pytest.mark.parametrize(
    "wrong",
    [{"v": "veritas"}, {"result": "ok"}, {"statistic": math.nan}, {"p": math.inf}, {"interval": (2, 1)}, {"check": ""}],
)
def test_a_verdict_that_makes_no_sense_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError):
        Verdict(**({"v": "value", "check": "c", "subject": "v1", "result": "pass"} | wrong))


def test_only_a_blocking_failure_blocks() -> None:
    def one(result: str, blocking: bool) -> Verdict:
        return Verdict("validity", "c", "b1", result, blocking)

    assert blocks([one("pass", True), one("fail", True)])
    assert not blocks([one("fail", False), one("warn", True), one("not_measurable", True)])


def test_a_table_without_a_column_says_which() -> None:
    with pytest.raises(SevenfoldError, match="no column findings"):
        from_table(to_table([]).drop_columns(["findings"]))
