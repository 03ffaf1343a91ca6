"""The whitened network: its first layer decorrelates, is the same whoever computes it, and small images are refused."""

import pytest
import torch

from sevenfold.storage.errors import SevenfoldError
from sevenfold.training.models import build_model


def pictures(channels: int, n: int = 400) -> torch.Tensor:
    """Smooth noise: neighbours go together, and so do channels."""
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(n, channels, 20, 20, generator=g)
    return torch.nn.functional.avg_pool2d(noise + noise.mean(1, keepdim=True), 5, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_first_layer_gives_uncorrelated_outputs_of_unit_variance(channels: int) -> None:
    images = pictures(channels)
    model = build_model("whitened_cnn", num_classes=4, channels=channels, size=16, widths=(8, 8))
    model.prepare(images)
    out = torch.nn.functional.conv2d(images, model.whitening, stride=2)
    flat = out.transpose(0, 1).reshape(out.shape[1], -1)
    covariance = torch.cov(flat)
    assert torch.allclose(covariance, torch.diag(covariance.diag()), atol=0.05)
    assert covariance.diag().max() < 1.05 and covariance.diag()[-1] > 0.9
    assert model(images).shape == (400, 4)


def test_it_is_kept_with_the_weights_and_not_trained() -> None:
    model = build_model("whitened_cnn", num_classes=3, channels=3, size=16, widths=(8, 8))
    model.prepare(pictures(3))
    assert "whitening" in model.state_dict() and "whitening" not in dict(model.named_parameters())
    other = build_model("whitened_cnn", num_classes=3, channels=3, size=16, widths=(8, 8))
    other.load_state_dict(model.state_dict())
    x = pictures(3, 5)
    assert torch.equal(model.eval()(x), other.eval()(x))


def test_too_small_an_image_is_refused() -> None:
    build_model("whitened_cnn", num_classes=3, channels=1, size=9, widths=(8, 8, 8))
    with pytest.raises(SevenfoldError, match="too small for 3 widths"):
        build_model("whitened_cnn", num_classes=3, channels=1, size=8, widths=(8, 8, 8))
