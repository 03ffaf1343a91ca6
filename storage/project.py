"""sevenfold.toml: which lake, which dataset, which policy. Found in the current folder or above it."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sevenfold.storage.decode import Accepts
from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.lake import SHARD_BYTES, Lake
from sevenfold.storage.store import absolute

FILE = "sevenfold.toml"
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
Table = TypeVar("Table", bound=BaseModel)


class Project(BaseModel):
    """The settings of one project folder; paths in the file are relative to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path = Field(exclude=True)
    lake: str = "lake"
    """A folder, or s3://bucket/prefix."""
    dataset: str = "main"
    inbox: Path = Path("inbox")
    policy: Path = Path("policy.yaml")
    suite: Path = Path("suite.json")
    model: str = "classifier"
    classes: tuple[str, ...] = ()
    workers: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    shard_bytes: int = Field(default=SHARD_BYTES, ge=4096)
    decode: Accepts = Accepts()
    """Which unusual images ingest takes."""
    train: dict[str, Any] = Field(default_factory=dict)
    """Defaults for training (see training.config.TrainConfig)."""
    gate: dict[str, Any] = Field(default_factory=dict)
    """What the gate demands (see training.gate.GatePolicy)."""
    retrain: dict[str, Any] = Field(default_factory=dict)
    """When to retrain (see pipelines.policy.RetrainPolicy)."""

    def path(self, name: str) -> Path:
        """One of the path settings, absolute."""
        return (self.folder / getattr(self, name)).absolute()

    @property
    def lake_url(self) -> str:
        """Where the lake lies: an absolute folder or a URL."""
        return absolute(self.lake, self.folder)

    @property
    def home(self) -> Path:
        """Where Dagster and other services keep their state: beside the settings, never in the lake."""
        return self.folder / ".sevenfold"

    def open_lake(self) -> Lake:
        """The project's lake, which must exist."""
        return Lake.open(self.lake_url)

    def create_lake(self) -> Lake:
        """The project's lake, made if absent."""
        return Lake.create(self.lake_url, shard_bytes=self.shard_bytes)


def section(project: Project, name: str, kind: type[Table]) -> Table:
    """A table of the settings ([gate], [retrain]) as its own model; SevenfoldError for a wrong key or value."""
    try:
        return kind(**getattr(project, name))
    except ValidationError as e:
        first = e.errors()[0]
        raise SevenfoldError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            where=f"{project.folder / FILE}, [{name}]",
            expected=f"the keys {', '.join(kind.model_fields)}",
        ) from None


def load(file: Path) -> Project:
    """Read a sevenfold.toml. Raises SevenfoldError for damage or an unknown key, naming the nearest right one."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        if "folder" in values:
            raise SevenfoldError("folder: the project's folder is where the file lies", where=str(file), do="drop it")
        return Project.model_validate({**values, "folder": file.parent.absolute()})
    except FileNotFoundError:
        raise SevenfoldError(
            f"there is no {FILE}", where=str(file.parent), do="make one with `sevenfold init`"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise SevenfoldError(f"this is not TOML: {e}", where=str(file)) from None
    except ValidationError as e:
        first = e.errors()[0]
        key = ".".join(map(str, first["loc"]))
        inner = first["loc"][0] == "decode" and len(first["loc"]) > 1
        keys = [f"decode.{f.name}" for f in fields(Accepts)] if inner else [*Project.model_fields][1:]
        near = difflib.get_close_matches(key, keys, n=1) if first["type"] in _UNKNOWN else []
        raise SevenfoldError(
            f"{key}: {first['msg']}",
            where=str(file),
            expected=f"perhaps {near[0]!r}"
            if near
            else f"one of {', '.join(keys)}"
            if first["type"] in _UNKNOWN
            else "",
        ) from None


def find(start: Path | None = None, lake: str | os.PathLike[str] | None = None) -> Project:
    """The project of `start` (default: the current folder) or of a folder above it.

    A lake given here, or in SEVENFOLD_LAKE, wins over the file's; with one of them no file is needed.
    """
    lake = lake or os.environ.get("SEVENFOLD_LAKE") or None
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).exists():
            project = load(folder / FILE)
            break
    else:
        if lake is None:
            raise SevenfoldError(
                f"no {FILE} here or above, and no lake was named",
                where=str(here),
                do="run `sevenfold init`, or give --lake or SEVENFOLD_LAKE",
            )
        project = Project(folder=here)
    return project.model_copy(update={"lake": absolute(lake, Path.cwd())}) if lake else project
