"""Whole training steps on two processes: Lockstep beside Python's DistributedDataParallel, taking turns in one run.

Run by `scripts/bench step`, under scripts/python-torch. Every contender is a job of two processes that sleeps while it
is not its turn. --quick: that it runs, not how fast.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import math
import pathlib
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import report  # noqa: E402
from contenders import LEVERS, OURS, PEER_JOBS, SAMPLES, TARGETS, TITLES, TUNED, facts_of_ours, facts_of_peer  # noqa: E402
from turns import Job, in_order, step_times  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parents[1] / "peer" / "ddp_step.py"
PORTS = iter(range(21_000, 32_000))  # below those that the kernel gives to others
MOST_STEPS = 2000  # of a turn
LONG_SECONDS = 0.3  # steps that last longer do not feel cold caches, and have fewer rounds
LONG_ROUNDS = 4


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # installed, tuned, ours, lever
    job: Job
    command: dict
    like: dict  # precision, and format of pictures: what it may be compared with
    steps: int = 0  # of a turn
    cold: int = 1  # of them, those that do not count
    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    facts: dict = dataclasses.field(default_factory=dict)

    def turn(self) -> list[float]:
        answers = self.job.ask({**self.command, "steps": self.steps})
        self.facts = {key: value for key, value in answers[0].items() if key != "times"}
        return step_times(answers, self.cold)

    def settle(self, seconds: float):
        """The first steps warm up (and compile); the next say how many make a turn."""
        self.steps = 2
        pace = min(self.turn())
        if pace < LONG_SECONDS:
            self.steps = 4
            pace = min(self.turn())
        self.cold = int(pace < LONG_SECONDS)
        self.steps = self.cold + max(1, min(MOST_STEPS, math.ceil(seconds / pace)))

    def results(self) -> dict:
        seconds = [value for turn in self.rounds for value in turn]
        return {"name": self.name, "kind": self.kind, **self.like, "median": statistics.median(seconds),
                "p99": percentile(seconds, 0.99), "steps": len(seconds),
                "rounds": [statistics.median(turn) for turn in self.rounds], **self.facts}


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def start_peer(name: str) -> Job:
    environment, flags = PEER_JOBS[name]
    return Job([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                str(next(PORTS)), str(PEER), "--turns", "{turns}", *flags], environment)


def start_ours(binaries: pathlib.Path, workload: str, flags: list[str], environment: dict[str, str]) -> Job:
    return Job([str(binaries / "lockstep"), "run", "-n", "2", str(binaries / "lockstep-bench-step"), "--workload",
                workload, *flags, "--turns", "{turns}"], environment)


def peers_of(workload: str, jobs: dict[str, Job], only_first: bool) -> list[Contender]:
    rows = [("as installed", "installed", {})] + TUNED[workload][:1 if only_first else None]
    return [Contender(name if job == "installed" else f"tuned: {name}", "installed" if job == "installed" else "tuned",
                      jobs[job], {"workload": workload, "way": way}, facts_of_peer(workload, way))
            for name, job, way in rows]


def ours_of(arguments, workload: str, stack: contextlib.ExitStack) -> list[Contender]:
    rows = [(name, "ours", flags, {}) for name, flags in OURS[workload]]
    rows += [(lever.name, "lever", lever.flags(OURS[workload][-1][1]), dict(lever.environment))
             for lever in LEVERS if workload in lever.workloads and not arguments.quick]
    return [Contender(name, kind, stack.enter_context(start_ours(arguments.bin, workload, flags, environment)), {},
                      facts_of_ours(workload, flags)) for name, kind, flags, environment in rows]


def measure(arguments, workload: str, jobs: dict[str, Job]) -> dict:
    print(f"bench: {TITLES[workload]}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        everyone = peers_of(workload, jobs, arguments.quick) + ours_of(arguments, workload, stack)
        for contender in everyone:
            contender.settle(arguments.seconds)
        long = all(contender.cold == 0 for contender in everyone)
        first = 0 if long else -1  # a round to warm up
        for number in range(first, min(arguments.rounds, LONG_ROUNDS) if long else arguments.rounds):
            for contender in in_order(everyone, number):
                times = contender.turn()
                if number >= 0:
                    contender.rounds.append(times)
        for job in jobs.values():
            job.tell({"forget": True})
        return {"name": workload, "title": TITLES[workload], "samples": SAMPLES[workload],
                "targets": TARGETS[workload], "contenders": [contender.results() for contender in everyone]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--workload", action="append", choices=TITLES, help="default: all of them")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a turn, about; one step at least")
    parser.add_argument("--quick", action="store_true", help="the small MLP, one tuned peer, two short rounds")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if arguments.quick:
        arguments.workload, arguments.rounds, arguments.seconds = ["mlp"], 2, 0.05
    return arguments


def main():
    arguments = parse()
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    report.require_tcmalloc()
    machine = report.read_machine()
    with contextlib.ExitStack() as stack:
        names = ["installed", "tcmalloc"] if arguments.quick else list(PEER_JOBS)
        jobs = {name: stack.enter_context(start_peer(name)) for name in names}
        workloads = [measure(arguments, workload, jobs) for workload in arguments.workload or TITLES]
    command = report.command_text("step")
    whole = {"benchmark": "step", "machine": machine, "commit": arguments.commit, "command": command,
             "versions": report.versions(), "rounds": arguments.rounds, "workloads": workloads}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
