"""Mini-batches in two processes: DistributedDataParallel averages the gradient of the whole lists."""

import subprocess
import sys

import pytest

pytest.importorskip("sentence_transformers", reason='needs pip install "sinkprop[test-frontends]"')

PROGRAM = """
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from sinkprop.rerank.replay import replayed_scores
from sinkprop.torch import SinkPropLoss

LOSS = SinkPropLoss("ndcg@10")

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

def documents(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(20, 4, generator=generator), torch.randint(0, 3, (20,), generator=generator)

def gradient(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])

def work(rank):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(network())
    x, y = documents(rank)
    batches = [{"x": part} for part in x.split(6)]
    for _ in range(2):  # the second step would fail if the first were not synchronized once
        model.zero_grad()
        LOSS(replayed_scores(lambda batch: model(batch["x"]), batches, model), y).backward()
    alone = network()
    sum(LOSS(alone(x).reshape(-1), y) / 2 for x, y in map(documents, range(2))).backward()
    torch.testing.assert_close(gradient(model), gradient(alone), rtol=1e-4, atol=1e-7)
    assert gradient(alone).abs().max() > 1e-3
    dist.barrier()
    print("same", flush=True)
    os._exit(0)  # gloo's threads now and then keep a forked process from its end

if __name__ == "__main__":
    torch.set_num_threads(1)
    processes = [mp.get_context("fork").Process(target=work, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
"""


def test_the_gradient_of_two_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "meeting")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.count("same") == 2, done.stderr
