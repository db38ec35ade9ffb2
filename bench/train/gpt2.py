#!/usr/bin/env python3
"""Trains GPT-2 by torch's DistributedDataParallel, for bench/gpt2.sh, and records the loss of every step.

    python3 gpt2.py --make FOLDER --layers 12 --width 768 --heads 12 --context 1024 --tokens 40000000
    python3 -m torch.distributed.run --standalone --nproc-per-node 2 gpt2.py --weights FOLDER/initial --tokens FOLDER/train.bin \\
        --batch 64 --steps 300 --out FILE

--make writes what both sides begin with: FOLDER/initial, the random weights of a GPT-2 of the transformers library, and
FOLDER/train.bin, tokens of uint16. Half of the tokens follow from the one before, the others are drawn by Zipf's law, so
there is something to learn and every step has a new batch.

The model is GPT2LMHeadModel with scaled_dot_product_attention and without dropout. Step s has the samples from s*batch on,
and sample i the tokens from i*context on, each with the next one as its target. Each rank has a contiguous part of a batch.
The optimizer is AdamW with fused=True, without weight decay of vectors; the rate rises in the warm-up and falls as half a
cosine, as optim/schedule.go defines it. FILE gets the losses, which are means over the whole batch, the time of a step by
CUDA events around groups of ten steps after the warm-up, and the memory of the allocator.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys

GROUP = 10  # steps between two events
VOCABULARY = 50304  # that of GPT-2, 50257, rounded up to a multiple of 64


def parse_args(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="FOLDER")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--weights", metavar="FOLDER")
    parser.add_argument("--tokens", metavar="FILE", help="with --make the number of tokens")
    parser.add_argument("--batch", type=int, default=32, help="samples of a step over all ranks")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--untimed", type=int, default=20, help="first steps that are not timed")
    parser.add_argument("--warmup", type=int, default=30, help="steps in which the rate rises")
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--least", type=float, default=6e-5, help="rate at the end")
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="bf16")
    parser.add_argument("--mode", default="", help="mode of torch.compile; empty means eager")
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args(argv)
    if not args.make and not (args.weights and args.tokens and args.out):
        parser.error("--weights, --tokens and --out are needed, or --make")
    return args


def make(args):
    """Writes initial weights and tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=args.context, n_embd=args.width, n_layer=args.layers, n_head=args.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    )
    GPT2LMHeadModel(config).save_pretrained(os.path.join(args.make, "initial"))
    count = int(args.tokens)
    source = torch.Generator().manual_seed(2)
    weights = 1.0 / torch.arange(1, 50258, dtype=torch.float64)
    drawn = torch.multinomial(weights, count, replacement=True, generator=source)
    follow = torch.randperm(50257, generator=source)
    follows = torch.rand(count, generator=source) < 0.5
    # A token that follows has the successor of the one before, which is drawn: no chains, so that all is one operation.
    before = torch.roll(drawn, 1)
    follows &= ~torch.roll(follows, 1)
    tokens = torch.where(follows, follow[before], drawn)
    tokens.to(torch.int32).numpy().astype("<u2").tofile(os.path.join(args.make, "train.bin"))


def rate(args, step):
    """Returns the learning rate of a step."""
    if step < args.warmup:
        return args.rate * (step + 1) / args.warmup
    t, total = step - args.warmup, args.steps - args.warmup
    return args.least + (args.rate - args.least) * (1 + math.cos(math.pi * t / total)) / 2


def optimizer_of(args, model):
    """Returns AdamW, with decay of matrices only."""
    import torch

    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": args.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.95), eps=1e-8, fused=True)


class Batches:
    """The parts of batches of one rank, from a file of tokens that is mapped into memory."""

    def __init__(self, args, context, rank, ranks):
        import torch

        self.tokens = torch.from_file(args.tokens, size=os.path.getsize(args.tokens) // 2, dtype=torch.uint16)
        self.samples = (len(self.tokens) - 1) // context
        self.context, self.batch = context, args.batch
        first, last = args.batch * rank // ranks, args.batch * (rank + 1) // ranks
        self.part = range(first, last)
        self.host = torch.empty(len(self.part), context + 1, dtype=torch.int64).pin_memory()

    def __call__(self, step):
        """Returns inputs and targets on the device."""
        for row, i in enumerate(self.part):
            at = (step * self.batch + i) % self.samples * self.context
            self.host[row].copy_(self.tokens[at : at + self.context + 1])
        both = self.host.to("cuda", non_blocking=True)
        return both[:, :-1], both[:, 1:]


def train(args):
    """Trains, and writes the result on rank 0."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from transformers import GPT2LMHeadModel

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = GPT2LMHeadModel.from_pretrained(args.weights, attn_implementation="sdpa", dtype=torch.float32).cuda().train()
    context = model.config.n_positions
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = optimizer_of(args, model)
    trained = DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=True) if ranks > 1 else model
    if args.mode:
        trained = torch.compile(trained, mode=args.mode)
    lower = torch.autocast("cuda", dtype=torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()
    batches = Batches(args, context, rank, ranks)
    losses = torch.zeros(args.steps, device="cuda")
    events = []
    for step in range(args.steps):
        if step >= args.untimed and (step - args.untimed) % GROUP == 0:
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        inputs, targets = batches(step)
        for group in optimizer.param_groups:
            group["lr"] = rate(args, step)
        optimizer.zero_grad(set_to_none=True)
        with lower:
            logits = trained(inputs).logits
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
        loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        losses[step] = loss.detach()
        torch.cuda.current_stream().synchronize()  # the buffer of the batch is free
    dist.all_reduce(losses)
    times = [1e3 * a.elapsed_time(b) / GROUP for a, b in zip(events, events[1:])]
    if rank == 0:
        write(args, parameters, ranks, losses / ranks, times)
    dist.destroy_process_group()


def write(args, parameters, ranks, losses, times):
    """Writes the file completely, or leaves the old one."""
    import torch
    import transformers

    result = {
        "engine": "torch-compile-" + args.mode if args.mode else "torch",
        "ranks": ranks,
        "global_batch": args.batch,
        "precision": args.precision,
        "parameters": parameters,
        "median_us": round(statistics.median(times), 1) if times else None,
        "memory": torch.cuda.max_memory_allocated(),
        "losses": losses.tolist(),
        "libraries": {
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
            "torch cuda": torch.version.cuda or "", "torch cudnn": str(torch.backends.cudnn.version()),
        },
    }
    with open(args.out + ".part", "w", encoding="utf-8") as file:
        json.dump(result, file)
        file.write("\n")
    os.replace(args.out + ".part", args.out)


def main(argv):
    """Runs the program."""
    args = parse_args(argv)
    if args.make:
        make(args)
    else:
        train(args)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
