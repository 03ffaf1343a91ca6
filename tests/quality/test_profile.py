import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sevenfold.quality import frame, suite
from sevenfold.quality.profile import profile, suite_text
from sevenfold.storage import Lake

EXAMPLE = Path(__file__).parents[2] / "examples/fashion-mnist"


def test_only_the_named_metrics_are_computed_over_rows_and_properties(rows, properties) -> None:
    table = rows(10, label=["boot"] * 4 + [None] * 6, width=[28] * 9 + [30])
    asked = ["label_nulls", "label_nullshare", "label_distinct", "label_values", "width_min", "width_max", "width_q50",
             "label_type", "width_type", "brightness_nulls", "brightness_mean", "depth_min", "nonsense"]  # fmt: skip
    m = frame.metrics(asked, table, properties(table.slice(0, 8)))
    assert set(m) == {"rows", *asked} - {"depth_min", "nonsense"}
    assert (m["rows"], m["label_nulls"], m["label_nullshare"], m["label_distinct"]) == (10, 6, 0.6, 1)
    assert (m["label_values"], m["width_min"], m["width_max"], m["width_q50"]) == ("|boot|", 28, 30, 28)
    assert (m["label_type"], m["width_type"]) == ("string", "int32")
    assert m["brightness_nulls"] == 2, "samples that were not measured count as nulls"
    empty = frame.metrics(["width_min", "width_q50", "label_values"], table.slice(0, 0))
    assert empty == {"rows": 0, "width_min": None, "width_q50": None, "label_values": "|"}


def test_a_sample_that_was_not_measured_is_an_offender(rows, properties) -> None:
    table = rows(4)
    lacking = properties(table.slice(0, 3))
    assert frame.offenders("brightness_nulls", {"max_value": 0}, table, lacking) == [table["id"][3].as_py()]


def metadata_of(table: pa.Table, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    n = table.num_rows
    return pa.table({
        "id": table["id"],
        "age": random.gamma(4, 10, n),
        "camera": random.choice(["north", "south"], n).tolist(),
        "caption": [f"picture {i}" for i in range(n)],
        "flash": pa.array([None if x < 0.2 else bool(x > 0.6) for x in random.random(n)]),
    })  # fmt: skip


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[pa.Table, pa.Table, pa.Table]]:
    """Two disjoint draws of 400 from the embedded Fashion-MNIST: samples, measured properties, own columns."""
    where = tmp_path_factory.mktemp("halves")
    lake = Lake.create(where / "lake")
    pixels = np.frombuffer(gzip.decompress((EXAMPLE / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    labels = np.frombuffer(gzip.decompress((EXAMPLE / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:], np.uint8)
    chosen = np.random.default_rng(0).permutation(10_000)[:800]
    found = []
    for name, part in (("a", chosen[:400]), ("b", chosen[400:])):
        for i in part:
            folder = where / name / str(labels[i])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[i * 784 : (i + 1) * 784].reshape(28, 28)).save(folder / f"{i}.png")
        lake.ingest(where / name, "d", name, workers=1)
        table = lake.batch_rows("d", name)
        found.append((table, lake.batch_properties("d", name), metadata_of(table, len(name))))
    return found


def judged(tables: tuple[pa.Table, pa.Table, pa.Table], path: Path) -> tuple[str, str]:
    v = suite.validate(*tables, subject="b", suite_path=path)
    return v.result, v.message


@pytest.fixture
def starter(halves, tmp_path: Path) -> Path:
    path = tmp_path / "suite.json"
    path.write_text(suite_text(profile(*halves[0], name="v1")))
    return path


def test_the_reference_and_a_fresh_draw_pass_the_suite_made_from_it(halves, starter: Path) -> None:
    assert len(json.loads(starter.read_text())["expectations"]) > 40
    for half in halves:
        assert judged(half, starter)[0] == "pass", judged(half, starter)[1]


def replaced(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(column), column, values)


def faulty(half: tuple[pa.Table, ...], faults: list) -> tuple[pa.Table, ...]:
    tables = list(half)
    for place, column, fault in faults:
        kind = tables[place].schema.field(column).type
        values = pa.array(fault(tables[place][column].to_pylist()), kind)
        tables[place] = replaced(tables[place], column, values)
    return tuple(tables)


def test_what_is_broken_fails_it_each_by_its_name(halves, starter: Path) -> None:
    faults = [
        (0, "label", lambda c: ["hat", *c[1:]]),
        (0, "mode", lambda c: ["RGB", *c[1:]]),
        (0, "width", lambda c: [29, *c[1:]]),
        (1, "contrast", lambda c: [None, *c[1:]]),
        (1, "bytes_per_pixel", lambda c: [99.0, *c[1:]]),
        (2, "age", lambda c: [-500.0, *c[1:]]),
        (2, "camera", lambda c: ["east", *c[1:]]),
        (2, "flash", lambda c: [None] * len(c)),
    ]
    rows_, measured, own = faulty(halves[1], faults)
    v = suite.validate(rows_, measured.drop_columns("aspect"), own, subject="b", suite_path=starter)
    assert "the column 'aspect' is missing" in v.message
    assert v.result == "fail"
    said = set(re.findall(r"Found (\w+) =", v.message))
    expected = {"label_values", "mode_values", "width_max", "contrast_nulls", "bytes_per_pixel_max", "age_min",
                "camera_values", "flash_nullshare"}  # fmt: skip
    assert said == expected
    assert halves[1][0]["id"][0].as_py() in v.findings


@pytest.mark.slow
def test_a_shifted_middle_warns(halves, starter: Path) -> None:
    brighter = faulty(halves[1], [(1, "brightness", lambda c: [min(1.0, x + 0.25) for x in c])])
    found, message = judged(brighter, starter)
    assert found == "warn" and "brightness_q50" in message


def test_an_ordinary_first_folder_of_grey_and_colour_photos_passes_the_default_suite(rows, properties) -> None:
    table = rows(20, mode=["L", "RGB"] * 10, channels=[1, 3] * 10, width=[300 + i for i in range(20)])
    assert suite.validate(table, properties(table), subject="b").result == "pass"
