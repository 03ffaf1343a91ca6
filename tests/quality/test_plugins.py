"""Your own checks: the example of docs/checks.md, installed as a distribution of its own; and what breaks others."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sevenfold
from sevenfold.quality.checks import MOST_DATA, judge
from sevenfold.quality.context import Check, Context
from sevenfold.quality.policy import Policy, load_policy
from sevenfold.quality.verdict import Verdict, to_table
from sevenfold.storage.errors import SevenfoldError

DOCS = Path(__file__).parents[2] / "docs/checks.md"

RUN = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from sevenfold.quality.checks import judge, names, registered
from sevenfold.quality.context import Context
from sevenfold.quality.policy import load_policy
n = 200
rows = pa.table({"id": [f"{i:064x}" for i in range(n)], "label": ["a", "b"] * (n // 2), "split": ["train"] * n,
    "path": [f"{i}.png" for i in range(n)], "pixel_digest": [f"{i}" for i in range(n)],
    "width": pa.array([9] * n, pa.int32()), "height": pa.array([9] * n, pa.int32()), "mode": ["L"] * n,
    "channels": pa.array([1] * n, pa.int32()), "phash": pa.array(range(n), pa.int64()), "bytes": [9] * n})
properties = pa.table({"id": rows["id"], "brightness": np.linspace(0, 1, n)})
policy = load_policy(sys.argv[1], names=names())
checks = [c for c in registered()[0] if c.key not in ("validity.suite",)]
own = [c for c in checks if c.key.startswith("variety.dark")]
context = Context("b", "version", rows, properties, 0.0, policy=policy)
broken = [b.verdict("b") for b in registered()[1]]
told = [*broken, *judge(context, checks=own)]
print(json.dumps([[f"{v.v}.{v.check}", v.result, v.message, len(v.findings)] for v in told]))
"""


def distribution(site: Path, name: str, entries: str, **modules: str) -> None:
    """An installed package as pip leaves it: modules and a .dist-info with entry points."""
    info = site / (name.replace("-", "_") + "-1.0.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sevenfold.checks]\n{entries}\n")
    for module, code in modules.items():
        (site / f"{module}.py").write_text(code)


def run(site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    where = Path(sevenfold.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(where), str(site)]), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *map(str, words)], env=environment, cwd=site, capture_output=True, text=True, timeout=120
    )


def example() -> tuple[str, str]:
    """(the module, its entry points) as docs/checks.md shows them."""
    text = DOCS.read_text()
    module = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    toml = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    import tomllib

    entries = tomllib.loads(toml)["project"]["entry-points"]["sevenfold.checks"]
    return module, "\n".join(f"{name} = {value}" for name, value in entries.items())


def test_the_documented_check_runs_from_a_package_of_its_own_beside_broken_ones(tmp_path: Path) -> None:
    site = tmp_path / "site"
    module, entries = example()
    distribution(site, "darkness", entries, darkness=module)
    distribution(site, "bad-import", "veracity.lost = not_there:check")
    entries = "three = oddity:THREE\nvariety.balance = oddity:double"
    distribution(site, "bad-kind", entries, oddity="THREE = 3\ndouble = print\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text("checks: {variety.dark_share: {limit: 0.01}}\n")
    (tmp_path / "run.py").write_text(RUN)
    done = run(site, tmp_path / "run.py", policy)
    assert done.returncode == 0, done.stderr
    found = {name: (result, message, n) for name, result, message, n in json.loads(done.stdout)}
    assert set(found) == {"variety.dark_share", "veracity.lost", "validity.three", "variety.balance"}
    assert found["variety.dark_share"][0] == "warn" and found["variety.dark_share"][2] == 20
    assert found["veracity.lost"][0] == "crashed" and "bad-import 1.0" in found["veracity.lost"][1]
    assert "ModuleNotFoundError" in found["veracity.lost"][1]
    assert "it is a int" in found["validity.three"][1]
    assert "there is a check variety.balance already" in found["variety.balance"][1]


def leaves(context: Context) -> Verdict:
    sys.exit(0)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (lambda c: None, "TypeError"),
        (lambda c: ["fine"], "it answered with a str, not with a Verdict"),
        (lambda c: Verdict("variety", "mine", c.subject, "good"), "result is 'good'"),
        (leaves, "SystemExit"),
    ],
)
def test_whatever_a_check_does_the_others_go_on(rows, properties, answers, said: str) -> None:
    table = rows(3)
    context = Context("b", "batch", table, properties(table), 0.0)
    fine = Check("variety", "fine", lambda c: Verdict("variety", "fine", c.subject, "pass"))
    found = judge(context, checks=[Check("variety", "mine", answers), fine])
    assert [v.result for v in found] == ["crashed", "pass"] and said in found[0].message


