"""All-reduce and barrier: Lockstep, Gloo and Open MPI, taking turns in one run.

Run by `scripts/bench comm`, under scripts/python-torch. across.py adds two nodes, with MPICH too.
"""
import argparse
import dataclasses
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import jobs
import report
from turns import in_order  # of ../support, which report looks into

KIB, MIB = 1 << 10, 1 << 20
RANKS = (2, 4, 8)
# Of all ranks' tensors in a case. Each of eight contenders keeps its own: 256 MiB on eight ranks would be 16 GiB.
MOST_BYTES = 1024 * MIB
LONGEST_TURN = 0.06  # seconds in calls; where ranks exceed cores some contenders need milliseconds for anything


@dataclasses.dataclass
class Case:
    name: str
    bytes: int  # -1: the barrier
    calls: int  # in one turn, at most
    rounds: int

    def elements(self) -> int:
        return self.bytes // 4 if self.bytes >= 0 else -1


def cases(ranks: int, quick: bool) -> list[Case]:
    table = [("4 B", 4), ("1 KiB", KIB), ("4 KiB", 4 * KIB), ("64 KiB", 64 * KIB), ("1 MiB", MIB), ("25 MiB", 25 * MIB),
             ("256 MiB", 256 * MIB), ("barrier", -1)]
    table = [(name, size) for name, size in table if size * ranks <= MOST_BYTES]
    if quick:
        return [Case(name, size, 3, 1) for name, size in table if size <= MIB]
    return [Case(name, size, *((100, 20) if size <= 64 * KIB else (40, 15) if size <= MIB else
                               (3, 12) if size <= 25 * MIB else (1, 10 if ranks <= 2 else 5))) for name, size in table]


def command_text(command: list[str]) -> str:
    """As somebody in the repository's root would type it."""
    root = str(pathlib.Path(__file__).resolve().parents[2]) + "/"
    return shlex.join(["python3" if word == sys.executable else word.replace(root, "") for word in command])


def measure(contenders: list[jobs.Job], table: list[Case]) -> list[dict]:
    """All times; the first round, to warm up and to see how many calls are a short turn, is thrown away."""
    seconds = {case.name: {job.kind.name: [] for job in contenders} for case in table}
    for case in table:
        calls = {}
        for job in contenders:
            took = job.turn(case.elements(), min(case.calls, 5))
            calls[job.kind.name] = max(1, min(case.calls, int(LONGEST_TURN / statistics.median(took))))
        for turn in range(case.rounds):
            for job in in_order(contenders, turn):
                seconds[case.name][job.kind.name] += job.turn(case.elements(), calls[job.kind.name])
    return [{"case": case.name, "bytes": case.bytes,
             "contenders": [{"name": job.kind.name, "kind": job.kind.kind, "column": job.kind.column, "command": command_text(job.kind.command),
                             "seconds": seconds[case.name][job.kind.name]} for job in contenders]} for case in table]


def across_nodes(options: argparse.Namespace, folder: pathlib.Path) -> list[dict]:
    """Worlds over two nodes: by a program of its own, which starts itself again where it may make networks."""
    found = folder / "across.json"
    command = [sys.executable, "-B", str(pathlib.Path(__file__).with_name("across.py")), "--bin", str(options.bin),
               "--library", str(options.library), "--into", str(found), *(["--quick"] if options.quick else [])]
    if subprocess.run(command, check=False, timeout=300).returncode != 0:
        raise SystemExit("bench: two nodes were not measured, for the reason above; --one-node leaves them out")
    return json.loads(found.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin", type=pathlib.Path)
    parser.add_argument("--library", default="build/benchmarks/liblockstep_bench_turns.so", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--quick", action="store_true", help="a few calls, nothing large: that it runs, not how fast")
    parser.add_argument("--only", default="", help="contenders whose name has this text; for a look while developing")
    parser.add_argument("--cases", nargs="+", help="of these names, as '1 MiB'")
    parser.add_argument("--one-node", action="store_true", help="without the contenders across two nodes")
    parser.add_argument("--report", type=pathlib.Path, help="write PATH.md and PATH.json instead of standard output")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if options.only and options.report:
        parser.error("--only leaves out what a report needs")
    options.bin, options.library = options.bin.resolve(), options.library.resolve()
    began = time.monotonic()
    worlds, across = [], []
    machine = report.read_machine()
    with tempfile.TemporaryDirectory() as name:
        if not options.one_node and not options.only and options.cases is None:
            across = across_nodes(options, pathlib.Path(name))
        peer = jobs.build_mpi_peer(pathlib.Path(name))
        for ranks in options.ranks:
            folder = pathlib.Path(name) / str(ranks)
            folder.mkdir()
            kinds = jobs.kinds(options.bin, options.library, peer, ranks)
            table = [case for case in cases(ranks, options.quick)
                     if options.cases is None or case.name in options.cases]
            with jobs.started([kind for kind in kinds if options.only in kind.name], ranks, folder) as contenders:
                worlds.append({"ranks": ranks, "cases": measure(contenders, table)})
    whole = {"benchmark": "comm", "machine": machine, "versions": report.versions(), "commit": options.commit,
             "command": report.command_text("comm"), "worlds": worlds, "across": across,
             "took": time.monotonic() - began}
    if options.only:
        print("".join(report.details(world) for world in worlds))
    elif options.report:
        report.write(options.report, whole)
    else:
        print(report.markdown(whole))


if __name__ == "__main__":
    main()
