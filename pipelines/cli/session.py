"""What every command starts from: the project, its lake and its dataset, found when first asked for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sevenfold.storage.lake import Lake
    from sevenfold.storage.project import Project


@dataclass(frozen=True)
class Session:
    """The global options, and what they lead to."""

    lake_option: str | None = None
    dataset_option: str | None = None
    debug: bool = False

    @cached_property
    def project(self) -> Project:
        """The project of the current folder; --lake and SEVENFOLD_LAKE win over its lake, --dataset over its dataset.

        Without a sevenfold.toml the dataset is the lake's only one.
        """
        from sevenfold.storage import project as projects
        from sevenfold.storage.keys import LAKE
        from sevenfold.storage.store import open_store

        project = projects.find(lake=self.lake_option)
        dataset = self.dataset_option
        if dataset is None and not (project.folder / projects.FILE).exists():
            there = project.open_lake().datasets() if open_store(project.lake_url).exists(LAKE) else []
            dataset = there[0] if len(there) == 1 else None
        return project.model_copy(update={"dataset": dataset}) if dataset else project

    @cached_property
    def lake(self) -> Lake:
        """The lake, which must exist. A takedown that was not ended is told on stderr."""
        from sevenfold.storage.takedown import unfinished

        lake = self.project.open_lake()
        if unfinished(lake.store):
            print(
                "warning: a takedown was begun and not ended; end it with: sevenfold takedown --finish", file=sys.stderr
            )
        return lake

    @property
    def dataset(self) -> str:
        """The dataset's name."""
        return self.project.dataset

    @property
    def same(self) -> str:
        """What a command that is suggested needs to mean the same dataset: nothing, or the option that was given."""
        return f" --dataset {self.dataset_option}" if self.dataset_option else ""


def session(context: typer.Context) -> Session:
    """The session of a command's context."""
    found = context.find_object(Session)
    return found if found is not None else Session()
