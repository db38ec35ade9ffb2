#!/usr/bin/env python3
"""Times the collectives of torch.distributed (NCCL) and of torch's symmetric memory, for bench/gpu.sh.

    python3 -m torch.distributed.run --standalone --nproc-per-node 2 torch_yardstick.py --out FOLDER [--name NAME]

It writes two files to FOLDER, NAME-queued.json and NAME-graph.json, with the keys of symgrad bench --json: operations
queued back to back on a stream, and launches of a captured CUDA graph of them. Times are by CUDA events, of the slowest
rank. median_us is the median over the rounds; each round measures all rows. Every row is checked before it is timed.

    torch            torch.distributed: all_reduce in place, reduce_scatter_tensor, all_gather_into_tensor
    torch-one-shot   symm_mem.one_shot_all_reduce, whose result is another tensor, up to --one-shot-most bytes
    torch-two-shot   symm_mem.two_shot_all_reduce_, in place

NVLink multicast is not used: no multimem operation is called.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text):
    """Parses a number of bytes such as "64M", with the suffix K, M or G."""
    unit = UNITS.get(text[-1:].upper(), 1)
    number = text[:-1] if unit > 1 else text
    value = int(number) * unit
    if value < 1:
        raise ValueError(f"invalid size {text!r}")
    return value


def sizes(least, most):
    """Powers of two from least to most."""
    list_ = []
    size = least
    while size <= most:
        list_.append(size)
        size *= 2
    return list_


def iterations(size, launches):
    """Number of operations of a row, as in internal/tool/perf: about 5 ms per row, divided among the launches of a graph."""
    n = int(5e-3 / (8e-6 + size / 250e9))
    if launches:
        return min(max(n // launches, 5), 100)
    return min(max(n, 10), 300)  # queueing is slow in torch


def parse_args(argv):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--name", default="torch")
    parser.add_argument("--least", type=parse_size, default=1 << 10, metavar="SIZE")
    parser.add_argument("--most", type=parse_size, default=256 << 20, metavar="SIZE")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--ops", default="allreduce,reducescatter,allgather")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--launches", type=int, default=10, help="launches of a graph")
    parser.add_argument("--one-shot-most", type=parse_size, default=16 << 20, metavar="SIZE")
    return parser.parse_args(argv)


class Case:
    """One operation on fixed buffers: functions that queue and check it, and its names in the result."""

    def __init__(self, op, engine, in_place, reset, run, wrong):
        self.op, self.engine, self.in_place = op, engine, in_place
        self.reset, self.run, self.wrong = reset, run, wrong


class Yardstick:
    """The buffers and the cases of one rank."""

    def __init__(self, args, torch, dist):
        self.args, self.torch, self.dist = args, torch, dist
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.types = {"f32": torch.float32, "bf16": torch.bfloat16}
        self.notes = []
        self.a = torch.empty(args.most, dtype=torch.uint8, device=self.device)
        self.b = torch.empty(args.most, dtype=torch.uint8, device=self.device)
        self.symmetric, self.group_name = self.open_symmetric()

    def open_symmetric(self):
        """Returns symmetric memory of the buffers' size and the name of its group; None if torch has none."""
        try:
            import torch.distributed._symmetric_memory as symm_mem

            group = self.dist.group.WORLD
            memory = symm_mem.empty(self.args.most, dtype=self.torch.uint8, device=self.device)
            try:
                symm_mem.rendezvous(memory, group=group)
            except (TypeError, RuntimeError):
                symm_mem.enable_symm_mem_for_group(group.group_name)  # before torch 2.7
                symm_mem.rendezvous(memory, group=group.group_name)
            return memory, group.group_name
        except Exception as error:  # noqa: BLE001 any missing feature becomes a note
            self.notes.append(f"symm_mem: {type(error).__name__}: {error}")
            return None, ""

    def view(self, memory, dtype, count):
        """Returns the first count elements of memory."""
        return memory[: count * dtype.itemsize].view(dtype)

    def cases(self, op, dtype, size):
        """Returns the cases of op at a size, the bytes of the larger buffer of a rank."""
        count = size // dtype.itemsize
        part = count // self.ranks
        if op == "allreduce":
            return self.all_reduces(dtype, count, size)
        if part == 0 or part * self.ranks != count:
            return []
        if op == "reducescatter":
            src, dst = self.view(self.a, dtype, count), self.view(self.b, dtype, part)
            return [
                Case(op, "torch", False, lambda: src.fill_(self.rank + 1),
                     lambda: self.dist.reduce_scatter_tensor(dst, src), lambda: self.differing(dst, self.total()))
            ]
        src, dst = self.view(self.a, dtype, part), self.view(self.b, dtype, count)
        return [
            Case(op, "torch", False, lambda: src.fill_(self.rank + 1),
                 lambda: self.dist.all_gather_into_tensor(dst, src), lambda: self.wrong_blocks(dst, part))
        ]

    def all_reduces(self, dtype, count, size):
        """Returns torch.distributed in place, one-shot out of place, two-shot in place."""
        torch = self.torch
        x = self.view(self.a, dtype, count)
        list_ = [
            Case("allreduce", "torch", True, lambda: x.fill_(self.rank + 1), lambda: self.dist.all_reduce(x),
                 lambda: self.differing(x, self.total()))
        ]
        if self.symmetric is None or size < 16 * self.ranks:  # a kernel moves 16 bytes of each block at least
            return list_
        y = self.view(self.symmetric, dtype, count)
        name = self.group_name
        if size <= self.args.one_shot_most:
            result = {}

            def one_shot():
                result["x"] = torch.ops.symm_mem.one_shot_all_reduce(y, "sum", name)

            list_.append(Case("allreduce", "torch-one-shot", False, lambda: y.fill_(self.rank + 1), one_shot,
                              lambda: self.differing(result["x"], self.total())))
        list_.append(Case("allreduce", "torch-two-shot", True, lambda: y.fill_(self.rank + 1),
                          lambda: torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", name),
                          lambda: self.differing(y, self.total())))
        return list_

    def total(self):
        """Returns the sum of all ranks' inputs."""
        return self.ranks * (self.ranks + 1) // 2

    def differing(self, x, value):
        """Counts the elements of x that differ from value."""
        return int((x != value).sum().item())

    def wrong_blocks(self, x, part):
        """Counts the elements of an allgather that are not the right rank's."""
        return sum(self.differing(x[r * part : (r + 1) * part], r + 1) for r in range(self.ranks))

    def meet(self):
        """Waits for all ranks and for the device."""
        self.torch.cuda.synchronize()
        self.dist.barrier()
        self.torch.cuda.synchronize()

    def checked(self, case):
        """Runs a case once. Returns the number of wrong elements on all ranks."""
        case.reset()
        self.meet()
        case.run()
        self.meet()
        return int(self.over_ranks(float(case.wrong()), self.dist.ReduceOp.SUM))

    def over_ranks(self, value, op):
        """Reduces one number over all ranks."""
        x = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(x, op=op)
        return x.item()

    def timed(self, run, launches, each):
        """Returns microseconds of one operation on the slowest rank."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.meet()
        run()  # untimed: synchronizes the ranks' devices, and includes the first launch
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        own = begin.elapsed_time(end) * 1e3 / (launches * each)
        return self.over_ranks(own, self.dist.ReduceOp.MAX)

    def queued(self, case, size):
        """Returns the time of a case that is queued back to back, and its number of operations."""
        n = iterations(size, 0)
        for _ in range(max(n // 10, 2)):
            case.run()
        return self.timed(case.run, n, 1), n

    def graph(self, case, size):
        """Returns the time of a case that is captured and launched, and its number of operations."""
        n, launches = iterations(size, self.args.launches), self.args.launches
        for _ in range(3):
            case.run()
        self.meet()
        graph = self.torch.cuda.CUDAGraph()
        # Other threads, as NCCL's watchdog, may use the driver meanwhile.
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(n):
                case.run()
        self.meet()
        graph.replay()
        took = self.timed(graph.replay, launches, n)
        self.meet()
        del graph
        return took, n * launches

    def row(self, case, dtype_name, size):
        """Returns a row without its times, with the keys of symgrad bench."""
        row = {
            "op": case.op, "bytes": size, "count": size // self.types[dtype_name].itemsize, "dtype": dtype_name, "redop": "sum",
            "root": -1, "in_place": case.in_place, "engine": case.engine,
        }
        if case.op != "allreduce":
            row["count"] //= self.ranks
        if case.op == "allgather":
            row["redop"] = "none"
        return row

    def add(self, row, times, case, measure):
        """Measures one round of a row and adds its time to times. The first round checks the result before."""
        try:
            if times:
                case.reset()
            else:
                row["wrong"] = self.checked(case)
            took, row["iters"] = measure(case, row["bytes"])
            times.append(took)
        except (RuntimeError, NotImplementedError, AttributeError) as error:  # on all ranks: torch does not have it
            row.update(iters=0, time_us=0, median_us=0, wrong=None, skipped=str(error).partition("\n")[0])

    def measure(self, measure):
        """Measures all rows of one mode."""
        rows = []
        for turn in range(self.args.rounds):
            for i, (case, dtype_name, size) in enumerate(self.all_cases()):
                if not turn:
                    rows.append((self.row(case, dtype_name, size), []))
                if "skipped" not in rows[i][0]:
                    self.add(*rows[i], case, measure)
        for row, times in rows:
            if "skipped" not in row:
                row.update(time_us=round(statistics.fmean(times), 3), min_us=round(min(times), 3),
                           median_us=round(statistics.median(times), 3), max_us=round(max(times), 3))
        return [row for row, _ in rows]

    def all_cases(self):
        """Returns the cases of all operations, element types and sizes."""
        for op in self.args.ops.split(","):
            for dtype_name in self.args.dtypes.split(","):
                for size in sizes(self.args.least, self.args.most):
                    for case in self.cases(op, self.types[dtype_name], size):
                        yield case, dtype_name, size


def libraries(torch):
    """Returns the versions of the measured libraries."""
    nccl = torch.cuda.nccl.version()
    if not isinstance(nccl, int):
        nccl = ".".join(str(part) for part in nccl)
    return {"torch": torch.__version__, "torch nccl": str(nccl), "torch cuda": str(torch.version.cuda),
            "python": platform.python_version()}


def main(argv):
    """Measures as one rank of torch's launcher."""
    args = parse_args(argv)
    import torch
    import torch.distributed as dist

    began = time.monotonic()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    yard = Yardstick(args, torch, dist)
    for mode, measure in (("queued", yard.queued), ("graph", yard.graph)):
        rows = yard.measure(measure)
        if yard.rank:
            continue
        result = {
            "settings": {"backend": "torch", "ranks": yard.ranks, "graph": args.launches if mode == "graph" else 0,
                         "rounds": args.rounds, "timing": "events"},
            "libraries": libraries(torch), "notes": yard.notes, "rows": rows,
        }
        with open(os.path.join(args.out, f"{args.name}-{mode}.json"), "w", encoding="utf-8") as file:
            json.dump(result, file)
            file.write("\n")
    if yard.rank == 0:
        print(f"torch {torch.__version__}: {time.monotonic() - began:.1f} s", flush=True)
        for note in yard.notes:
            print("note:", note, file=sys.stderr, flush=True)
    yard.meet()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
