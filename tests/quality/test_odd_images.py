import hashlib
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFilter

from sevenfold.quality.odd_images import odd_images
from sevenfold.quality.policy import Policy
from sevenfold.storage.measure import measure_many

LIMITS = Policy().variety
SIZES = (28, 32, 96)


def scene(seed: int, size: int) -> Image.Image:
    """A textured picture of its own brightness and contrast, 8 x 8 blots blown up with some grain."""
    rng = np.random.default_rng(seed)
    blots = np.clip(rng.normal(rng.normal(125, 25), rng.uniform(30, 60), (8, 8)), 0, 255).astype(np.uint8)
    big = np.asarray(Image.fromarray(blots).resize((size, size), Image.Resampling.BICUBIC)).astype(float)
    return Image.fromarray(np.clip(big + rng.normal(0, 6, big.shape), 0, 255).astype(np.uint8))


def measured(images: list[Image.Image]) -> pa.Table:
    def data(image: Image.Image) -> bytes:
        out = io.BytesIO()
        image.save(out, "PNG", compress_level=1)
        return out.getvalue()

    batch, failures = measure_many((data(i), "a.png") for i in images)
    assert not failures
    names = [hashlib.sha256(f"{k}".encode()).hexdigest() for k in range(len(images))]
    table = pa.Table.from_batches([batch])
    return table.set_column(table.schema.get_field_index("id"), "id", pa.array(names))


def odd(table: pa.Table, reference: pa.Table | None = None):
    return odd_images(
        table, table, subject="v1", policy=LIMITS, reference_rows=reference, reference_properties=reference,
        reference=None if reference is None else "v0",
    )  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_clean_pictures_are_hardly_ever_odd_and_planted_ones_are_found(size: int) -> None:
    clean = [scene(i, size) for i in range(600)]
    assert len(odd(measured(clean)).findings) <= 6
    planted = {
        "very dark": Image.new("L", (size, size), 1),
        "very bright": Image.new("L", (size, size), 254),
        "flat": Image.new("L", (size, size), 128),
        "blurry": scene(1000, size).filter(ImageFilter.GaussianBlur(size / 8)),
        "very wide": scene(1001, size).resize((8 * size, size)),
        "very narrow": scene(1002, size).resize((size, 8 * size)),
        "very small": scene(1003, size).resize((size // 8, size // 8)),
        "very large": scene(1004, size).resize((8 * size, 8 * size)),
    }
    table = measured([*clean, *planted.values()])
    v = odd(table)
    notes = dict(zip(v.findings, v.notes, strict=True))
    ids = table["id"].to_pylist()[600:]
    for name, sample in zip(planted, ids, strict=True):
        assert name in notes.get(sample, ""), (name, notes.get(sample))
    assert v.result == "warn" and v.reference is None
    assert v.data["examples"]["now"] == list(v.findings)[:30]


def test_a_dark_batch_is_odd_beside_its_reference_and_not_beside_itself() -> None:
    day = measured([scene(i, 32) for i in range(300)])
    night = measured([scene(i, 32).point(lambda x: x // 20) for i in range(300, 400)])
    v = odd(night, day)
    assert (v.result, v.reference) == ("warn", "v0") and len(v.findings) > 90
    assert "very dark (brightness 0.0" in v.notes[0] and "none of the reference" in v.notes[0]
    assert not odd(night).findings


def test_dark_pictures_are_usual_where_all_are_dark() -> None:
    """As in Fashion-MNIST: most pixels are black, and no limit made for photographs is asked."""
    rng = np.random.default_rng(0)
    dark = [Image.fromarray((np.pad(rng.integers(20, 160, (8, 8)), 10)).astype(np.uint8)) for _ in range(300)]
    assert not odd(measured(dark)).findings


def test_few_pictures_have_no_distribution() -> None:
    few = measured([scene(i, 32) for i in range(20)])
    assert odd(few).result == "not_measurable"
    assert odd(few, measured([scene(i, 32) for i in range(100, 200)])).result == "pass"
