"""The part of ddp.py that needs torch: models, engines, and the clock."""

import contextlib
import gc
import json
import os
import platform
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def perceptron(widths):
    """Fully connected layers with tanh between them."""
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Linear(a, b))
        if i + 2 < len(widths):
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


def convolutional():
    """Two 3x3 convolutions without bias, each with a rectifier and 2x2 max pooling, then fully connected layers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Block(nn.Module):
    """Causal attention and a perceptron, each after a normalization and added to its input: a block of GPT-2."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        batch, context, width = x.shape
        split = [y.view(batch, context, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, dim=2)]
        y = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, context, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    """A GPT-2, whose embedding is also the output layer."""

    def __init__(self, vocabulary, layers, heads, width, hidden, context):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embedding.weight).flatten(0, 1)


class Task:
    """A model's module, and a random batch on the host, in pinned memory if there is a GPU."""

    def __init__(self, args, sizes, lm, rank):
        self.args, self.sizes, self.lm = args, sizes, lm
        source = torch.Generator().manual_seed(1 + rank)
        n = sizes["batch"]
        labels = 10
        if args.model == "mlp":
            inputs = torch.randn(n, 784, generator=source)
        elif args.model == "wide":
            inputs = torch.randn(n, 4096, generator=source)
        elif args.model == "cnn":
            inputs = torch.randn(n, 1, 28, 28, generator=source)
        else:
            with open(args.text, "rb") as file:
                self.vocabulary = labels = len(set(file.read()))
            inputs = torch.randint(labels, (n, lm["context"]), generator=source)
            n *= lm["context"]
        targets = torch.randint(labels, (n,), generator=source)
        self.host = [inputs, targets]
        if args.device == "cuda":
            self.host = [t.pin_memory() for t in self.host]
        self.device = [t.to(args.device, copy=True) for t in self.host]

    def module(self):
        """Returns the module, with the same weights on every rank."""
        torch.manual_seed(1)
        if self.args.model == "mlp":
            m = perceptron([784, 512, 512, 10])
        elif self.args.model == "wide":
            m = perceptron([4096, 4096, 4096, 4096, 4096, 10])
        elif self.args.model == "cnn":
            m = convolutional()
        else:
            m = Transformer(self.vocabulary, **self.lm)
        return m.to(self.args.device)

    def batch(self):
        """Returns the batch on the device, with --staging yes as a new copy."""
        if self.args.staging == "yes":
            for device, host in zip(self.device, self.host):
                device.copy_(host, non_blocking=True)
        return self.device


def adam(parameters, rate):
    """Returns the optimizer of all engines except torch-zero."""
    return torch.optim.Adam(parameters, lr=rate, fused=True)


def engines(args):
    """Returns the names of the engines, in order."""
    names = ["torch"]
    names += ["torch-compile-" + mode for mode in args.modes.split(",") if mode]
    if args.sharded:
        names += ["torch-zero", "torch-fsdp", "torch-fsdp-full"]
    return names


def prepare(name, task, local):
    """Returns a module for training, and its optimizer."""
    module, rate = task.module(), task.sizes["rate"]
    if name.startswith("torch-fsdp"):
        from torch.distributed.fsdp import fully_shard

        again = name == "torch-fsdp-full"
        parts = module.layers if isinstance(module, Transformer) else [m for m in module if any(True for _ in m.parameters())]
        for part in parts:
            fully_shard(part, reshard_after_forward=again)
        fully_shard(module, reshard_after_forward=again)
        return module, adam(module.parameters(), rate)
    module = DistributedDataParallel(module, device_ids=[local] if task.args.device == "cuda" else None)
    if name == "torch-zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return module, ZeroRedundancyOptimizer(module.parameters(), optimizer_class=torch.optim.Adam, lr=rate, fused=True)
    optimizer = adam(module.parameters(), rate)
    if name.startswith("torch-compile-"):
        module = torch.compile(module, mode=name.removeprefix("torch-compile-"))
    return module, optimizer


