"""The training configuration: settings with defaults that work; unknown keys name the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.names import SPLITS

EXECUTION = (
    "ranks",
    "threads",
    "workers",
    "loader_threads",
    "prefetch",
    "cache_decoded",
    "checkpoint_every",
    "keep_checkpoints",
    "timeout",
)
"""Settings of how a run is carried out, not of what it computes: they are no part of a run's identity."""


UNTOUCHABLE = ("val", "test")
"""Splits that measure models and are never trained on."""


MOST_AHEAD = 1024
"""Workers, threads or batches ahead: more is a slip of the pen that would fill the memory with an epoch."""


class Settings(BaseModel):
    """Settings where yes and no are no numbers: true is no 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_flags(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, bool) and name in cls.model_fields and cls.model_fields[name].annotation is not bool:
                raise ValueError(f"{name} is {str(value).lower()}, which is neither a number nor a name")
        return values


class HoldOut(Settings):
    """Leave fold `fold` of `of` out of training (folds are drawn by a salted hash of the sample id)."""

    fold: int = Field(ge=0)
    of: int = Field(ge=2)

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if self.fold >= self.of:
            raise ValueError(f"fold {self.fold} of {self.of}: folds count from 0")
        return self


class MixSource(Settings):
    """Samples that are mixed in: a slice of another dataset or version, or a list of ids such as a replay buffer."""

    dataset: str | None = Field(None, description="default: the run's own")
    ref: str | None = Field(None, description="branch, v3, tag or content id; default: the run's own, or main")
    content_id: str | None = Field(None, description="filled in when a run starts")
    splits: tuple[str, ...] = ("train",)
    ids: str | None = Field(None, description="JSON list or Parquet (column id), instead of splits; may repeat ids")
    ids_digest: str | None = Field(None, description="digest of those ids; filled in when a run starts")
    ratio: float = Field(gt=0, description="of its slots to those of the samples it is mixed with")

    @model_validator(mode="after")
    def _trainable(self) -> Self:
        _check_splits("splits", self.splits, measuring=False)
        if self.ids is not None and self.splits != ("train",):
            raise ValueError("ids and splits are two ways to say what is mixed in: give one of them")
        return self


class TrainConfig(Settings):
    """What to train, on what, and how."""

    # data
    dataset: str
    ref: str = Field("main", description="branch, v3, tag or content id; ignored when content_id is given")
    content_id: str | None = Field(None, description="filled in from ref when a run starts")
    train_splits: tuple[str, ...] = ("train",)
    eval_splits: tuple[str, ...] = ("val", "test")
    select_ids: str | None = Field(None, description="JSON list or Parquet (column id) of training ids; may repeat ids")
    select_digest: str | None = Field(None, description="digest of those ids; filled in when a run starts")
    hold_out: HoldOut | None = None
    size: int | None = Field(None, ge=1, description="side of the input; default: the images' own if they share one")
    channels: Literal[1, 3] | None = Field(None, description="default: 1 when every image is grey")
    variant: str | None = Field(None, description="read a materialised variant of the images, such as 160-jpeg")
    mix: tuple[MixSource, ...] = Field((), description="further samples, each with its ratio to those chosen above")
    mix_size: int | None = Field(None, ge=1, description="slots of all sources; default: each sample chosen above once")
    sampling: Literal["without_replacement", "with_replacement"] = Field(
        "without_replacement", description="with_replacement: independent draws by weight, counted in steps"
    )
    decode: Literal["scaled", "exact"] = Field(
        "scaled", description="let libjpeg shrink large JPEGs while it decodes them, or decode them whole"
    )
    window: int = Field(8, ge=1, description="whole shards shuffled together")
    tail: Literal["drop", "pad", "wrap"] = "pad"

    # model
    model: str = Field("residual_cnn", description="residual_cnn, whitened_cnn or package.module:factory")
    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field((16, 32, 64), min_length=1)
    norm: Literal["batch", "group"] = "batch"
    init_from: str | None = Field(None, description="a model.safetensors, or the folder of a run or model")
    init_digest: str | None = Field(None, description="digest of those weights; filled in when a run starts")

    # optimisation
    epochs: int | None = Field(4, ge=0, description="0 only evaluates and predicts (with init_from)")
    steps: int | None = Field(None, ge=1, description="stop after this many steps instead of `epochs`")
    batch_size: int = Field(128, ge=1, description="global, over all ranks")
    lr: float = Field(0.3, gt=0)
    warmup: float = Field(0.25, ge=0, lt=1, description="share of the steps over which lr rises; it then falls to 0")
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    augment: tuple[Literal["flip", "shift"], ...] = Field(
        ("flip",), description="left-right flip; shift by up to 4 pixels, which pays in longer training only"
    )
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="trained one after another in one launch")
    attempt: int = Field(0, ge=0, description="raise it to repeat a finished run")

    # scoring
    folds: int = Field(2, ge=2, description="of out-of-fold scoring")
    views: Literal["auto", "one", "flip", "shift"] = Field(
        "auto",
        description="predict a picture as it is, with its mirror image, or both also moved a little; auto: in `score` "
        "as augment has flip and shift",
    )
    predict: Literal["all", "out_of_sample", "none"] = "all"
    dynamics: bool = Field(
        True, strict=True, description="note EL2N, forgetting and AUM of each training sample (see dynamics.py)"
    )

    # execution
    ranks: int = Field(1, ge=1)
    threads: int | None = Field(None, ge=1, description="per rank; default: cores / ranks")
    workers: int = Field(
        0, ge=0, le=MOST_AHEAD, description="loader processes per rank; 0: threads (see `sevenfold tune-loader`)"
    )
    loader_threads: int = Field(
        1, ge=0, le=MOST_AHEAD, description="that decode ahead of the model; 0: when a batch is asked for"
    )
    prefetch: int = Field(2, ge=0, le=MOST_AHEAD, description="batches made ahead")
    cache_decoded: int = Field(1 << 30, ge=0, description="decode once if the pixels fit in this many bytes")
    checkpoint_every: int | None = Field(None, ge=1, description="steps; default: once per epoch")
    keep_checkpoints: int = Field(2, ge=1)
    timeout: float = Field(60.0, gt=0, description="seconds a rank waits for the others")

    @model_validator(mode="before")
    @classmethod
    def _no_epochs_of_draws(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("sampling") == "with_replacement":
            if values.get("epochs") is not None:
                raise ValueError(
                    "draws with replacement make no epoch: leave epochs out (--set epochs=null) and give steps"
                )
            return {**values, "epochs": None}
        return {k: v for k, v in values.items() if k != "epochs" or v is not None}

    @model_serializer(mode="wrap")
    def _without_epochs(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = handler(self)
        if self.sampling == "with_replacement":
            values.pop("epochs", None)
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_splits("train_splits", self.train_splits, measuring=False)
        _check_splits("eval_splits", self.eval_splits, measuring=True)
        if self.sampling == "with_replacement":
            if any(getattr(self, k) != type(self).model_fields[k].default for k in ("window", "tail")):
                raise ValueError("sampling with_replacement knows no window and no tail: draws reach every shard")
            if self.steps is None:
                raise ValueError("sampling with_replacement needs steps, such as steps = 5000: draws have no other end")
            if self.mix or self.mix_size is not None:
                raise ValueError(
                    "sampling with_replacement draws from one selection by weight: it takes no mix "
                    "(leave it out, or --set mix=[] for one run)"
                )
        if self.epochs == 0 and (self.init_from is None or self.steps is not None):
            raise ValueError("epochs 0 only evaluates: it needs init_from and no steps")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError("a seed occurs twice")
        return self

    def changed(self, **values: Any) -> TrainConfig:
        """A copy with some settings replaced, validated again."""
        return parse({**self.model_dump(mode="json"), **values})

    def identity(self) -> dict[str, Any]:
        """The settings that decide the result: everything but EXECUTION, `seeds`, and paths replaced by digests."""
        apart = {*EXECUTION, "seeds", "attempt", "content_id", "ref", "dataset", "folds"}
        if self.select_digest is not None:
            apart.add("select_ids")
        if self.init_digest is not None:
            apart.add("init_from")
        found = self.model_dump(mode="json", exclude=apart)
        found["mix"] = [_source_identity(source) for source in self.mix]
        return found


def _source_identity(source: MixSource) -> dict[str, Any]:
    """What a source mixes in: names replaced by the content id, paths by digests, once they are known."""
    apart = {"dataset", "ref"} if source.content_id is not None else set()
    if source.ids is not None:  # the list decides, the splits do not
        apart |= {"splits"} | ({"ids"} if source.ids_digest is not None else set())
    return source.model_dump(mode="json", exclude=apart)


def _check_splits(name: str, splits: tuple[str, ...], *, measuring: bool) -> None:
    """Refuse splits that no version has, and, unless they are to measure models, those that do."""
    for split in splits:
        if split not in SPLITS:
            raise ValueError(f"{name}: there is no split {split!r}, only {', '.join(SPLITS)}")
        if split in UNTOUCHABLE and not measuring:
            raise ValueError(f"{name}: the split {split} is not trained on: it measures models")


_PARTS: dict[str, type[BaseModel]] = {"hold_out": HoldOut, "mix": MixSource}


def parse(values: Mapping[str, Any], where: str = "training config") -> TrainConfig:
    """Validate settings. Raises SevenfoldError that names the key, and for an unknown key the nearest right one."""
    try:
        return TrainConfig.model_validate(dict(values))
    except ValidationError as error:
        errors = error.errors()
        first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])  # it may explain the others
        path = [str(p) for p in first["loc"]]
        key = ".".join(path)
        if first["type"] == "extra_forbidden":
            known = list((TrainConfig if len(path) == 1 else _PARTS[path[0]]).model_fields)
            near = difflib.get_close_matches(path[-1], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "the keys are: " + ", ".join(known)
            raise SevenfoldError(f"there is no setting {key!r}", where=where, do=hint) from error
        message = first["msg"].removeprefix("Value error, ")
        raise SevenfoldError(f"{key}: {message}" if key else message, where=where) from error


def load(path: Path) -> TrainConfig:
    """Read a configuration from a YAML or JSON file."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SevenfoldError(f"cannot be read: {error}", where=str(path)) from error
    if not isinstance(values, dict):
        raise SevenfoldError("is not a mapping of settings", where=str(path), expected="dataset: ..., epochs: 4, ...")
    return parse(values, str(path))
