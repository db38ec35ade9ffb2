#!/usr/bin/env python3
"""Trains a ResNet by torch's DistributedDataParallel, for bench/models.sh, and records the loss of every step.

    python3 resnet.py --make FOLDER --model resnet50
    python3 -m torch.distributed.run --standalone --nproc-per-node 2 resnet.py --model resnet50 --made FOLDER \\
        --batch 256 --steps 100 --out FILE

--make writes what both sides begin with: FOLDER/initial.safetensors, the random weights of a network of torchvision,
FOLDER/images, and FOLDER/model.json, the sizes. The images of resnet50 are a folder of PNG files of 256x256, two of each of
1000 classes, of which both sides take the middle 224x224. Those of resnet18 are files of CIFAR-10, for a network with a 3x3
first convolution and without pooling after it. Each class has a pattern, with noise.

The network is in channels_last, each rank normalizes over its own samples, and nothing is changed at random. Step s has the
samples from s*batch on, from the beginning again where less than a batch is left. Each rank has a contiguous part of a batch.
The images are on the GPU from the start, and are normalized there in each step. The optimizer is SGD with momentum and
fused=True; the rate rises in the warm-up and falls as half a cosine. FILE gets the losses, which are means over the whole
batch, the time of a step by CUDA events around groups of ten steps after the warm-up, and the memory of the allocator.
"""

import argparse
import os
import sys

import curve

# The means and deviations of examples/resnet/pictures.
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

SMALL = ("resnet18",)  # the networks for CIFAR-10
FILE_SIDE, SIDE = 256, 224  # of an image of a folder, and of a sample
CLASSES, EACH = 1000, 2  # of a folder, and images of each
RECORDS = 10240  # images of CIFAR-10


def parse_args(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="FOLDER")
    parser.add_argument("--made", metavar="FOLDER")
    parser.add_argument("--model", choices=["resnet18", "resnet50"], default="resnet50")
    parser.add_argument("--batch", type=int, default=128, help="samples of a step over all ranks")
    curve.add_flags(parser, steps=100, rate=0.1, least=0.0)
    parser.add_argument("--decay", type=float, default=1e-4)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--smoothing", type=float, default=0.1)
    args = parser.parse_args(argv)
    if not args.make and not (args.made and args.out):
        parser.error("--made and --out are needed, or --make")
    return args


def network(name):
    """Returns the network, and the rows and columns of its images."""
    import torch
    import torchvision

    small = name in SMALL
    model = getattr(torchvision.models, name)(num_classes=10 if small else CLASSES)
    if small:
        model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = torch.nn.Identity()
    return model, 32 if small else SIDE


def operations(model, side):
    """Returns the multiplications and additions of a forward pass of one image, in convolutions and products."""
    import torch

    total = 0

    def count(layer, _, out):
        nonlocal total
        total += 2 * out[0].numel() * layer.weight[0].numel()

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, side, side))
    for hook in hooks:
        hook.remove()
    return total


def pictures(label, count, side, block, generator):
    """Returns count images (3, side, side) of bytes of a class: its pattern of blocks, with noise of blocks."""
    import torch

    n = side // block
    pattern = torch.Generator().manual_seed(label)
    means = 60 + 120 * torch.rand(3, n, n, generator=pattern)
    noise = 70 * torch.rand(count, 3, n, n, generator=generator)
    return (means + noise).to(torch.uint8).repeat_interleave(block, 2).repeat_interleave(block, 3)


def make(args):
    """Writes initial weights and images."""
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    torch.manual_seed(1)
    model, side = network(args.model)
    os.makedirs(args.make, exist_ok=True)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, os.path.join(args.make, "initial.safetensors"))
    source = torch.Generator().manual_seed(2)
    folder = os.path.join(args.make, "images")
    if args.model in SMALL:
        os.makedirs(folder)
        labels = torch.randint(10, (RECORDS,), generator=source)
        records = [bytes([label]) + pictures(label, 1, 32, 2, source).numpy().tobytes() for label in labels.tolist()]
        for name, part in (("data_batch_1.bin", records), ("test_batch.bin", records[:100])):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"".join(part))
    else:
        for label in range(CLASSES):
            into = os.path.join(folder, "train", f"{label:04d}")
            os.makedirs(into)
            for k, image in enumerate(pictures(label, EACH, FILE_SIDE, 16, source)):
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(os.path.join(into, f"{k}.png"), compress_level=1)
        os.makedirs(os.path.join(folder, "val", "0000"))
        os.link(os.path.join(folder, "train", "0000", "0.png"), os.path.join(folder, "val", "0000", "0.png"))
    curve.write(os.path.join(args.make, "model.json"), {
        "name": args.model, "side": side, "operations": operations(model, side), "unit": "images", "units": 1,
    })


def read(args):
    """Returns all images as bytes and their labels, on the device, and means and deviations."""
    import numpy
    import torch
    from PIL import Image

    folder = os.path.join(args.made, "images")
    if args.model in SMALL:
        records = numpy.fromfile(os.path.join(folder, "data_batch_1.bin"), dtype=numpy.uint8).reshape(-1, 3073)
        images, labels = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
        return torch.from_numpy(images.copy()).cuda(), torch.from_numpy(labels.astype(numpy.int64)).cuda(), CIFAR
    at = (FILE_SIDE - SIDE) // 2
    images, labels = [], []
    for name in sorted(os.listdir(os.path.join(folder, "train"))):
        for k in range(EACH):
            with Image.open(os.path.join(folder, "train", name, f"{k}.png")) as image:
                images.append(torch.from_numpy(numpy.asarray(image)[at : at + SIDE, at : at + SIDE].copy()).permute(2, 0, 1))
            labels.append(int(name))
    return torch.stack(images).cuda(), torch.tensor(labels).cuda(), IMAGENET


def train(args):
    """Trains, and writes the result on rank 0."""
    import torch
    import torch.nn.functional as F
    import torchvision
    from safetensors.torch import load_file

    session = curve.Session(args)
    torch.backends.cudnn.benchmark = True
    model, _ = network(args.model)
    model.load_state_dict(load_file(os.path.join(args.made, "initial.safetensors")))
    model = model.cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=args.momentum, weight_decay=args.decay, fused=True)
    trained = session.parallel(model)
    images, labels, (mean, deviation) = read(args)
    mean, deviation = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (mean, deviation))
    batches = len(images) // args.batch
    if batches == 0:
        raise SystemExit(f"--batch {args.batch}: there are {len(images)} images")
    part = session.part(args.batch)
    for step in range(args.steps):
        session.begin(step, optimizer)
        first = step % batches * args.batch
        rows = slice(first + part.start, first + part.stop)
        inputs = ((images[rows].float() / 255 - mean) / deviation).to(memory_format=torch.channels_last)
        with session.lower():
            loss = F.cross_entropy(trained(inputs), labels[rows], label_smoothing=args.smoothing)
        loss.backward()
        optimizer.step()
        session.losses[step] = loss.detach()
    session.end(sum(p.numel() for p in model.parameters()), args.batch, {"torchvision": torchvision.__version__})


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
