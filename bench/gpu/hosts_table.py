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
    """Compares final losses; returns whether they agree."""
    one, two = load(folder, f"train-1-{each}"), load(folder, f"train-2-{each}")
    if not one or not two:
        return True
    a, b = one["final_loss"], two["final_loss"]
    apart = abs(a - b) / max(abs(a), 1e-9)
    same = one["params_sha256"] == two["params_sha256"]
    out[f"train 2x{each}"] = {
        "model": one["model"], "steps": one["steps"] + one["warmup"], "loss, one host": a, "loss, two hosts": b,
        "relative difference": apart, "equal bits": same, "median_us": [one["median_us"], two["median_us"]],
    }
    print(f"train 2x{each}: loss {a:.9g} on one host, {b:.9g} on two, equal bits {same}, "
          f"{one['median_us']:.0f} us and {two['median_us']:.0f} us a step")
    return apart < 1e-4


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


def tests(folder):
    """Returns the number of passed tests, and the failed and skipped ones; None without tests."""
    path = os.path.join(folder, "logs", "tests.out")
    if not os.path.exists(path):
        return None
    how = {}  # by name; a failed test prints those of its ranks first
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if len(words) > 2 and words[0] == "---":
                how[words[2]] = words[1].rstrip(":")
    named = {state: [name for name, s in how.items() if s == state] for state in ("PASS", "FAIL", "SKIP")}
    result = {"pass": len(named["PASS"]), "fail": named["FAIL"], "skip": named["SKIP"]}
    print(f"tests: {result['pass']} passed, failed {result['fail']}, skipped {result['skip']}")
    return result


def main(folder, path):
    """Runs the program."""
    out = {"session": load(folder, "session"), "tests": tests(folder)}
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
