#!/usr/bin/env python3
"""Runs a program of torch.distributed as if its ranks were on several hosts, for bench/hosts-gpu.sh.

    python3 -m torch.distributed.run ... on_hosts.py HOSTS PROGRAM ARGUMENT...

NCCL takes ranks with different NCCL_HOSTID for ranks of different hosts, and uses its sockets between them.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    rank, size, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
    os.environ["NCCL_HOSTID"] = f"h{rank * hosts // size}"
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
