"""Forecasts are kept as they were made: append-only, adopted when made again, refused when damaged."""

from pathlib import Path

import pytest

from sevenfold.storage.errors import SevenfoldError
from sevenfold.storage.forecasts import append_forecast, read_forecasts
from sevenfold.storage.store import LocalStore

FORECAST = {
    "dataset": "pets", "version": "v1", "content_id": "c", "settings": "s", "split": "test", "largest": 800,
    "runs": [{"run_id": "run-1", "seed": 0, "n": 800, "error": 0.2}], "points": [[100, 0.3, 0.2, 0.4]],
}  # fmt: skip


def test_a_forecast_made_again_is_the_one_that_is_there(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    key, new = append_forecast(store, FORECAST, at=5.0)
    assert new and key.startswith("forecasts/pets/v1/")
    assert append_forecast(store, FORECAST, at=9.0) == (key, False)
    other, new = append_forecast(store, {**FORECAST, "largest": 900}, at=3.0)
    assert new and other != key
    assert append_forecast(store, {**FORECAST, "version": "v2"}, at=7.0)[1]
    assert [f["at"] for f in read_forecasts(store, "pets")] == [3.0, 5.0, 7.0]
    assert [f["largest"] for f in read_forecasts(store, "pets", "v1")] == [900, 800]
    assert read_forecasts(store, "none") == []


def test_what_says_too_little_or_is_damaged_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(SevenfoldError, match="points"):
        append_forecast(store, {k: v for k, v in FORECAST.items() if k != "points"}, at=1.0)
    with pytest.raises(SevenfoldError):
        append_forecast(store, {**FORECAST, "version": "../x"}, at=1.0)
    store.create("forecasts/pets/v1/bad.json", b'{"format": 1, "dataset": "pets"}')
    with pytest.raises(SevenfoldError, match="this forecast has no"):
        read_forecasts(store, "pets")
