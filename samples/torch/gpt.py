#!/usr/bin/env python3
"""Trains a small transformer to predict the next byte of a text: the source of these samples. Needs nothing
but PyTorch."""

import pathlib

import common

given = common.options(__doc__, steps=40, batch=16, width=64, depth=2)

import torch  # noqa: E402
from torch import nn  # noqa: E402

CONTEXT = 64


class Text(torch.utils.data.Dataset):
    """A window of bytes at each place, and the same window one further on."""

    def __init__(self):
        self.data = torch.tensor(list(pathlib.Path(__file__).read_bytes() + pathlib.Path(common.__file__).read_bytes()))

    def __len__(self):
        return len(self.data) - CONTEXT - 1

    def __getitem__(self, index):
        return self.data[index:index + CONTEXT], self.data[index + 1:index + CONTEXT + 1]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        # Written out: the fused kernels add up in no fixed order on the way back.
        scores = q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self, width, depth, heads=4):
        super().__init__()
        self.place = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        # A product with one-hot rows instead of nn.Embedding, whose way back adds up in no fixed order on a GPU.
        self.embed = nn.Linear(256, width, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        x = self.embed(nn.functional.one_hot(tokens, 256).to(self.embed.weight.dtype)) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main():
    device = common.prepare(given)

    def loss_of(model, tokens, following):
        return nn.functional.cross_entropy(model(tokens).float().view(-1, 256), following.reshape(-1))

    common.train(Transformer(given.width, given.depth), Text(), loss_of, given, device)


if __name__ == "__main__":
    main()
