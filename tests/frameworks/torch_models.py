"""Modules of PyTorch whose steps test_torch_step.py exports: a GPT as GPT-2 is described, and one with running means."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, WORDS, LENGTH, SAMPLES = 256, 4, 4, 1024, 128, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        samples, length, _ = x.shape
        query, key, value = (y.view(samples, length, HEADS, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(samples, length, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), labels.flatten())


def gpt():
    module = Gpt()
    ids = torch.zeros(SAMPLES, LENGTH, dtype=torch.int64)
    return module, {"ids": ids, "labels": ids}, torch.optim.AdamW(module.parameters())


def normed():
    """Running means, dropout, a weight that is not trained, and a loss apart."""
    module = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 8))
    module[0].bias.requires_grad_(False)
    inputs = (torch.zeros(4, 16), torch.zeros(4, dtype=torch.int64))
    optimizer = torch.optim.SGD([one for one in module.parameters() if one.requires_grad], lr=0.1, momentum=0.9)
    return module, inputs, optimizer, lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1])


def no_loss():
    module = nn.Linear(16, 8)
    return module, (torch.zeros(4, 16),), torch.optim.SGD(module.parameters(), lr=0.1)


def other_weights():
    return nn.Linear(16, 8), (torch.zeros(4, 16),), torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


def reads_values():
    return nn.Linear(16, int(torch.ones(1).item()))
