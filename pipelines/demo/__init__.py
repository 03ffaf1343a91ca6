"""`sevenfold demo`: one full round of the loop on Fashion-MNIST, through the same Dagster jobs that the UI shows."""

from sevenfold.pipelines.demo.story import run

__all__ = ["run"]
