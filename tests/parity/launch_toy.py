#!/usr/bin/env python3
"""The worker of launch_flags_test.py: writes down what it was given, prints a line on each stream, and ends.

TOY_FOLDER  where <attempt>.<rank>.json goes
TOY_FAIL    "ATTEMPT RANK CODE": that rank of that attempt exits with that code when its peers have written,
            and leaves an error file
TOY_WAIT    wait for a signal, say which, and exit with 0
"""
import json
import os
import pathlib
import signal
import sys
import time

attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]


def on_signal(number, _):
    sys.stdout.write(f"toy {rank} got {signal.Signals(number).name}\n")
    os._exit(0)


def open_files() -> list[int]:
    with os.scandir("/proc/self/fd") as entries:
        files = [int(entry.name) for entry in entries]
    return sorted(file for file in files if file > 2 and os.path.exists(f"/proc/self/fd/{file}"))


if "TOY_WAIT" in os.environ:
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, on_signal)
# One write each: print() makes two of a line when Python runs unbuffered, and lines of two ranks would mix.
sys.stdout.write(f"toy {rank} out\n")
sys.stderr.write(f"toy {rank} err\n")

dump = {"variables": dict(os.environ), "argv": sys.argv, "stdin": os.readlink("/proc/self/fd/0"),
        "files": open_files(), "session": os.getsid(0) == os.getpid(), "leads its group": os.getpgrp() == os.getpid(),
        "unbuffered": sys.stdout.write_through, "signals blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "SIGPIPE": str(signal.getsignal(signal.SIGPIPE)), "SIGINT": str(signal.getsignal(signal.SIGINT))}
file = pathlib.Path(os.environ["TOY_FOLDER"], f"{attempt}.{rank}.json")
file.with_suffix(".part").write_text(json.dumps(dump))
file.with_suffix(".part").rename(file)

if "TOY_WAIT" in os.environ:
    while True:
        signal.pause()
fail = os.environ.get("TOY_FAIL", "none").split()
if fail[:2] == [attempt, rank]:
    deadline = time.monotonic() + 20
    peers = int(os.environ["WORLD_SIZE"])
    while len(list(file.parent.glob(f"{attempt}.*.json"))) < peers and time.monotonic() < deadline:
        time.sleep(0.01)
    pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps({"message": "the toy is broken"}))
    sys.exit(int(fail[2]))
