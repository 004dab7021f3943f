"""Run by torchrun, four processes: steps of a small model as a plan's script makes them, and alone on all samples.

    torch_steps.py PLAN.py     prints, on rank 0, the losses of both as JSON"""

import importlib.util
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining.stage import _PipelineStageBase

STEPS, WORDS, LENGTH, WIDTH, LAYERS = 3, 50, 8, 16, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 32), torch.nn.Linear(32, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Modules called as those of the fixture that is planned."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.h = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.wte(words) + self.wpe(torch.arange(LENGTH, device=words.device))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def loss(output, target):
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def model():
    torch.manual_seed(1)
    return Model()


def main():
    spec = importlib.util.spec_from_file_location("plan", sys.argv[1])
    plan = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan)
    # What opens connections in front of the first step sends 8 bytes and receives 4: gloo, unlike NCCL, refuses that.
    _PipelineStageBase._get_init_p2p_neighbors_ops = lambda stage: []
    dist.init_process_group("gloo")
    devices = plan.mesh("cpu")
    each = plan.SAMPLES * plan.MICRO_BATCHES
    torch.manual_seed(2)
    batches = [(words, (7 * words + 1) % WORDS) for words in torch.randint(WORDS, (STEPS, each * plan.REPLICAS, LENGTH))]

    step = plan.Step(model(), (torch.zeros(plan.SAMPLES, LENGTH, dtype=torch.long),), loss, devices, torch.device("cpu"), lr=0.01)
    replica = devices["replica"].get_local_rank()
    planned = []
    for words, target in batches:
        own = slice(replica * each, (replica + 1) * each)
        losses = step(words[own], target[own])
        known = torch.tensor([sum(one.item() for one in losses), len(losses)], dtype=torch.float64)
        dist.all_reduce(known)
        planned.append(float(known[0] / known[1]))

    alone, single = [], model()
    optimizer = torch.optim.AdamW(single.parameters(), lr=0.01)
    for words, target in batches:
        optimizer.zero_grad()
        one = loss(single(words), target)
        one.backward()
        optimizer.step()
        alone.append(one.item())
    if dist.get_rank() == 0:
        print(json.dumps({"planned": planned, "alone": alone}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
