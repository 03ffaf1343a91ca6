"""The policy file: every threshold of the seven Vs and every suppression, validated, with defaults that work."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from sevenfold.quality.verdict import VS
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLITS


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any) -> Any:
        if isinstance(value, bool):  # YAML's `yes` would be the limit 1
            raise ValueError("a truth value is no limit")
        return value


class Validity(_Section):
    """Does it obey its declared form? (Schema, null and range rules live in the Great Expectations suite.)"""

    max_rejected_share: float = Field(0.01, ge=0, le=1, description="share of a batch's inputs in quarantine")
    max_invalid_share: float = Field(
        0.001, ge=0, le=1, description="share of the admitted samples that break a rule; any in a test split fails"
    )
    max_null_rise: float = Field(
        0.05, ge=0, le=1, description="warn when a metadata column's share of nulls rose by more than this"
    )
    max_unknown_share: float = Field(
        0.001, ge=0, le=1, description="warn when more of a metadata column are categories the reference lacks"
    )
    range_margin: float = Field(
        0.5, ge=0, description="numbers this share of the reference's range beyond its ends are far outside"
    )
    max_damaged_captions: float = Field(
        0.001, ge=0, le=1, description="warn when more captions are empty, or show damaged characters"
    )


class Variety(_Section):
    """Does it cover the world it claims?"""

    max_fall: float = Field(
        0.05, ge=0, le=1, description="warn when the effective number of classes fell by more than this share"
    )
    min_balance: float = Field(0.1, ge=0, le=1, description="warn when rarest / commonest class is below this")
    max_duplicate_share: float = Field(
        0.01, ge=0, le=1, description="warn when more samples than this repeat another's pixels"
    )
    max_near_duplicate_share: float = Field(
        0.02, ge=0, le=1, description="warn when more samples than this nearly repeat another of their split"
    )
    min_slice: int = Field(385, ge=1, description="samples in each class x split; 385 tells a share within 5 points")
    max_repeated_captions: float = Field(
        0.05, ge=0, le=1, description="warn when more captions are said of another sample too"
    )
    required_splits: tuple[str, ...] = Field(
        (), description="splits where a slice below min_slice fails; elsewhere it warns"
    )
    required_slices: tuple[str, ...] = Field(
        (), description="single slices that fail below min_slice: test/coat, or of a column test/weather=snow"
    )
    slice_columns: tuple[str, ...] = Field(
        (), description="columns of your own that form slices; none named: those of 2 to 20 different values"
    )
    min_embedded: int = Field(200, ge=20, description="samples with embeddings needed on both sides")
    embedding_budget: int = Field(10_000, ge=100, description="of them compared at the most, chosen by id hash")
    max_vendi_fall: float = Field(
        0.1, ge=0, le=1, description="warn when the Vendi score fell by more than this share, and not by chance"
    )
    max_lost_clusters: float = Field(
        0.05, ge=0, le=1, description="warn when more of the reference's clusters than this share are not reached"
    )
    foreign_alpha: float = Field(
        0.001, gt=0, lt=0.5, description="a sample farther out than all but this share of the reference is foreign"
    )
    max_foreign_share: float = Field(0.01, ge=0, le=1, description="warn when more of the new samples are foreign")
    odd_alpha: float = Field(
        0.0003, gt=0, lt=0.05, description="a value farther out than all but this share is odd (light, size, shape)"
    )
    max_odd_share: float = Field(0.005, ge=0, le=1, description="warn when more of the images than this are odd")

    @field_validator("required_splits", "required_slices")
    @classmethod
    def _of_splits(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for value in values:
            split, slash, rest = value.partition("/")
            if split not in SPLITS:
                near = difflib.get_close_matches(split, SPLITS, n=1)
                raise ValueError(
                    f"{split!r} is no split, only {', '.join(SPLITS)} are"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                )
            if info.field_name == "required_slices" and not (slash and rest):
                raise ValueError(f"{value!r} is no slice; write test/coat, or test/weather=snow")
        return values


class Veracity(_Section):
    """Can its labels be trusted?"""

    warn_error_share: float = Field(
        0.05, ge=0, le=1, description="warn when the upper bound of the label error share exceeds this"
    )
    fail_error_share: float = Field(0.15, ge=0, le=1, description="fail when that upper bound exceeds this")
    min_n: int = Field(500, ge=1, description="out-of-fold predictions needed to estimate label errors")
    min_alpha: float = Field(
        0.667, ge=-1, le=1, description="warn when annotators agree surely less than this (Krippendorff's alpha)"
    )
    max_annotator_gap: float = Field(
        0.1,
        ge=0,
        le=1,
        description="warn when an annotator is surely less often right than the rest by more than this",
    )
    min_consensus: float = Field(
        0.7, ge=0, le=1, description="samples are named whose annotators make no label this likely"
    )
    min_answered: int = Field(50, ge=1, description="samples with several answers needed to judge annotators")
    min_twin_score: float = Field(
        0.9, gt=0, lt=1, description="pictures that agree this well once aligned are twins (0..1, calibrated)"
    )
    max_hash_bits: int = Field(3, ge=0, le=6, description="where there are no pixels: hashes this close are candidates")


class Value(_Section):
    """What does each sample or batch contribute?"""

    min_pairs: int = Field(2, ge=2, description="paired seeds needed to judge a gain")
    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")
    neighbours: int = Field(10, ge=1, description="of the nearest-neighbour classifier that kNN-Shapley values are for")
    min_train: int = Field(200, ge=2, description="labelled training samples with a vector needed to value them")
    min_points: int = Field(100, ge=2, description="labelled val samples with a vector needed to value others by")
    max_points: int = Field(500, ge=2, description="of those at most, chosen by id hash: time grows with it")
    sample_budget: int = Field(100_000, ge=100, description="training samples valued at most, chosen by id hash")
    max_negative_share: float = Field(
        0.35,
        ge=0,
        le=1,
        description="warn when surely more of the training samples than this are worth less than nothing",
    )
    max_never_learned: float = Field(
        0.2, ge=0, le=1, description="warn when surely more of the training samples than this were never learned"
    )


class Volume(_Section):
    """Is there enough?"""

    test_split: str = Field("test", description="the split that accuracy is told on")
    max_half_width: float = Field(
        0.1, gt=0, lt=1, description="fail when a class's test accuracy cannot be told within this"
    )
    min_sizes: int = Field(5, ge=4, description="training sizes a learning curve needs")
    min_seeds: int = Field(2, ge=1, description="runs at each size a learning curve needs")
    target_error: float | None = Field(None, gt=0, lt=1, description="the error to plan for (null: no target)")
    max_samples: int | None = Field(None, ge=1, description="the label budget; warn when the target needs more")
    saturation_per_doubling: float = Field(
        0.2, ge=0, lt=1, description="the chance a forecast allows for that a doubling of the data brings no more"
    )
    min_coverage: float = Field(
        0.9, gt=0, lt=1, description="warn when fewer past forecasts than this can have held what really happened"
    )


class Volatility(_Section):
    """Is it still true? (Never blocking: a drifted batch is what the loop is for.)"""

    alpha: float = Field(
        0.05, gt=0, lt=1, description="false-alarm rate of one check, over all its variables (family-wise)"
    )
    min_n: int = Field(50, ge=20, description="samples needed on both sides; below it: not measurable")
    sample_budget: int = Field(2000, ge=50, description="samples compared on each side, chosen by id hash")
    embedding_budget: int = Field(1000, ge=50, description="of embeddings, whose tests cost the square of it")
    warn_effect: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="smallest effect beyond chance worth a warning (KS distance, Cohen's w, 2 AUC - 1)",
    )
    fail_effect: float = Field(0.25, gt=0, lt=1, description="effect that fails")
    warn_mmd: float = Field(
        0.03, gt=0, lt=1, description="the same for MMD: root of the share of the kernel's spread between the sides"
    )
    fail_mmd: float = Field(0.1, gt=0, lt=1, description="MMD effect that fails")
    warn_label_change: float = Field(
        0.02, gt=0, lt=1, description="warn when surely more of the common samples changed their label"
    )
    fail_label_change: float = Field(0.1, gt=0, lt=1, description="share of changed labels that fails")
    warn_accuracy_fall: float = Field(
        0.03, gt=0, lt=1, description="fall of accuracy on the newest samples worth a warning, when it is no chance"
    )
    fail_accuracy_fall: float = Field(0.1, gt=0, lt=1, description="fall of accuracy that fails")


class Velocity(_Section):
    """Does it arrive, and reach training, in time?"""

    min_ingest_rate: float = Field(20.0, ge=0, description="inputs per second")
    min_check_rate: float = Field(20.0, ge=0, description="samples per second through the admission checks")
    min_shard_rate: float = Field(20.0, ge=0, description="samples per second into shards")
    min_inputs: int = Field(100, ge=1, description="inputs needed to judge a rate: starting up takes a while")
    window_seconds: float = Field(86400.0, gt=0, description="arrivals are counted in windows of this length")
    min_windows: int = Field(8, ge=3, description="full windows, and batches, that control limits need")
    max_utilisation: float = Field(0.9, gt=0, description="share of the time that work on arriving batches may take")
    max_lead_seconds: float = Field(
        1209600.0, gt=0, description="from landing to the first model trained on the batch (p95 over batches)"
    )
    max_review_seconds: float = Field(1209600.0, gt=0, description="age of a review queue that nobody answered")
    max_freshness_seconds: float = Field(604800.0, gt=0, description="landed minus newest input (p95 over batches)")
    max_backlog_batches: int = Field(10, ge=0, description="batches landed but not committed or rejected")
    max_backlog_age_seconds: float = Field(604800.0, gt=0, description="age of the oldest of them")
    max_idle_share: float = Field(0.3, ge=0, le=1, description="share of training time spent waiting for the loader")
    min_steps: int = Field(20, ge=2, description="steps needed to judge the idle share")


CheckName = Annotated[str, Field(pattern=rf"^({'|'.join(VS)})\.[a-z0-9_]+$")]
"""`V.check`, such as variety.balance; that there is such a check is verified when a policy file is loaded."""


class Suppression(_Section):
    """A known finding that a person has accepted until a date: a fail becomes a warning and blocks nothing."""

    check: CheckName = Field(description="V.check, such as variety.balance")
    subject: str | None = Field(None, description="one batch or version; null: all")
    key: str | None = Field(None, description="one finding (a sample id, a path, slice:test/coat); null: all of them")
    reviewer: str = Field(min_length=1, description="who accepted it")
    until: date = Field(description="the last day it holds")
    reason: str = Field(min_length=1, description="why")


class Policy(_Section):
    """All thresholds, a section per V, and what else decides how `sevenfold check` answers."""

    baseline: str | None = Field(
        None, description="no worse than: a version, a batch or a file of `check --write-baseline`; null: no baseline"
    )
    baseline_tolerance: float = Field(
        0.05, ge=0, description="share by which a statistic may worsen against the baseline, beyond its interval"
    )
    disable: tuple[CheckName, ...] = Field((), description="checks that are shown as disabled and not run")
    checks: dict[CheckName, dict[str, Any]] = Field(
        default_factory=dict, description="parameters of your own checks, by V.check"
    )

    validity: Validity = Validity()
    variety: Variety = Variety()
    veracity: Veracity = Veracity()
    value: Value = Value()
    volume: Volume = Volume()
    volatility: Volatility = Volatility()
    velocity: Velocity = Velocity()
    suppressions: tuple[Suppression, ...] = ()

    def parameters(self, check: str, **defaults: Any) -> dict[str, Any]:
        """What the policy's `checks` say for one check, over its defaults.

        Raises
        ------
        SevenfoldError
            For a parameter that the defaults do not name, or one of another kind than its default.
        """
        given = self.checks.get(check, {})
        for name, value in given.items():
            if name not in defaults:
                raise SevenfoldError(
                    f"the check {check} has no parameter {name!r}",
                    where=f"the policy, checks.{check}",
                    expected=f"one of {', '.join(defaults) or 'none'}",
                    do=nearest(name, defaults) or "remove it",
                )
            default = defaults[name]
            number = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
            if default is not None and not number and type(value) is not type(default):
                raise SevenfoldError(
                    f"{name} is {value!r}",
                    where=f"the policy, checks.{check}",
                    expected=f"{type(default).__name__}, such as {default!r}",
                    do="correct this value, or remove it to take the default",
                )
        return {**defaults, **given}


def load_policy(path: str | Path | None = None, *, names: Collection[str] | None = None) -> Policy:
    """The policy in a YAML file; the defaults for None, and for what the file leaves out.

    Parameters
    ----------
    names : the `V.check` that may be suppressed, disabled and given parameters; None takes any well-formed one.

    Raises
    ------
    SevenfoldError
        For a missing file, broken YAML, an unknown key or check (naming the nearest right one) or a value out of range.
    """
    if path is None:
        return Policy()
    import yaml

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(text)
        _verify_keys(yaml.compose(text, yaml.SafeLoader), str(path))
    except FileNotFoundError:
        raise SevenfoldError(
            "there is no such file", where=str(path), expected="a policy file", do="write one with `sevenfold init`"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SevenfoldError(f"this is not YAML: {error}", where=str(path), expected="a policy file") from None
    try:
        policy = Policy.model_validate({} if raw is None else raw)
    except ValidationError as error:
        raise _explain(error, str(path)) from None
    if names is not None:
        _verify_names(policy, names, str(path))
    return policy


def _verify_keys(node: Any, where: str) -> None:
    """Raises SevenfoldError for a key that stands twice in one mapping: YAML would take the last without a word."""
    waiting, met = [node], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in met or not isinstance(node.value, list):  # an alias may lead back
            continue
        met.add(id(node))
        seen: dict[str, int] = {}
        for item in node.value:
            key, inner = item if isinstance(item, tuple) else (None, item)
            waiting.append(inner)
            if key is None or not isinstance(key.value, str):
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                raise SevenfoldError(
                    f"the key {key.value!r} is there twice, in lines {seen[key.value]} and {line}",
                    where=where,
                    expected="every key once",
                    do="keep one of them",
                )
            seen[key.value] = line


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean 'balance'?`, or nothing when no known word is like it."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}?" if close else ""


def _verify_names(policy: Policy, names: Collection[str], where: str) -> None:
    """Raises SevenfoldError for the first check that the policy names and nobody knows."""
    places = [(f"suppressions.{i}.check", s.check) for i, s in enumerate(policy.suppressions)]
    places += [(f"disable.{i}", name) for i, name in enumerate(policy.disable)]
    places += [("checks", name) for name in policy.checks]
    from sevenfold.quality.catalogue import CHECKS

    for name in policy.checks:
        if name in CHECKS:
            v = name.partition(".")[0]
            raise SevenfoldError(
                f"checks.{name}: this check comes with Sevenfold, and reads nothing here",
                where=where,
                expected="parameters of your own checks",
                do=f"its limits are in the section {v}",
            )
    for spot, name in places:
        if name not in names:
            mine = sorted(n for n in names if n.partition(".")[0] == name.partition(".")[0])
            raise SevenfoldError(
                f"{spot}: there is no check {name!r}",
                where=where,
                expected=f"one of {', '.join(mine or sorted(names))}",
                do=f"{nearest(name, names) or 'remove the entry'}; if it is a check of your own, install its package",
            )


def default_policy_yaml() -> str:
    """The default policy as commented YAML, one line per threshold; it loads back to ``Policy()``."""
    lines = [
        "# The policy: every threshold of the seven Vs. What you leave out keeps its default.",
        "# Schema, null and range rules live in the Great Expectations suite, not here.",
        "",
        "# How `sevenfold check` answers (docs/ci.md).",
    ]
    top = [(f"{key}: {_plain(Policy.model_fields[key].default)}", Policy.model_fields[key].description)
           for key in ("baseline", "baseline_tolerance", "disable")]  # fmt: skip
    lines += _commented(top)
    for name in VS:
        section = Policy.model_fields[name].annotation
        assert isinstance(section, type) and issubclass(section, BaseModel)
        lines += ["", f"{name}:  # {(section.__doc__ or '').strip().splitlines()[0]}"]
        entries = [(f"  {key}: {_plain(info.default)}", info.description) for key, info in section.model_fields.items()]
        lines += _commented(entries)
    lines += [
        "",
        "# Parameters of your own checks (docs/checks.md), such as",
        "# variety.dark_share: {limit: 0.05}",
        "checks: {}",
        "",
        "# Findings a person has accepted. After `until` the entry is ignored, and the verdict says so.",
        "# - {check: variety.balance, reviewer: ada, until: 2027-01-31, reason: rare class is rare in the field}",
        "# With `key` one finding alone is accepted: a sample id, an input's path, slice:test/coat. `subject`: of one",
        "# version or batch.",
        "suppressions: []",
        "",
    ]
    return "\n".join(lines)


def _commented(entries: Sequence[tuple[str, str | None]]) -> list[str]:
    width = max(len(entry) for entry, _ in entries)
    return [f"{entry.ljust(width)}  # {description}" for entry, description in entries]


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    return str(value)


def _explain(error: ValidationError, where: str) -> SevenfoldError:
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")  # a misspelt key explains a missing one
    keys = [str(k) for k in first["loc"]]
    spot = ".".join(keys)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] != "extra_forbidden":
        said = first["msg"].replace("valid tuple", "valid list").replace(" or instance of Policy", "")
        found = f"{spot} is {first['input']!r}: {said}{more}" if keys else f"{said}{more}"
        return SevenfoldError(found, where=where, do="correct this value, or remove the line to take the default")
    known = _keys_of(first["loc"][:-1])
    return SevenfoldError(
        f"unknown key {spot!r}{more}",
        where=where,
        expected=f"one of {', '.join(known)}",
        do=nearest(keys[-1], known) or "remove the key",
    )


def _keys_of(loc: tuple[Any, ...]) -> list[str]:
    """The keys allowed at a place in the policy."""
    model: type[BaseModel] = Policy
    for part in loc:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = next((a for a in get_args(annotation) if isinstance(a, type)), annotation)
        assert isinstance(inner, type) and issubclass(inner, BaseModel)
        model = inner
    return list(model.model_fields)