def test_a_disabled_check_is_not_run_but_shown(rows, properties) -> None:
    table = rows(3)
    policy = Policy.model_validate({"disable": ["variety.mine", "variety.second"]})
    context = Context("b", "batch", table, properties(table), 0.0, policy=policy)
    both = Check("variety", "first", lambda c: [Verdict("variety", n, c.subject, "fail") for n in ("first", "second")])
    found = judge(context, checks=[Check("variety", "mine", leaves), both])
    assert [(v.check, v.result) for v in found] == [
        ("mine", "not_measurable"), ("first", "fail"), ("second", "not_measurable"),
    ]  # fmt: skip
    assert "Disabled" in found[0].message


def test_parameters_that_a_check_does_not_have_are_refused() -> None:
    policy = Policy.model_validate({"checks": {"variety.dark_share": {"limt": 0.1}}})
    with pytest.raises(SevenfoldError, match="did you mean 'limit'"):
        policy.parameters("variety.dark_share", limit=0.05, darkness=0.1)
    assert policy.parameters("variety.other", limit=0.05) == {"limit": 0.05}
    kind = Policy.model_validate({"checks": {"variety.dark_share": {"limit": "much"}}})
    with pytest.raises(SevenfoldError, match="expected: float"):
        kind.parameters("variety.dark_share", limit=0.05)
    whole = Policy.model_validate({"checks": {"variety.dark_share": {"limit": 1}}})
    assert whole.parameters("variety.dark_share", limit=0.05) == {"limit": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disable: [variety.balanse]", "did you mean 'variety.balance'"),
        ("checks: {variety.dark: {}}", "there is no check 'variety.dark'"),
        ("suppressions: [{check: variety.balanc, reviewer: a, until: 2030-01-01, reason: r}]", "variety.balance"),
    ],
)
def test_a_check_that_nobody_knows_is_an_error_that_names_the_nearest(tmp_path: Path, text: str, said: str) -> None:
    from sevenfold.quality.checks import built_in

    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(SevenfoldError) as caught:
        load_policy(path, names={c.key for c in built_in()})
    assert said in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": {"bars": object()}}, "not JSON serializable"),
        ({"data": {"series": float("nan")}}, "not JSON compliant"),
        ({"message": "half a \ud800character"}, "surrogates not allowed"),
        ({"subject": "another"}, "it answered about 'another'"),
        ({"check": "balance"}, "variety.balance, which comes with Sevenfold"),
    ],
)
def test_an_answer_that_cannot_be_kept_is_a_crash_of_its_check_alone(rows, properties, given, said: str) -> None:
    table = rows(3)
    context = Context("b", "batch", table, properties(table), 0.0)
    answer = {"v": "variety", "check": "mine", "subject": "b", "result": "fail"} | given
    fine = Check("variety", "fine", lambda c: Verdict("variety", "fine", c.subject, "pass"))
    found = judge(context, checks=[Check("variety", "mine", lambda c: Verdict(**answer)), fine])
    assert [(v.check, v.result) for v in found] == [("mine", "crashed"), ("fine", "pass")]
    assert said in found[0].message
    assert to_table(found).num_rows == 2


def test_too_much_data_for_plots_is_left_out_and_said(rows, properties) -> None:
    table = rows(3)
    large = Verdict("variety", "mine", "b", "fail", findings=("a",), data={"x": "y" * (MOST_DATA + 1)})
    (found,) = judge(
        Context("b", "batch", table, properties(table), 0.0), checks=[Check("variety", "mine", lambda c: large)]
    )
    assert (found.result, found.data, found.findings) == ("fail", {}, ("a",)) and "plots are left out" in found.message


def test_a_name_that_no_policy_can_write_is_refused() -> None:
    with pytest.raises(ValueError, match="lower-case"):
        Check("variety", "Dark-Share", leaves)
