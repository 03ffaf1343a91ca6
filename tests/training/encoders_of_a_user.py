"""What a user's own module with encoders may look like; the tests name it as `encoders_of_a_user:factory`."""

import torch
from torch import nn


class Means(nn.Module):
    """The mean of each quarter of the image, of each channel: [n, 4 * channels], from pixels 0 ... 1."""

    size, channels, mean, std = 8, 3, 0.0, 1.0

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1) * self.scale


def means() -> nn.Module:
    return Means()


def doubled() -> nn.Module:
    return Means(2.0)


def none() -> nn.Module:
    class Broken(Means):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean()

    return Broken()


def no_module() -> object:
    return "a string"
