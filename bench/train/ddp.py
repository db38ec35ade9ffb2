#!/usr/bin/env python3
"""Times the training steps of torch's DistributedDataParallel, for bench/train.sh.

    python3 -m torch.distributed.run --standalone --nproc-per-node 2 ddp.py --model mlp --precision tf32 --out FILE
    python3 ddp.py --write-mnist FOLDER     random images in MNIST's format, for examples/ddp; needs no torch

FILE gets one row per engine. It is rewritten after each engine, so that results remain if a later engine hangs:

    torch               DistributedDataParallel, eager
    torch-compile-MODE  the same under torch.compile(mode=MODE)
    torch-zero          DistributedDataParallel with ZeroRedundancyOptimizer
    torch-fsdp          fully_shard of every layer, keeping parameters after the forward pass (SHARD_GRAD_OP)
    torch-fsdp-full     the same, gathering parameters again for the backward pass (FULL_SHARD)

All use Adam with fused=True, default buckets, and a random batch in pinned memory. With --staging yes each step first
copies the batch to the device, on the step's stream; with no it stays there. A step is forward, backward and optimizer.
Times are by CUDA events around groups of ten steps, on the slowest rank: median_us is the median over the groups, mean_us
the mean, both per step.

With --device cpu ranks use gloo and divide the cores, each with as many threads as it has cores, and times are by the
host's clock.

The models are those of examples/ddp, examples/mlp and examples/lm, parameter for parameter; bench/compare compares the
numbers of parameters.
"""

import argparse
import os
import random
import struct
import sys

GROUP = 10  # steps between two events

# Samples per step and rank, and Adam's learning rate. The sizes of the models are in torch_train.py.
MODELS = {
    "mlp": {"batch": 128, "rate": 1e-3},
    "wide": {"batch": 512, "rate": 1e-4},
    "cnn": {"batch": 256, "rate": 1e-3},
    "lm": {"batch": 16, "rate": 1e-3},
}

LM = {"layers": 4, "heads": 8, "width": 256, "hidden": 1024, "context": 128}


def parse_args(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-mnist", metavar="FOLDER")
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--out", metavar="FILE")
    parser.add_argument("--text", metavar="FILE", help="text of the lm, whose characters are the vocabulary")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--staging", choices=["yes", "no"], default="yes")
    parser.add_argument("--modes", default="default,reduce-overhead", help="modes of torch.compile; empty means none")
    parser.add_argument("--sharded", action="store_true", help="measure torch-zero, torch-fsdp and torch-fsdp-full as well")
    parser.add_argument("--deadline", type=float, default=100, metavar="SECONDS", help="time after which no engine starts")
    args = parser.parse_args(argv)
    if not args.write_mnist and not (args.model and args.out):
        parser.error("--model and --out are needed")
    if args.device == "cpu" and args.precision != "fp32":
        parser.error("--device cpu measures fp32 alone")
    if args.model == "lm" and not args.text:
        parser.error("--model lm needs --text")
    if args.steps < GROUP or args.warmup < 1:
        parser.error(f"--steps is at least {GROUP}, --warmup at least 1")
    return args


def write_mnist(folder, train=8192, test=100, side=28):
    """Writes images of noise with labels, equal for every call, as four idx files."""
    os.makedirs(folder, exist_ok=True)
    source = random.Random(1)
    for prefix, count in (("train", train), ("t10k", test)):
        with open(os.path.join(folder, prefix + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, side, side) + source.randbytes(count * side * side))
        with open(os.path.join(folder, prefix + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


def main(argv):
    """Runs the program."""
    args = parse_args(argv)
    if args.write_mnist:
        write_mnist(args.write_mnist)
        return 0
    # Imported here because --write-mnist needs no torch.
    import torch_train

    return torch_train.measure(args, MODELS[args.model], LM, GROUP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
