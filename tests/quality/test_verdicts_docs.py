"""docs/verdicts.md has a row for every built-in check, and the policy's keys with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sevenfold.quality import built_in
from sevenfold.quality.catalogue import CHECKS
from sevenfold.quality.policy import Policy
from sevenfold.quality.verdict import VS

TEXT = (Path(__file__).parents[2] / "docs/verdicts.md").read_text(encoding="utf-8")
SECTIONS = {s.partition(":")[0].lower(): s for s in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}


def test_every_check_has_a_row_in_the_section_of_its_v_and_nothing_else_has() -> None:
    assert list(SECTIONS) == list(VS)
    rows = [f"{v}.{name}" for v, text in SECTIONS.items() for name in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)]
    assert len(rows) == len(set(rows))
    assert set(rows) == set(CHECKS)
    assert {c.key for c in built_in()} <= set(rows)


def test_the_page_says_which_subjects_a_check_is_for() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| ([bv ]+)", TEXT, re.MULTILINE))
    for check in built_in():
        assert ("version" in check.kinds) >= ("v" in told[check.name].split())
        assert ("batch" in check.kinds) >= ("b" in told[check.name].split())


@pytest.mark.parametrize("v", VS)
def test_every_key_of_the_policy_is_told_with_its_default(v: str) -> None:
    defaults = {key: _plain(value) for key, value in getattr(Policy(), v)}
    told = dict(re.findall(r"`(\w+)` \(([^):]*)[):]", SECTIONS[v]))
    assert told == defaults


def _plain(value: object) -> str:
    return "null" if value is None else "[]" if value == () else str(value)
