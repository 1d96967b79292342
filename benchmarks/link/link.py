"""Two nodes with two workers each over a link of 1 Gbit/s: our fused step beside Python's DistributedDataParallel.

Run by `scripts/bench link`, under scripts/python-torch. The nodes are networks of their own on this machine, whose wire
tc's tbf holds to the rate. Every contender is a job of four processes that sleeps while it is not its turn. Told are
the seconds of a step and the bytes that leave each node in it. It ends within 6 minutes: who has no time left says so
in its row. --quick: the bytes of one workload, ours and Python's as installed.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import report
import turns  # of ../support, which report looks into
import wire
import two_nodes  # of ../nodes, which wire looks into

WHOLE_SECONDS = 345  # all in all
PEER = pathlib.Path(__file__).resolve().parents[1] / "peer" / "ddp_step.py"
PORTS = iter(range(20_000, 32_000))  # below those that the kernel gives to others
TOLD = r"nodes send each other (\d+) bytes in each step, one of them (\d+)"
STEPS = {"resnet18_cifar": 3, "wide_mlp_sgd": 5}  # of a turn; the first does not count
LAYOUT = {"resnet18_cifar": {"channels_last": True}, "wide_mlp_sgd": {}}  # of the tuned peer's, and of ours
# What ours is given besides, job by job; the first is what is told of.
OURS = {"resnet18_cifar": [[]], "wide_mlp_sgd": [[], ["--compression", "bf16"]]}
_BUCKETS = {"ddp": True, "optimizer": "fused", "bucket_mb": 25}
# How Python's processes are started: environment, arguments of ddp_step.py.
PEER_JOBS = {"installed": ({}, []), "tuned": ({"LD_PRELOAD": "libtcmalloc_minimal.so.4"}, ["--flush-denormal"])}
# Rows: name, process, way of ddp_step.py. An expert lets buckets go out while backward still runs, or sends all in one.
PEERS = [("DDP, as installed", "installed", {}),
         ("DDP, tuned", "tuned", _BUCKETS),
         ("DDP, tuned, one bucket", "tuned", {**_BUCKETS, "bucket_mb": 200}),
         ("DDP, tuned, gradients sent in bf16", "tuned", {**_BUCKETS, "compress": True})]


class Job(turns.Job):
    """A job of an agent on each node: their commands and variables, by node."""

    def __init__(self, network: two_nodes.Network, agents: list[tuple[list[str], dict[str, str]]]):
        (first, variables), (second, others) = agents
        super().__init__([*network.on(0), *first], variables, ranks=4)
        command = [*network.on(1), *(word.format(turns=self.folder.name) for word in second)]
        self.second = subprocess.Popen(command, env={**os.environ, **others}, stdin=subprocess.DEVNULL,
                                       stdout=self.log, stderr=self.log, start_new_session=True)

    def told(self) -> dict[str, int]:
        """The bytes that ours says at its start: what all nodes send in a step, and the one that sends most."""
        found = re.search(TOLD, pathlib.Path(self.log.name).read_text())
        if found is None:
            raise SystemExit("bench: lockstep has not said how much its nodes send in a step")
        return {"all": int(found[1]), "most": int(found[2])}

    def end(self):
        super().end()
        try:
            self.second.wait(20)
        except subprocess.TimeoutExpired:
            self.second.kill()
            self.second.wait()


def variables(node: int, **more: str) -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": two_nodes.ENDS[node], **more}


def meeting(port: int) -> list[str]:
    """Flags that both launchers have."""
    return ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{two_nodes.ADDRESSES[0]}:{port}", "--rdzv-id", f"bench{port}"]


def our_agents(binaries: pathlib.Path, workload: str, more: list[str] | None = None) -> list[tuple]:
    flags = ["--channels-last"] if LAYOUT[workload] else []
    command = [str(binaries / "lockstep"), "run", *meeting(next(PORTS)), "--insecure",
               str(binaries / "lockstep-bench-step"), "--workload", workload, *flags, *(more or []), "--turns",
               "{turns}"]
    return [(command, variables(node)) for node in range(2)]


def peer_agents(name: str) -> list[tuple]:
    environment, flags = PEER_JOBS[name]
    meets = meeting(next(PORTS))
    return [([sys.executable, "-m", "torch.distributed.run", *meets, "--rdzv-conf", f"is_host={1 - node}",
              "--local-addr", two_nodes.ADDRESSES[node], str(PEER), "--turns", "{turns}", *flags],
             variables(node, **environment)) for node in range(2)]


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # ours, installed, tuned, floor, lever
    run: Callable[[int], list[float]]  # steps, the first of which warms up; seconds of the others
    steps: int  # of a turn
    facts: dict = dataclasses.field(default_factory=dict)
    rate: str | None = report.RATE
    took: float = 0  # the last turn

    def turn(self, link: wire.Wire, steps: int) -> dict:
        link.shape(self.rate)
        before, began = link.sent(), time.monotonic()
        seconds = self.run(steps)
        time.sleep(0.05)  # what is on its way arrives
        self.took = time.monotonic() - began
        sent = list(zip(before, link.sent()))
        return {"seconds": seconds, "took": self.took, "steps": steps,
                "bytes": [after.bytes - first.bytes for first, after in sent],
                "packets": sum(after.packets - first.packets for first, after in sent)}

    def results(self, done: list[dict], idle: list[float]) -> dict:
        """Bytes are those of a step, by node, without what the agents send all the time."""
        sent = [[(whole - rest * turn["took"]) / turn["steps"] for whole, rest in zip(turn["bytes"], idle)]
                for turn in done]
        packets = sum(turn["packets"] for turn in done)
        return {"name": self.name, "kind": self.kind, **self.facts, "limited": self.rate is not None,
                "seconds": [value for turn in done for value in turn["seconds"]],
                "rounds": [statistics.median(turn["seconds"]) for turn in done if turn["seconds"]], "sent": sent,
                "packet": sum(sum(turn["bytes"]) for turn in done) / packets if packets else 0}


def step_seconds(job: Job, command: dict) -> Callable[[int], list[float]]:
    return lambda steps: turns.step_times(job.ask({**command, "steps": steps}), 1)


def contenders_of(workload: str, ours: Job, peers: dict[str, Job], narrow: Job | None = None) -> list[Contender]:
    steps, exact = STEPS[workload], {"precision": "fp32"}
    found = [Contender("lockstep", "ours", step_seconds(ours, {}), steps, exact),
             Contender("lockstep, the link without a rate", "lever", step_seconds(ours, {}), steps, exact, rate=None)]
    if narrow is not None:
        found.append(Contender("lockstep, gradients sent in bf16", "lever", step_seconds(narrow, {}), steps,
                               {"precision": "bf16"}))
    for name, job, way in PEERS:
        if job not in peers or (way.get("bucket_mb") == 200 and LAYOUT[workload]):
            continue  # a backward that takes long would be over before its one bucket goes out
        whole = {**way, **(LAYOUT[workload] if way else {})}
        found.append(Contender(name, job, step_seconds(peers[job], {"workload": workload, "way": whole}), steps,
                               {"precision": "bf16" if way.get("compress") else "fp32"}))
    return found


def take_turns(everyone: list[Contender], link: wire.Wire, rounds: int, until: float) -> dict[str, list[dict]]:
    """Of each, the turns for which there was time."""
    def turn(one: Contender) -> dict | None:
        return one.turn(link, one.steps) if time.monotonic() + one.took <= until else None

    found = turns.take_turns({one.name: lambda one=one: turn(one) for one in everyone}, rounds, warm_up=False)
    return {name: [taken for taken in taken_turns if taken is not None] for name, taken_turns in found.items()}


def measure(arguments: argparse.Namespace, workload: str, link: wire.Wire, peers: dict[str, Job], end: wire.PlainEnd,
            until: float) -> dict:
    print(f"bench: {report.WORKLOADS[workload].title}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        ours, *others = [stack.enter_context(Job(link, our_agents(arguments.bin, workload, more)))
                         for more in OURS[workload][:1 if arguments.quick else None]]
        everyone = contenders_of(workload, ours, peers, *others)
        if arguments.quick:
            everyone = [one for one in everyone if one.kind in ("ours", "installed")]
            for one in everyone:
                one.steps = 2
        for one in everyone:  # builds what it trains, and warms up
            one.turn(link, 2)
        told, idle = ours.told(), link.idle(1)
        everyone.append(Contender("as many bytes through plain sockets", "floor",
                                  lambda steps: [end.seconds(told["most"]) for _ in range(steps)], 2))
        found = take_turns(everyone, link, arguments.rounds, until)
        for job in peers.values():
            job.tell({"forget": True})
        return {"name": workload, "told": told, "idle": idle,
                "contenders": [one.results(found[one.name], idle) for one in everyone]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--workload", action="append", choices=STEPS, help="default: all of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short turn each of ours and of Python's as installed")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if arguments.quick:
        arguments.workload, arguments.rounds = ["wide_mlp_sgd"], 1
    return arguments


def main():
    began = time.monotonic()
    arguments = parse()
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    if not arguments.quick:
        report.require_tcmalloc()
    two_nodes.enter_own_network()
    for name in [name for name in os.environ if name.startswith(("PET_", "TORCH", "LOCKSTEP_"))]:
        del os.environ[name]  # settings of whoever runs this are no part of it
    machine = report.read_machine()
    with wire.Wire() as link, wire.PlainEnd(link, next(PORTS)) as end, contextlib.ExitStack() as stack:
        link.shape(report.RATE)
        names = ["installed"] if arguments.quick else list(PEER_JOBS)
        peers = {name: stack.enter_context(Job(link, peer_agents(name))) for name in names}
        workloads = [measure(arguments, workload, link, peers, end, began + WHOLE_SECONDS)
                     for workload in arguments.workload or STEPS]
    whole = {"benchmark": "link", "machine": machine, "commit": arguments.commit,
             "command": report.command_text("link"), "versions": report.versions(), "quick": arguments.quick,
             "took": time.monotonic() - began, "workloads": workloads}
    page = report.markdown(whole)
    print(page)
    if arguments.report:
        report.write_report(arguments.report, page, whole)


if __name__ == "__main__":
    main()
