"""Starts the same program under torchrun and under lockstep, with deadlines, and looks at what came of it.

LOCKSTEP_BIN (set by CTest) is the folder of our programs.
"""
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

import warm_python

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
DEADLINE_SECONDS = 60

# How each side is started, by the name of torch's module.
COMMANDS = {
    "torchrun": {"run": [sys.executable, "-m", "torch.distributed.run"],
                 "launch": [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch"]},
    "lockstep": {"run": [str(BIN / "lockstep"), "run"], "launch": [str(BIN / "lockstep"), "launch"]},
}


def require_torch():
    """Skips the module where there is no torch, unless the whole suite is asked for."""
    if importlib.util.find_spec("torch") is None and "LOCKSTEP_REQUIRE_LAUNCHERS" not in os.environ:
        raise unittest.SkipTest("scripts/python-torch has no torch: run scripts/bootstrap --tests")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def clean_environment(**more) -> dict:
    """This process's environment without what another launcher or a user's setting may have left."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PET_", "TORCH", "OMP_", "LOCKSTEP_"))
            and name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")}
    return {**kept, "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", **more}


@functools.cache
def warm_torchrun() -> warm_python.Server:
    """To be called once before there are threads, which could make two."""
    return warm_python.Server(clean_environment())


def wait_until(condition, what: str, seconds: float = DEADLINE_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)


@dataclasses.dataclass
class Ended:
    code: int
    out: str
    err: str


class Launched:
    """A launcher that runs, in a session of its own; leaving the block kills what is left of it.

    warm: of torchrun, a start that does not import torch anew.
    """

    def __init__(self, command, environment: dict, cwd=None, stdout=subprocess.PIPE, warm=False):
        command = list(map(str, command))
        if warm:
            self.process = warm_python.Process(warm_torchrun(), command, environment, cwd, stdout)
            return
        self.process = subprocess.Popen(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout,
                                        stderr=subprocess.PIPE, text=True, errors="backslashreplace",
                                        start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self, seconds: float = DEADLINE_SECONDS) -> Ended:
        out, err = self.process.communicate(timeout=seconds)
        return Ended(self.process.returncode, out, err)


def alive_with(mark: str) -> list[str]:
    """The processes whose environment holds `mark`: what a job has left behind."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes()!r}")
    return found


def read_workers(folder) -> dict[str, dict]:
    """What the toy workers (launch_toy.py) wrote: "attempt.rank" -> dump."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(pathlib.Path(folder).glob("*.json"))}
