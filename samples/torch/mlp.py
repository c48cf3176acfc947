#!/usr/bin/env python3
"""Trains a multilayer perceptron to tell ten clouds of points apart. Needs nothing but PyTorch."""

import common

given = common.options(__doc__, steps=60, batch=128, width=256, depth=3)

import torch  # noqa: E402
from torch import nn  # noqa: E402


def clouds(points, inputs, seed):
    """Points around ten centres, and which centre each belongs to."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(10, inputs, generator=generator)
    labels = torch.randint(0, 10, (points,), generator=generator)
    return torch.utils.data.TensorDataset(centres[labels] + 2 * torch.randn(points, inputs, generator=generator), labels)


def network(inputs, width, depth):
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def main():
    device = common.prepare(given)
    loss = nn.CrossEntropyLoss()
    common.train(network(64, given.width, given.depth), clouds(8192, 64, given.seed),
                 lambda model, inputs, labels: loss(model(inputs), labels), given, device)


if __name__ == "__main__":
    main()
