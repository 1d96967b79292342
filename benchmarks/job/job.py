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
import report  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parents[1] / "peer"
PORTS = iter(range(22_000, 32_000))
DEADLINE_SECONDS = 600
BATCH = 100  # per process
TCMALLOC = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LD_PRELOAD": "libtcmalloc_minimal.so.4"}


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # installed, tuned, ours
    run: Callable[["Contender"], dict]
    flags: list[str]


class Jobs:
    def __init__(self, binaries: pathlib.Path, data: pathlib.Path, epochs: int, steps: int):
        self.binaries, self.data, self.epochs = binaries, data, epochs
        self.print_freq = min(100, steps)  # there is a train event at an epoch's end

    def python(self, script: str, flags: list[str], environment: dict[str, str]) -> dict:
        done = commands.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                             str(next(PORTS)), str(PEER / script), "--data", str(self.data), "--epochs",
                             str(self.epochs), *flags], environment, DEADLINE_SECONDS)
        starts = [*done.marks("model"), *done.marks("evaluation")]
        accuracies = [float(line.split()[1]) for _, line in done.lines if line.startswith("accuracy ")]
        return {"seconds": done.seconds, "accuracies": accuracies, "start": starts[0] - done.began,
                "epochs": [ended - began for began, ended in zip(starts, done.marks("epoch"))],
                "evaluations": [ended - began for began, ended in zip(done.marks("epoch"), starts[1:])]}

    def tutorial(self, contender: Contender) -> dict:
        return self.python("mnist_tutorial.py", contender.flags, {})

    def tuned(self, contender: Contender) -> dict:
        return self.python("mnist_tuned.py", contender.flags, TCMALLOC)

    def lockstep(self, contender: Contender) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            done = commands.run([str(self.binaries / "lockstep"), "train", "--dataset", "mnist", "--data-path",
                                 str(self.data / "MNIST" / "raw"), "--model", "convnet", "-n", "2", "--batch-size",
                                 str(BATCH), "--lr", "1e-4", "--epochs", str(self.epochs), "--print-freq",
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


def contenders(jobs: Jobs, quick: bool) -> list[Contender]:
    everyone = [
        Contender("tutorial's script as installed", "installed", jobs.tutorial, []),
        Contender("tuned, fp32", "tuned", jobs.tuned, []),
        Contender("tuned, bf16", "tuned", jobs.tuned, ["--bf16"]),
        Contender("fp32", "ours", jobs.lockstep, []),
        Contender("bf16, channels-last", "ours", jobs.lockstep, ["--amp", "bf16", "--channels-last"]),
    ]
    return everyone if not quick else [everyone[0], everyone[1], everyone[3]]


def profile(binaries: pathlib.Path, seconds: float) -> list[dict]:
    """Where the time of a step goes, for each of our rows."""
    found = []
    for name, flags in (("fp32", []), ("bf16, channels-last", ["--amp", "bf16", "--channels-last"])):
        done = commands.run([str(binaries / "lockstep-bench-step"), "--workload", "convnet", *flags, "--profile",
                             "--json", "--seconds", str(seconds)], {}, DEADLINE_SECONDS)
        found.append({"name": name, **json.loads(done.lines[-1][1])})
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of MNIST's .gz files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="turns of each")
    parser.add_argument("--quick", action="store_true", help="two epochs of 1,000 pictures, fewer contenders")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin, arguments.pictures = arguments.bin.resolve(), 60_000
    if arguments.quick:
        arguments.epochs, arguments.pictures = 2, 1000
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
        jobs = Jobs(arguments.bin, pathlib.Path(scratch), arguments.epochs, arguments.pictures // (2 * BATCH))
        everyone = contenders(jobs, arguments.quick)
        turns = {contender.name: [] for contender in everyone}
        for number in range(arguments.rounds):
            for contender in everyone[number % len(everyone):] + everyone[:number % len(everyone)]:
                print(f"bench: {arguments.epochs} epochs, {contender.kind}: {contender.name}", file=sys.stderr)
                turns[contender.name].append(contender.run(contender))
    results = [{"name": contender.name, "kind": contender.kind, "turns": turns[contender.name]}
               for contender in everyone]
    command = "scripts/python-torch benchmarks/job/" + " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    whole = {"benchmark": "job", "machine": machine, "commit": arguments.commit, "command": command,
             "versions": report.versions(), "epochs": arguments.epochs, "rounds": arguments.rounds,
             "samples": arguments.pictures * arguments.epochs, "contenders": results,
             "profiles": profile(arguments.bin, 0.2 if arguments.quick else 4)}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
