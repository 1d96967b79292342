"""Gloo's contender as a Python user has it: torch.distributed under torchrun. torch_peer.py FOLDER NAME LIBRARY

Takes turns as turns.h says, on tensors that are filled anew before each call.
"""
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

LONGEST_SECONDS = 600


def value_of(call: int, rank: int) -> int:
    return 1 + (call * 7 + rank * 3) % 16


def main():
    folder, name, library = sys.argv[1:]
    signal.alarm(LONGEST_SECONDS)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    turns = ctypes.CDLL(library)
    turns.start_line_open.restype = ctypes.c_void_p
    line = ctypes.c_void_p(turns.start_line_open(f"{folder}/{name}.line".encode(), rank, ranks))
    wait = turns.start_line_wait
    buffers, number = {}, 0
    with open(f"{folder}/{name}.{rank}.in") as pipe, open(f"{folder}/{name}.{rank}.out", "w") as out:
        print("ready", file=out, flush=True)
        for order in pipe:
            elements, calls = map(int, order.split())
            times = []
            for _ in range(calls):
                if elements >= 0:
                    data = buffers.setdefault(elements, None)
                    if data is None:
                        data = buffers[elements] = torch.zeros(elements)
                    data.fill_(value_of(number, rank))
                    wait(line)
                    start = time.monotonic_ns()
                    dist.all_reduce(data)
                    end = time.monotonic_ns()
                    if not (data[:: 1 + elements // 61] == sum(value_of(number, r) for r in range(ranks))).all():
                        raise SystemExit("bench: torch.distributed's sum is wrong")
                    number += 1
                else:
                    wait(line)
                    start = time.monotonic_ns()
                    dist.barrier()
                    end = time.monotonic_ns()
                times += [start, end]
            print(*times, file=out, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
