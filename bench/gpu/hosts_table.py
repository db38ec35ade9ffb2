#!/usr/bin/env python3
"""Joins the results of bench/hosts-gpu.sh in one file, and prints short tables of them.

    python3 hosts_table.py FOLDER OUT

Exit code: 1 when losses on two hosts differ from those on one by more than a part in 10,000.
"""

import json
import os
import sys


def load(folder, name):
    """Returns a result, or None if its run failed."""
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def times(result):
    """Returns microseconds by engine and size, of rows without an error."""
    table = {}
    for row in (result or {}).get("rows") or []:
        us = row.get("median_us") or row.get("time_us") or row.get("avg_us")
        if us:
            table.setdefault(row.get("engine") or "auto", {})[row["bytes"]] = us
    return table


def train(folder, each, out):
    """Compares losses; returns whether they agree."""
    one, two = load(folder, f"train-1-{each}"), load(folder, f"train-2-{each}")
    if not one or not two:
        return True
    a, b = one.get("losses") or [one["final_loss"]], two.get("losses") or [two["final_loss"]]
    worst = max(abs(x - y) / max(abs(x), 1e-9) for x, y in zip(a, b))
    same = one["params_sha256"] == two["params_sha256"]
    out[f"train 2x{each}"] = {
        "steps": len(a), "loss, one host": a[-1], "loss, two hosts": b[-1], "largest relative difference": worst,
        "equal bits": same, "seconds": [one["seconds"], two["seconds"]],
    }
    print(f"train 2x{each}: loss {a[-1]:.7g} on one host, {b[-1]:.7g} on two, largest difference {worst:.2g}, equal bits {same}, "
          f"{one['seconds']:.3g} s and {two['seconds']:.3g} s")
    return worst < 1e-4


def allreduce(folder, each, out):
    """Prints the times of all engines."""
    table = times(load(folder, f"allreduce-{each}"))
    alone = times(load(folder, f"torch-{each}-queued"))
    if "torch" in alone:
        table["NCCL alone"] = alone["torch"]
    if not table:
        return
    out[f"allreduce 2x{each}, us"] = table
    names = list(table)
    print(f"allreduce f32 in place, 2 hosts x {each} GPU, us")
    print("".join(f"{name:>12}" for name in ["bytes"] + names))
    for size in sorted({s for t in table.values() for s in t}):
        cells = [table[name].get(size) for name in names]
        if sum(c is not None for c in cells) > 1:
            print(f"{size:12d}" + "".join("           -" if c is None else f"{c:12.1f}" for c in cells))


def main(folder, path):
    """Runs the program."""
    out = {"session": load(folder, "session")}
    agree = True
    for each in (1, 2):
        agree = train(folder, each, out) and agree
    for each in (1, 2):
        bench = load(folder, f"allreduce-{each}")
        if bench:
            out["libraries"] = bench.get("libraries")
        allreduce(folder, each, out)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
