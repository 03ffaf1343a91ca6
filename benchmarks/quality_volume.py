"""Does a learning-curve forecast hold? Nested subsets up to n/2 and n/4 foretell the error at n, on real data.

    python benchmarks/quality_volume.py cifar10_jpeg.zip [--keep folder] [--seeds 0,1]
    python benchmarks/quality_volume.py fashion-mnist-folder --model-widths 8,16,32

The zip's or folder's splits are train and test (idx files of Fashion-MNIST will do). Everything is trained by the
project's trainer with its default settings; with --keep a second run adopts what was trained. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from sevenfold.assets.committing import commit
from sevenfold.assets.fitting import settings, write_ids
from sevenfold.assets.judging import judge_batch
from sevenfold.assets.runs import accuracy
from sevenfold.quality.forecast import fit_learning_curve
from sevenfold.storage.lake import Lake
from sevenfold.storage.project import Project
from sevenfold.training.draw import uniform
from sevenfold.training.launch import launch

REGIMES = ("epochs", "steps")
"""The same epochs for every size (as a larger version will be trained), or as many steps as the largest known size."""


def version_of(source: Path, folder: Path) -> tuple[Lake, Project]:
    """A lake whose v1 holds the source."""
    project = Project(folder=folder, dataset="growth")
    if (folder / "lake" / "lake.json").exists():
        return project.open_lake(), project
    lake = project.create_lake()
    lake.ingest(source, "growth", "all")
    judge_batch(lake, project, "all")
    lake.set_status("growth", "all", "admitted")
    commit(lake, project, message="all")
    return lake, project


def error_of(lake: Lake, project: Project, ids: list[str], n: int, seeds: list[int], **changes: object) -> list[float]:
    """The test errors of one run per seed on the first n ids."""
    part = {} if n == len(ids) else {"select_ids": write_ids(lake, ids[:n], "subset"), "predict": "none"}
    config = settings(lake, project, "v1", {**changes, **part, "seeds": seeds, "predict": "none"})
    runs = launch(lake.store.url, config, progress=lambda *_: None)["runs"]
    errors = [1 - (accuracy(r) or 0.0) for r in runs]
    print(f"  {n} {changes}: {' '.join(f'{e:.4f}' for e in errors)}", file=sys.stderr, flush=True)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--widths", default="16,32,64")
    parser.add_argument("--sizes", type=int, default=7, help="halvings of n, n included")
    parser.add_argument("--regimes", default="epochs")
    parser.add_argument("--saturation", type=float, default=0.1)
    options = parser.parse_args()
    seeds = [int(s) for s in options.seeds.split(",")]
    widths = [int(w) for w in options.widths.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        lake, project = version_of(options.source.absolute(), options.keep or Path(temporary))
        samples = lake.samples("growth", "v1")
        train = sorted(samples.filter(np.asarray(samples["split"]) == "train")["id"].to_pylist())
        ids = [train[i] for i in uniform(train, len(train), 0, "forecast")]
        sizes = [len(ids) >> i for i in range(options.sizes - 1, -1, -1)]
        truth = {n: error_of(lake, project, ids, n, seeds, widths=widths) for n in sizes}
        print("| trained alike in | known up to | foretold at | foretold error | interval | what happened | held |")
        print("|---|---|---|---|---|---|---|")
        for regime in options.regimes.split(","):
            for known in range(5, len(sizes)):
                base = sizes[known - 5 : known]
                points = {n: truth[n] for n in base}
                if regime == "steps":
                    batch = 128
                    steps = 4 * -(-base[-1] // batch)
                    points = {n: error_of(lake, project, ids, n, seeds, widths=widths, steps=steps) for n in base}
                n, y = [k for k in base for _ in seeds], [e for k in base for e in points[k]]
                curve = fit_learning_curve(n, y, saturation=options.saturation)
                for ahead in sizes[known:]:
                    foretold, (low, high) = curve.error(ahead)
                    real = float(np.mean(truth[ahead]))
                    held = "yes" if low <= real <= high else "no"
                    print(
                        f"| {regime} | {base[-1]:,} | {ahead:,} | {foretold:.2%} | {low:.2%} to {high:.2%} "
                        f"| {real:.2%} | {held} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
