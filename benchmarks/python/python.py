"""Python's torch.distributed with the backend "lockstep" beside gloo, beside `fake`, which does nothing, and under DDP.

Run by `scripts/bench python`, under scripts/python-torch. All contenders are process groups and models of the same two
processes, which sleep between the turns. --quick: that it runs, not how fast.
"""
import argparse
import dataclasses
import importlib.util
import math
import os
import pathlib
import statistics
import sys

import report
import turns  # of ../support, which report looks into

RANKS = pathlib.Path(__file__).resolve().parent / "ranks.py"
MOST_STEPS = 2000  # of a turn
# What is summed: elements, calls of a turn. Each call doubles the ones of two ranks: 2 ** 127 is the largest float.
SIZES = {"4 B": (1, 100), "64 KiB": (16 << 10, 40), "25 MiB": (25 << 18, 3)}
# Name, kind, process group, whether the tensor is of shared_empty.
REDUCERS = [("gloo", "installed", "gloo", False), ("fake, which does nothing", "floor", "fake", False),
            ("lockstep, ordinary tensor", "ours", "lockstep", False), ("lockstep, `shared_empty`", "ours", "lockstep", True)]
# As a tutorial writes it, and as somebody who knows DDP well, whose gradients are one bucket.
WAYS = {"as installed": {}, "tuned": {"ddp": True, "optimizer": "fused"}}
# Name, kind, process group, whether the hook does nothing.
TRAINERS = [("DDP on gloo", None, "gloo", False), ("DDP on lockstep", "ours", "lockstep", False),
            ("DDP with a hook that does nothing", "floor", "lockstep", True)]


def slowest(answers: list[dict]) -> float:
    """A turn of all-reduces: the median of its calls, on the rank where that is longest."""
    return max(statistics.median(answer["seconds"]) for answer in answers)


def all_reduces(job: turns.Job, name: str, rounds: int) -> dict:
    print(f"bench: all-reduce of {name}", file=sys.stderr)
    elements, calls = SIZES[name]

    def turn(group: str, shared: bool) -> float:
        return slowest(job.ask({"do": "all_reduce", "group": group, "elements": elements, "calls": calls, "shared": shared}))

    found = turns.take_turns({who: lambda group=group, shared=shared: turn(group, shared)
                              for who, _, group, shared in REDUCERS}, rounds)
    job.tell({"forget": True})
    return {"name": name, "contenders": [
        {"name": who, "kind": kind, "shared": shared, "calls": calls, "seconds": found[who]}
        for who, kind, _, shared in REDUCERS]}


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # ours, installed, tuned, floor
    way: str
    command: dict
    job: turns.Job
    steps: int = 0  # of a turn; the first brings the caches back and does not count

    def turn(self) -> list[float]:
        return turns.step_times(self.job.ask({**self.command, "steps": self.steps}), 1)

    def settle(self, seconds: float):
        """The first steps build and warm up; DDP orders its buckets anew behind the first. The next tell the pace."""
        for self.steps in (3, 4):
            pace = min(self.turn())
        self.steps = 1 + max(2, min(MOST_STEPS, math.ceil(seconds / pace)))

    def results(self, rounds: list[list[float]]) -> dict:
        every = [value for turn in rounds for value in turn]
        return {"name": self.name, "kind": self.kind, "way": self.way, "precision": "fp32", "steps": len(every),
                "spread": report.spread(every), "rounds": [statistics.median(turn) for turn in rounds]}


def contenders_of(job: turns.Job, workload: str) -> list[Contender]:
    return [Contender(f"{name}, {way}", kind or ("tuned" if options else "installed"), way,
                      {"do": "train", "group": group, "workload": workload, "way": options, "noop": noop}, job)
            for way, options in WAYS.items() for name, kind, group, noop in TRAINERS]


def steps_of(job: turns.Job, workload: str, rounds: int, seconds: float) -> dict:
    print(f"bench: {report.WORKLOADS[workload]}", file=sys.stderr)
    everyone = contenders_of(job, workload)
    for contender in everyone:
        contender.settle(seconds)
    found = turns.take_turns({contender.name: contender.turn for contender in everyone}, rounds)
    job.tell({"forget": True})
    return {"name": workload, "contenders": [contender.results(found[contender.name]) for contender in everyone]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--package", type=pathlib.Path, default=pathlib.Path("build/python"),
                        help="the folder of the package lockstep_torch")
    parser.add_argument("--turns", type=int, default=30, help="of each all-reduce")
    parser.add_argument("--rounds", type=int, default=10, help="of steps")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a turn of steps, about; two steps at least")
    parser.add_argument("--quick", action="store_true", help="the small MLP, two short turns of everything")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin, arguments.package = arguments.bin.resolve(), arguments.package.resolve()
    arguments.workloads = list(report.WORKLOADS)
    if arguments.quick:
        arguments.workloads, arguments.turns, arguments.rounds, arguments.seconds = ["mlp"], 2, 2, 0.05
    return arguments


def require(package: pathlib.Path):
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    if not (package / "lockstep_torch" / "__init__.py").exists():
        raise SystemExit(f"bench: lockstep_torch is needed, and is not in {package}: `make python` builds it or says why not")


def main():
    arguments = parse()
    require(arguments.package)
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCH", "LOCKSTEP_", "GLOO_"))]:
        del os.environ[name]  # settings of whoever runs this are no part of it
    path = [str(arguments.package), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    machine = report.read_machine()
    command = [str(arguments.bin / "lockstep"), "run", "-n", "2", sys.executable, "-B", str(RANKS), "--turns", "{turns}"]
    with turns.Job(command, variables) as job:
        reduces = [all_reduces(job, name, arguments.turns) for name in SIZES]
        workloads = [steps_of(job, name, arguments.rounds, arguments.seconds) for name in arguments.workloads]
    whole = {"benchmark": "python", "machine": machine, "commit": arguments.commit,
             "command": report.command_text("python"), "versions": report.versions(), "quick": arguments.quick,
             "reduces": reduces, "workloads": workloads}
    page = report.markdown(whole)
    print(page)
    if arguments.report:
        report.write_report(arguments.report, page, whole)


if __name__ == "__main__":
    main()
