"""The common parts of gpt2.py and resnet.py: the rate of a step, its time, and the file with all losses."""

import contextlib
import json
import math
import os
import platform
import statistics

GROUP = 10  # steps between two events


def add_flags(parser, steps, rate, least):
    """Adds the flags that both programs have."""
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--untimed", type=int, default=20, help="first steps that are not timed")
    parser.add_argument("--warmup", type=int, default=steps // 10, help="steps in which the rate rises")
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--least", type=float, default=least, help="rate at the end")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="bf16")
    parser.add_argument("--mode", default="", help="mode of torch.compile; empty means eager")
    parser.add_argument("--out", metavar="FILE")


def rate(args, step):
    """Returns the learning rate of a step, as optim/schedule.go defines it."""
    if step < args.warmup:
        return args.rate * (step + 1) / args.warmup
    t, total = step - args.warmup, args.steps - args.warmup
    return args.least + (args.rate - args.least) * (1 + math.cos(math.pi * t / total)) / 2


class Session:
    """A rank's GPU and its part of the process group."""

    def __init__(self, args):
        import torch
        import torch.distributed as dist

        self.local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
        dist.init_process_group("nccl")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.args = args
        self.losses = torch.zeros(args.steps, device="cuda")
        self.events = []

    def parallel(self, model):
        """Returns the model to call: with several ranks a DistributedDataParallel, compiled if asked for."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        if self.ranks > 1:
            model = DistributedDataParallel(model, device_ids=[self.local], gradient_as_bucket_view=True)
        return torch.compile(model, mode=self.args.mode) if self.args.mode else model

    def lower(self):
        """Returns the context of the forward pass."""
        import torch

        return torch.autocast("cuda", dtype=torch.bfloat16) if self.args.precision == "bf16" else contextlib.nullcontext()

    def part(self, batch):
        """Returns this rank's samples of a batch, from 0."""
        return range(batch * self.rank // self.ranks, batch * (self.rank + 1) // self.ranks)

    def begin(self, step, optimizer):
        """Begins a step: records an event, sets the rate and clears the gradients."""
        import torch

        if step >= self.args.untimed and (step - self.args.untimed) % GROUP == 0:
            self.events.append(torch.cuda.Event(enable_timing=True))
            self.events[-1].record()
        for group in optimizer.param_groups:
            group["lr"] = rate(self.args, step)
        optimizer.zero_grad(set_to_none=True)

    def end(self, parameters, batch, versions):
        """Writes the result on rank 0 and leaves the process group. The losses are means over the whole batch."""
        import torch
        import torch.distributed as dist

        dist.all_reduce(self.losses)
        torch.cuda.synchronize()
        times = [1e3 * a.elapsed_time(b) / GROUP for a, b in zip(self.events, self.events[1:])]
        if self.rank == 0:
            result = {
                "engine": "torch-compile-" + self.args.mode if self.args.mode else "torch",
                "ranks": self.ranks,
                "global_batch": batch,
                "precision": self.args.precision,
                "parameters": parameters,
                "median_us": round(statistics.median(times), 1) if times else None,
                "memory": torch.cuda.max_memory_allocated(),
                "losses": (self.losses / self.ranks).tolist(),
                "libraries": {
                    "python": platform.python_version(), "torch": torch.__version__, "torch cuda": torch.version.cuda or "",
                    "torch cudnn": str(torch.backends.cudnn.version()), **versions,
                },
            }
            write(self.args.out, result)
        dist.destroy_process_group()


def write(path, result):
    """Writes the file completely, or leaves the old one."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(result, file)
        file.write("\n")
    os.replace(path + ".part", path)
