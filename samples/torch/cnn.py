#!/usr/bin/env python3
"""Trains a small residual network (convolutions, batch normalisation, skip connections) on pictures of ten textures that it draws
itself. Needs nothing but PyTorch."""

import common

given = common.options(__doc__, steps=40, batch=32, width=16, depth=2)

import torch  # noqa: E402
from torch import nn  # noqa: E402


class Textures(torch.utils.data.Dataset):
    """Waves, of which each kind has a direction and a length of its own, under noise. Drawn when asked for, as loaders do."""

    def __init__(self, count, size, seed):
        self.count, self.size, self.seed = count, size, seed
        self.rows, self.columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        kind = index % 10
        angle, length = torch.tensor(kind * 0.314), 3 + kind % 5
        phase = 6.28 * torch.rand(1, generator=generator)
        wave = torch.sin((self.rows * torch.cos(angle) + self.columns * torch.sin(angle)) * (6.28 / length) + phase)
        return wave.expand(3, -1, -1) + 0.5 * torch.randn(3, self.size, self.size, generator=generator), kind


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.skip(x))


def network(width, depth):
    blocks = [Block(width << (i // 2), width << ((i + 1) // 2), 1 + i % 2) for i in range(depth)]
    outputs = width << (depth // 2)
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(outputs, 10))


def main():
    device = common.prepare(given)
    loss = nn.CrossEntropyLoss()
    common.train(network(given.width, given.depth), Textures(4096, 24, given.seed),
                 lambda model, images, kinds: loss(model(images), kinds), given, device)


if __name__ == "__main__":
    main()
