"""Ranks of torch.distributed that are forked from one process, which has imported torch for all of them."""
import ctypes
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

PR_SET_PDEATHSIG = 1
DEADLINE_SECONDS = 100


def run(size: int, program, *arguments, expect=()) -> list[str]:
    """Runs program(rank, *arguments) in `size` processes that can find each other (init()); returns what each printed.

    A rank that raises is an AssertionError with its traceback, but for those that `expect` to end by a signal.
    """
    with tempfile.TemporaryDirectory() as folder:
        pids = [fork(rank, size, program, arguments, pathlib.Path(folder)) for rank in range(size)]
        codes = wait_for(pids)
        texts = [pathlib.Path(folder, str(rank)).read_text() for rank in range(size)]
    for rank, code in enumerate(codes):
        wanted = -signal.SIGKILL if rank in expect else 0
        if code != wanted:
            raise AssertionError(f"rank {rank} of {size} ended with {code}:\n" + "\n".join(texts))
    return texts


def fork(rank, size, program, arguments, folder) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        output = os.open(folder / str(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), BACKEND_RANKS=str(folder / "store"))
        torch.set_num_threads(1)
        program(rank, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        code = 0
    except BaseException:  # noqa: B902: the parent prints it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait_for(pids) -> list[int]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    codes = {}
    while len(codes) < len(pids):
        for pid in set(pids) - set(codes):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            for pid in set(pids) - set(codes):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def init(backend="lockstep", **more):
    """In a rank."""
    dist.init_process_group(backend, init_method="file://" + os.environ["BACKEND_RANKS"] + more.pop("store", ""),
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), **more)
