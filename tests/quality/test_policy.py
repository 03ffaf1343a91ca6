import re
from datetime import date
from pathlib import Path

import pytest

from sevenfold.quality import policy as policy_module
from sevenfold.quality.policy import Policy, default_policy_yaml, load_policy
from sevenfold.quality.scorecard import exit_code
from sevenfold.quality.suppressions import apply_suppressions, is_suppressed
from sevenfold.quality.verdict import VS, Verdict, blocks
from sevenfold.storage.errors import SevenfoldError


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def test_the_default_file_is_the_default_policy(tmp_path: Path) -> None:
    assert load_policy(write(tmp_path, default_policy_yaml())) == Policy() == load_policy(None)
    assert load_policy(write(tmp_path, "")) == Policy()


def test_every_v_has_a_section_and_every_threshold_a_comment() -> None:
    text = default_policy_yaml()
    assert all(f"\n{v}:  # " in text for v in VS)
    assert all("  # " in line for line in text.splitlines() if line.startswith("  "))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("valdity: {}", "did you mean 'validity'"),
        ("validity: {max_reject_share: 0.1}", "did you mean 'max_rejected_share'"),
        ("suppressions: [{chek: variety.balance}]", "did you mean 'check'"),
        ("variety: {min_slice: -1}", "variety.min_slice is -1"),
        ("variety: [", "not YAML"),
        ("variety: {min_slice: 3}\nvariety: {min_slice: 5}", "'variety' is there twice, in lines 1 and 2"),
        ("validity: {max_rejected_share: yes}", "a truth value is no limit"),
        ("a: &a [*a]", "unknown key 'a'"),
        ("- a", "Input should be a valid dictionary"),
        ("disable: validity.suite", "valid list"),
        ("suppressions: [{check: balance, reviewer: a, until: 2030-01-01, reason: r}]", "suppressions.0.check"),
    ],
)
def test_a_wrong_file_says_what_and_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SevenfoldError) as caught:
        load_policy(path)
    assert said in str(caught.value) and str(path) in str(caught.value)


def test_limits_of_a_built_in_check_are_not_taken_where_nobody_reads_them(tmp_path: Path) -> None:
    path = write(tmp_path, "checks: {variety.balance: {min_balance: 0.5}}")
    with pytest.raises(SevenfoldError, match="in the section variety"):
        load_policy(path, names={"variety.balance"})


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(SevenfoldError, match="no such file"):
        load_policy(tmp_path / "none.yaml")


def suppressing(until: str, **more: str) -> Policy:
    entry = {"check": "validity.suite", "reviewer": "ada", "until": until, "reason": "known", **more}
    return Policy.model_validate({"suppressions": [entry]})


FAILED = Verdict("validity", "suite", "b1", "fail", blocking=True, message="Two rules broke.")


def test_a_suppression_softens_names_its_reviewer_and_stops_blocking() -> None:
    (out,) = apply_suppressions([FAILED], suppressing("2026-05-01"), today=date(2026, 5, 1))
    assert (out.result, out.blocking, is_suppressed(out)) == ("warn", False, True)
    assert "ada" in out.message and "known" in out.message and "was a fail" in out.message
    assert not blocks([out]) and exit_code([out], strict=True) == 0


def test_an_expired_suppression_is_ignored_and_says_so() -> None:
    (out,) = apply_suppressions([FAILED], suppressing("2026-04-30"), today=date(2026, 5, 1))
    assert (out.result, out.blocking) == ("fail", True)
    assert "expired on 2026-04-30" in out.message and blocks([out])


def test_a_suppression_of_another_subject_or_a_pass_changes_nothing() -> None:
    other = suppressing("2030-01-01", subject="b2")
    fine = Verdict("validity", "suite", "b1", "pass")
    assert apply_suppressions([FAILED], other, today=date(2026, 5, 1)) == [FAILED]
    assert apply_suppressions([fine], suppressing("2030-01-01"), today=date(2026, 5, 1)) == [fine]


def accepting(*keys: str, until: str = "2030-01-01") -> Policy:
    entry = {"check": "validity.suite", "reviewer": "ada", "until": until, "reason": "looked at"}
    return Policy.model_validate({"suppressions": [{**entry, "key": key} for key in keys]})


TWO = Verdict("validity", "suite", "b1", "fail", blocking=True, message="M.", findings=("a", "b"), notes=("na", "nb"))


def test_one_accepted_finding_leaves_the_others() -> None:
    (out,) = apply_suppressions([TWO], accepting("a"), today=date(2026, 5, 1))
    assert (out.result, out.blocking, out.findings, out.notes) == ("fail", True, ("b",), ("nb",))
    assert "1 finding is accepted by ada until 2030-01-01 (looked at)" in out.message


def test_when_every_finding_is_accepted_the_verdict_is_softened() -> None:
    (out,) = apply_suppressions([TWO], accepting("a", "b"), today=date(2026, 5, 1))
    assert (out.result, out.blocking, is_suppressed(out), out.findings) == ("warn", False, True, ())


def test_an_expired_acceptance_says_so_and_one_of_another_finding_does_nothing() -> None:
    (out,) = apply_suppressions([TWO], accepting("a", until="2026-04-30"), today=date(2026, 5, 1))
    assert (out.result, out.findings) == ("fail", ("a", "b"))
    assert "suppression of a by ada expired on 2026-04-30" in out.message
    assert apply_suppressions([TWO], accepting("z"), today=date(2026, 5, 1)) == [TWO]


def test_every_threshold_is_read_by_something() -> None:
    """A key that no code reads is a promise that nothing keeps."""
    room = Path(policy_module.__file__).parent
    code = [p.read_text() for p in room.glob("*.py") if p.name != "policy.py"]
    for v in VS:
        section = getattr(Policy(), v)
        mine = [text for text in code if re.search(rf"\bpolicy\.{v}\b|\b{v.capitalize()}\b", text)]
        unread = [key for key in type(section).model_fields if not any(re.search(rf"\.{key}\b", x) for x in mine)]
        assert not unread, f"nothing reads {v}: {', '.join(unread)}"
