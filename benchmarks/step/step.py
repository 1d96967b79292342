"""Whole training steps: Lockstep beside Python's DistributedDataParallel, taking turns in one run.

Run by `scripts/bench step` and, for large nets and other numbers of processes, `scripts/bench nets`, under
scripts/python-torch. Every contender is a job of two processes that sleeps while it is not its turn; of large nets it
starts anew for each. --quick: that it runs, not how fast.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import math
import pathlib
import statistics
import sys
from collections.abc import Callable

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import profiles  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
from contenders import CASES, LEVERS, NETS, OURS, PEER_JOBS, STEP, TUNED, Case, facts_of_ours, facts_of_peer  # noqa: E402
from turns import Job, in_order, step_times  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parents[1] / "peer" / "ddp_step.py"
PORTS = iter(range(21_000, 32_000))  # below those that the kernel gives to others
MOST_STEPS = 2000  # of a turn
LONG_SECONDS = 0.3  # steps that last longer do not feel cold caches, and have fewer rounds
LONG_ROUNDS = 4
PROFILE_SECONDS = 2
ANEW_COLD = 2  # steps of a job that has just started: the first compiles, and DDP sorts its buckets in the second


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # installed, tuned, ours, lever
    seat: Callable[[], contextlib.AbstractContextManager]  # its job, for a turn
    command: dict
    like: dict  # precision, and format of pictures: what it may be compared with
    steps: int = 0  # of a turn
    cold: int = 1  # of them, those that do not count
    rounds: list[list[float]] = dataclasses.field(default_factory=list)
    facts: dict = dataclasses.field(default_factory=dict)

    def turn(self) -> list[float]:
        with self.seat() as job:
            answers = job.ask({**self.command, "steps": self.steps})
        self.facts = {key: value for key, value in answers[0].items() if key != "times"}
        return step_times(answers, self.cold)

    def settle(self, seconds: float, anew: bool):
        """The first steps warm up (and compile); the next say how many make a turn."""
        if anew:
            self.cold, self.steps = ANEW_COLD, ANEW_COLD + 1
            self.steps = self.cold + max(1, min(MOST_STEPS, math.ceil(seconds / min(self.turn()))))
            return
        self.steps = 3  # of the last two the faster: where DDP sorts its buckets, or something is compiled, is no pace
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


def start_peer(name: str, ranks: int, threads: int) -> Job:
    environment, flags = PEER_JOBS[name]
    if "OMP_NUM_THREADS" in environment:
        environment = {**environment, "OMP_NUM_THREADS": str(threads)}
    return Job([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port",
                str(next(PORTS)), str(PEER), "--turns", "{turns}", *flags], environment, ranks)


def start_ours(binaries: pathlib.Path, case: Case, flags: list[str], environment: dict[str, str]) -> Job:
    return Job([str(binaries / "lockstep"), "run", "-n", str(case.ranks), str(binaries / "lockstep-bench-step"),
                "--workload", case.workload, "--threads", str(case.threads), *flags, "--turns", "{turns}"], environment,
               case.ranks)


class Peers:
    """Python's jobs, started when they are first needed. Those of other ranks and threads end before: what all of them keep
    would not fit into memory."""

    def __init__(self, stack: contextlib.ExitStack):
        self.stack = stack.enter_context(contextlib.ExitStack())
        self.shape, self.jobs = (), {}

    def seat(self, name: str, case: Case) -> Callable[[], contextlib.AbstractContextManager]:
        if case.anew:
            return lambda: start_peer(name, case.ranks, case.threads)
        if name not in self.jobs:
            self.jobs[name] = self.stack.enter_context(start_peer(name, case.ranks, case.threads))
        return lambda: contextlib.nullcontext(self.jobs[name])

    def begin(self, case: Case):
        """Ends the jobs that this case cannot have."""
        shape = (case.ranks, case.threads)
        if case.anew or shape != self.shape:
            self.stack.close()
            self.shape, self.jobs = shape, {}

    def forget(self):
        """What they have trained."""
        for job in self.jobs.values():
            job.tell({"forget": True})


def peers_of(case: Case, peers: Peers, only_first: bool) -> list[Contender]:
    rows = [("as installed", "installed", {})] + TUNED[case.workload][:1 if only_first else None]
    return [Contender(name if job == "installed" else f"tuned: {name}", "installed" if job == "installed" else "tuned",
                      peers.seat(job, case), {"workload": case.workload, "way": way}, facts_of_peer(case.workload, way))
            for name, job, way in rows if job != "pinned" or case.threads == 1]  # pinned is a rank to one core


def ours_of(arguments, name: str, stack: contextlib.ExitStack) -> list[Contender]:
    case = CASES[name]
    rows = [(row, "ours", flags, {}) for row, flags in OURS[case.workload]]
    rows += [(lever.name, "lever", lever.flags(OURS[case.workload][-1][1]), dict(lever.environment))
             for lever in LEVERS if name in lever.cases and not arguments.quick]

    def seat(flags: list[str], environment: dict[str, str]) -> Callable[[], contextlib.AbstractContextManager]:
        if case.anew:
            return lambda: start_ours(arguments.bin, case, flags, environment)
        job = stack.enter_context(start_ours(arguments.bin, case, flags, environment))
        return lambda: contextlib.nullcontext(job)

    return [Contender(row, kind, seat(flags, environment), {}, facts_of_ours(case.workload, flags))
            for row, kind, flags, environment in rows]


def measure(arguments, name: str, peers: Peers) -> dict:
    case = CASES[name]
    print(f"bench: {case.title}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        peers.begin(case)
        everyone = peers_of(case, peers, arguments.quick) + ours_of(arguments, name, stack)
        for contender in everyone:
            contender.settle(arguments.seconds, case.anew)
        long = case.anew or all(contender.cold == 0 for contender in everyone)
        first = 0 if long else -1  # a round to warm up
        for number in range(first, min(arguments.rounds, LONG_ROUNDS) if long else arguments.rounds):
            for contender in in_order(everyone, number):
                times = contender.turn()
                if number >= 0:
                    contender.rounds.append(times)
        peers.forget()
        return {"name": name, "title": case.title, "samples": case.samples, "anew": case.anew, "targets": case.targets,
                "contenders": [contender.results() for contender in everyone]}


def measure_all(arguments) -> list[dict]:
    """Each case is shown as soon as it is measured: a later one that fails does not take hours with it."""
    workloads = []
    with contextlib.ExitStack() as stack:
        peers = Peers(stack)
        for name in arguments.workload:
            workloads.append(measure(arguments, name, peers))
            print(report.section(workloads[-1]), file=sys.stderr, flush=True)
    return workloads


def profile(arguments, workload: dict) -> dict:
    """Of the fastest row of ours, measured alone."""
    case, best = CASES[workload["name"]], rows.best(workload["contenders"], report.median, "ours")
    flags = [*dict(OURS[case.workload])[best["name"]], "--ranks", str(case.ranks), "--threads", str(case.threads)]
    if best["median"] > LONG_SECONDS:
        flags += ["--settle", "2"]
    seconds = 0.05 if arguments.quick else PROFILE_SECONDS
    return {"name": best["name"], "ranks": case.ranks, "batch": case.batch,
            **profiles.measure(arguments.bin, case.workload, flags, seconds)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--workload", action="append", choices=CASES, help="default: those of scripts/bench step")
    parser.add_argument("--nets", action="store_true", help="those of scripts/bench nets, which take hours")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a turn, about; one step at least")
    parser.add_argument("--quick", action="store_true", help="the small MLP, one tuned peer, two short rounds")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if arguments.quick:
        arguments.workload, arguments.rounds, arguments.seconds = ["mlp"], 2, 0.05
    arguments.workload = arguments.workload or list(NETS if arguments.nets else STEP)
    return arguments


def main():
    arguments = parse()
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    report.require_tcmalloc()
    machine = report.read_machine()
    workloads = measure_all(arguments)
    for workload in workloads:  # nobody is left who might compute beside it
        workload["profile"] = profile(arguments, workload)
    command = report.command_text("step")
    whole = {"benchmark": "nets" if arguments.nets else "step", "machine": machine, "commit": arguments.commit,
             "command": command, "versions": report.versions(), "rounds": arguments.rounds, "workloads": workloads}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
