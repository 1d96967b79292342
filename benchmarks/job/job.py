"""The whole job: a ConvNet trained on MNIST by two processes, as a user runs it, input and evaluation included.

Run by `scripts/bench job`, under scripts/python-torch. `lockstep train` and Python's DistributedDataParallel take turns
by whole jobs. --quick: that it runs, not how fast.
"""
import argparse
import dataclasses
import importlib.util
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import commands  # noqa: E402
import profiles  # noqa: E402
import report  # noqa: E402
from turns import in_order  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parents[1] / "peer"
PORTS = iter(range(22_000, 32_000))
DEADLINE_SECONDS = 600
BATCH = 100  # per process
TCMALLOC = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LD_PRELOAD": "libtcmalloc_minimal.so.4"}


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # installed, tuned, ours
    run: Callable[["Contender", int], dict]  # for so many epochs
    flags: list[str]

    def facts(self) -> dict[str, str]:
        """What it may be compared with."""
        return {"precision": "bf16" if "bf16" in self.name else "fp32",
                "format": "channels-last" if "--channels-last" in self.flags else "channels first"}


class Jobs:
    def __init__(self, binaries: pathlib.Path, data: pathlib.Path, steps: int):
        self.binaries, self.data = binaries, data
        self.print_freq = min(100, steps)  # there is a train event at an epoch's end

    def python(self, script: str, epochs: int, flags: list[str], environment: dict[str, str]) -> dict:
        done = commands.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                             str(next(PORTS)), str(PEER / script), "--data", str(self.data), "--epochs",
                             str(epochs), *flags], environment, DEADLINE_SECONDS)
        starts = [*done.marks("model"), *done.marks("evaluation")]
        accuracies = [float(line.split()[1]) for _, line in done.lines if line.startswith("accuracy ")]
        return {"seconds": done.seconds, "accuracies": accuracies, "start": starts[0] - done.began,
                "epochs": [ended - began for began, ended in zip(starts, done.marks("epoch"))],
                "evaluations": [ended - began for began, ended in zip(done.marks("epoch"), starts[1:])]}

    def tutorial(self, contender: Contender, epochs: int) -> dict:
        return self.python("mnist_tutorial.py", epochs, contender.flags, {})

    def tuned(self, contender: Contender, epochs: int) -> dict:
        return self.python("mnist_tuned.py", epochs, contender.flags, TCMALLOC)

    def lockstep(self, contender: Contender, epochs: int) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            done = commands.run([str(self.binaries / "lockstep"), "train", "--dataset", "mnist", "--data-path",
                                 str(self.data / "MNIST" / "raw"), "--model", "convnet", "-n", "2", "--batch-size",
                                 str(BATCH), "--lr", "1e-4", "--epochs", str(epochs), "--print-freq",
                                 str(self.print_freq), "--output-dir", f"{folder}/run", *contender.flags], {}, DEADLINE_SECONDS)
            events = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
        return {"seconds": done.seconds, **split(events, done.seconds)}


def split(events: list[dict], seconds: float) -> dict:
    """An epoch's training ends with its last train event, its evaluation with the eval event."""
    begin, epochs, evaluations = events[0]["time"], [], []
    split_seconds = {"data_seconds": 0.0, "compute_seconds": 0.0, "step_seconds": 0.0}
    for before, event in zip(events, events[1:]):
        if event["event"] == "train":
            for name in split_seconds:
                split_seconds[name] += event[name]
        if event["event"] == "eval":
            epochs.append(before["time"] - begin)
            evaluations.append(event["time"] - before["time"])
            begin = event["time"]
    accuracies = [event["top1"] for event in events if event["event"] == "eval"]
    return {"accuracies": accuracies, "start": seconds - (events[-1]["time"] - events[0]["time"]),
            "epochs": epochs, "evaluations": evaluations, **split_seconds}


OURS = {"fp32, channels first": [], "fp32, channels-last": ["--channels-last"],
        "fp32, channels-last, fused": ["--channels-last", "--fuse"],
        "bf16, channels-last": ["--amp", "bf16", "--channels-last"],
        "bf16, channels-last, fused": ["--amp", "bf16", "--channels-last", "--fuse"]}
QUICK = ("tutorial's script as installed", "tuned, fp32, channels-last", "fp32, channels-last")


def contenders(jobs: Jobs, quick: bool) -> list[Contender]:
    everyone = [
        Contender("tutorial's script as installed", "installed", jobs.tutorial, []),
        Contender("tuned, fp32, channels first", "tuned", jobs.tuned, []),
        Contender("tuned, fp32, channels-last", "tuned", jobs.tuned, ["--channels-last"]),
        Contender("tuned, fp32, channels-last, compiled", "tuned", jobs.tuned, ["--channels-last", "--compile"]),
        Contender("tuned, bf16, channels-last", "tuned", jobs.tuned, ["--bf16", "--channels-last"]),
        Contender("tuned, bf16, channels-last, compiled", "tuned", jobs.tuned, ["--bf16", "--channels-last", "--compile"]),
        *(Contender(name, "ours", jobs.lockstep, flags) for name, flags in OURS.items()),
    ]
    return [contender for contender in everyone if not quick or contender.name in QUICK]


def take_turns(everyone: list[Contender], epochs: int, rounds: int, warm_up: bool = True) -> list[dict]:
    """A job of one epoch each, so that nobody is the first to read a file; then whole jobs, each contender in its turn."""
    turns = {contender.name: [] for contender in everyone}
    for number in range(-warm_up, rounds):
        for contender in in_order(everyone, number):
            print(f"bench: {epochs if number >= 0 else 1} epochs, {contender.kind}: {contender.name}", file=sys.stderr)
            done = contender.run(contender, epochs if number >= 0 else 1)
            if number >= 0:
                turns[contender.name].append(done)
    return [{"name": contender.name, "kind": contender.kind, **contender.facts(), "turns": turns[contender.name]}
            for contender in everyone]


def profile(binaries: pathlib.Path, seconds: float) -> list[dict]:
    """Where the time of a step goes, for each of our rows."""
    return [{"name": name, **profiles.measure(binaries, "convnet", flags, seconds)} for name, flags in OURS.items()]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of MNIST's .gz files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, after one of one epoch")
    parser.add_argument("--quick", action="store_true", help="two epochs of 1,000 pictures, once, fewer contenders")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin, arguments.pictures = arguments.bin.resolve(), 60_000
    if arguments.quick:
        arguments.epochs, arguments.pictures, arguments.rounds = 2, 1000, 1
    return arguments


def main():
    arguments = parse()
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    if not arguments.data.is_dir():
        raise SystemExit(f"bench: there is no data in {arguments.data}")
    report.require_tcmalloc()
    machine = report.read_machine()
    with tempfile.TemporaryDirectory() as scratch:
        commands.unpack_mnist(arguments.data, pathlib.Path(scratch), arguments.pictures)
        jobs = Jobs(arguments.bin, pathlib.Path(scratch), arguments.pictures // (2 * BATCH))
        results = take_turns(contenders(jobs, arguments.quick), arguments.epochs, arguments.rounds, not arguments.quick)
    command = report.command_text("job")
    whole = {"benchmark": "job", "machine": machine, "commit": arguments.commit, "command": command,
             "versions": report.versions(), "epochs": arguments.epochs, "rounds": arguments.rounds,
             "samples": arguments.pictures * arguments.epochs, "contenders": results,
             "profiles": profile(arguments.bin, 0.2 if arguments.quick else 4)}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