class Clock:
    """Times in the device's work: events of a GPU, or the clock of a host, which works synchronously."""

    def __init__(self, device, moments):
        self.gpu = device == "cuda"
        self.at = [torch.cuda.Event(enable_timing=True) if self.gpu else 0.0 for _ in range(moments)]

    def mark(self, i):
        """Records time i."""
        if self.gpu:
            self.at[i].record()
        else:
            self.at[i] = time.perf_counter()

    def spans(self):
        """Returns the microseconds between times, after all work."""
        synchronize("cuda" if self.gpu else "cpu")
        return [1e3 * a.elapsed_time(b) if self.gpu else 1e6 * (b - a) for a, b in zip(self.at, self.at[1:])]


def synchronize(device):
    """Waits for the work of a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def time_engine(name, task, local, group):
    """Returns a row of the result."""
    args = task.args
    parameters = sum(p.numel() for p in task.module().parameters())
    module, optimizer = prepare(name, task, local)
    lower = torch.autocast(args.device, dtype=torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()
    total = torch.zeros((), device=args.device)

    def step():
        inputs, targets = task.batch()
        optimizer.zero_grad(set_to_none=True)
        with lower:
            loss = F.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())  # read at the end, so that a step does not wait for it
        return loss

    began = time.monotonic()
    for _ in range(args.warmup):
        step()
    synchronize(args.device)
    warm = time.monotonic() - began
    dist.barrier()
    total.zero_()
    groups = args.steps // group
    clock = Clock(args.device, groups + 1)
    clock.mark(0)
    for i in range(groups):
        for _ in range(group):
            loss = step()
        clock.mark(i + 1)
    times = [us / group for us in clock.spans()]
    worst = torch.tensor([statistics.median(times), statistics.mean(times)], device=args.device, dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    median, mean = worst.tolist()
    return {
        "engine": name,
        "parameters": parameters,
        "rank_batch": task.sizes["batch"],
        "warmup": args.warmup,
        "warmup_s": round(warm, 3),
        "steps": groups * group,
        "median_us": round(median, 3),
        "mean_us": round(mean, 3),
        "final_loss": float(loss.detach()),
        "mean_loss": float(total) / (groups * group),
    }


def in_time(args, began):
    """Returns rank 0's decision whether another engine may start."""
    go = torch.tensor([1 if time.monotonic() - began < args.deadline else 0], device=args.device)
    dist.broadcast(go, 0)
    return bool(go.item())


def libraries(device):
    """Returns the versions of the measured libraries."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cpu":
        return found
    return found | {
        "torch cuda": torch.version.cuda or "",
        "torch nccl": ".".join(str(v) for v in torch.cuda.nccl.version()),
        "torch cudnn": str(torch.backends.cudnn.version()),
    }


def write(args, rows):
    """Writes the file completely, or leaves the old one."""
    result = {
        "model": args.model,
        "precision": args.precision,
        "ranks": dist.get_world_size(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "staging": args.staging,
        "libraries": libraries(args.device),
        "rows": rows,
    }
    with open(args.out + ".part", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    os.replace(args.out + ".part", args.out)


def measure(args, sizes, lm, group):
    """Measures all engines, one after the other."""
    began = time.monotonic()
    local = int(os.environ["LOCAL_RANK"])
    if args.device == "cuda":
        torch.cuda.set_device(local)
        allow = args.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = allow
        torch.backends.cudnn.allow_tf32 = allow
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"])))
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    rank = dist.get_rank()
    task = Task(args, sizes, lm, rank)
    rows = []
    for name in engines(args):
        if not in_time(args, began):
            rows.append({"engine": name, "skipped": f"{args.deadline:g} s were over before it could begin"})
            continue
        try:
            rows.append(time_engine(name, task, local, group))
        except Exception as error:  # an engine that does not support this model: the others continue, if all ranks fail
            print(f"{name}: {error}", file=sys.stderr)
            rows.append({"engine": name, "skipped": str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)})
        torch._dynamo.reset()
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()
        if rank == 0:
            write(args, rows)
    if rank == 0:
        write(args, rows)
    dist.destroy_process_group()
    return 0
