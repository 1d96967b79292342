"""All-reduces of Python's torch.distributed: the backend "lockstep" beside gloo, and beside `fake`, which does nothing.

    cmake --build build --target python
    PYTHONPATH=build/python scripts/python-torch benchmarks/comm/python_backend.py [--ranks 2] [--turns 30]

All are process groups of the same ranks and take turns, so that what else the machine does meets all of them alike. A turn is
the median of its calls on the slowest rank. Printed are the median of the turns and their quartiles.
"""
import argparse
import ctypes
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401: registers the backend

import lockstep_torch

SIZES = {"4 B": (1, 50), "64 KiB": (16 << 10, 20), "25 MiB": (25 << 18, 2)}  # elements, calls of a turn
CONTENDERS = ("gloo", "fake", "lockstep", "lockstep, shared_empty")
LONGEST_SECONDS = 900
PR_SET_PDEATHSIG = 1


def turn(tensor, group, calls) -> float:
    """Microseconds of a call."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        dist.all_reduce(tensor, group=group)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


def measure(rank, ranks, turns, store) -> dict:
    os.setsid()  # as workers of a launcher, which Linux then schedules as groups of their own
    dist.init_process_group("lockstep", init_method=f"file://{store}", rank=rank, world_size=ranks)
    groups = {"gloo": dist.new_group(backend="gloo"), "fake": dist.new_group(backend="fake"),
              "lockstep": None, "lockstep, shared_empty": None}
    found = {}
    for size, (elements, calls) in SIZES.items():
        tensors = {name: torch.zeros(elements) for name in CONTENDERS}
        tensors["lockstep, shared_empty"] = lockstep_torch.shared_empty(elements)
        for number in range(turns + 1):  # the first warms up
            for name in CONTENDERS:
                tensors[name].fill_(1)
                dist.barrier()
                took = torch.tensor(turn(tensors[name], groups[name], calls), dtype=torch.float64)
                if name != "fake":
                    assert tensors[name][-1] == float(ranks) ** calls, f"the sum of {name} is wrong"
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if number > 0:
                    found.setdefault((size, name), []).append(took.item())
    dist.destroy_process_group()
    return found


def report(found: dict):
    print("| all-reduce | backend | median | quartiles | gloo / it |\n|---|---|---:|---:|---:|")
    for (size, name), times in found.items():
        low, _, high = statistics.quantiles(times, n=4)
        median, gloo = statistics.median(times), statistics.median(found[size, "gloo"])
        print(f"| {size} | {name} | {median:,.1f} µs | {low:,.1f} to {high:,.1f} | {gloo / median:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    signal.alarm(LONGEST_SECONDS)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(options.ranks):
            children.append(os.fork())
            if children[-1] == 0:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                try:
                    found = measure(rank, options.ranks, options.turns, f"{folder}/store")
                    if rank == 0:
                        report(found)
                        sys.stdout.flush()
                    os._exit(0)
                except Exception:
                    traceback.print_exc()
                finally:
                    os._exit(1)
        if any([os.waitpid(child, 0)[1] for child in children]):
            raise SystemExit("python_backend.py: a rank has failed")


if __name__ == "__main__":
    main()
