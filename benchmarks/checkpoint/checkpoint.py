"""Checkpoints of a job that trains: Lockstep beside torch.save, torch.distributed.checkpoint and safetensors.

Run by `scripts/bench checkpoint`, under scripts/python-torch. Every contender is a job of one process with one computing
thread that sleeps while it is not its turn; a core is left for what saves. --quick: that it runs, not how fast.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import report  # noqa: E402
from turns import Job, in_order  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "benchmarks" / "peer" / "checkpoint_peer.py"
PACKAGES = ROOT / ".deps" / "peers"  # scripts/bootstrap --bench
# Name, kind, --saving or --way, whether steps go on beside it.
OURS = [("lockstep, in the background", "ours", "background"), ("lockstep, in the loop", "ours", "in-loop")]
PEERS = [("torch.save", "installed", "torch.save"), ("torch.save, mmap", "tuned", "torch.save, mmap"),
         ("torch.save and fsync", "tuned", "torch.save, fsync"), ("safetensors", "tuned", "safetensors"),
         ("dcp.async_save", "installed", "dcp.async_save"),
         ("dcp.async_save, a process", "tuned", "dcp.async_save, process")]
LOADS = ("load weights", "load all")


def lengths(times: list[float]) -> list[float]:
    return [later - sooner for sooner, later in zip(times, times[1:])]


@dataclasses.dataclass
class Contender:
    name: str
    kind: str
    job: Job
    alone: list[float] = dataclasses.field(default_factory=list)  # seconds of steps without a save
    saves: list[dict] = dataclasses.field(default_factory=list)
    loads: dict = dataclasses.field(default_factory=lambda: {what: [] for what in LOADS})

    def ask(self, what: str, steps: int = 0) -> dict:
        return self.job.ask({"do": what, "steps": steps})[0]

    def save(self, steps: int) -> dict:
        """The longest step with the save, of all that ended before it was whole, that of as many alone, and the save."""
        alone = lengths(self.ask("steps", steps + 1)["times"])[1:]  # the first brings caches back
        answer = self.ask("save", steps)
        ends, begin = answer["times"][1:], answer["times"][0]
        lasted = lengths(answer["times"])
        beside = [seconds for seconds, end in zip(lasted, ends) if end <= answer["whole"]] or lasted[:1]
        self.alone += alone
        usual = statistics.median(alone)
        return {"stall": max(beside) - usual, "control": max(alone[:len(beside)]) - usual, "first": lasted[0] - usual,
                "beside": statistics.median(beside[1:] or beside) / usual,
                "seconds": answer["whole"] - begin,
                "written": answer["written"] - begin if "written" in answer else None, "bytes": answer["bytes"],
                "additional_bytes": answer["additional_bytes"]}

    def results(self) -> dict:
        return {"name": self.name, "kind": self.kind, "step": statistics.median(self.alone), "saves": self.saves,
                "loads": self.loads}


def copy_seconds(folder: pathlib.Path, size: int) -> float:
    """What the same bytes take from memory to the file system, synced: the floor."""
    block = os.urandom(1 << 20) * 8
    file = folder / "copy"
    began = time.monotonic()
    with open(file, "wb", buffering=0) as out:
        for _ in range(max(1, size // len(block))):
            out.write(block)
        os.fsync(out.fileno())
    took = time.monotonic() - began
    file.unlink()
    return took


def start(arguments, where: pathlib.Path, stack: contextlib.ExitStack) -> list[Contender]:
    found = []
    for number, (name, kind, way) in enumerate(OURS + PEERS):
        if way == "safetensors" and not PACKAGES.is_dir() and not importlib.util.find_spec("safetensors"):
            if arguments.report:
                raise SystemExit("bench: safetensors is needed: scripts/bootstrap --bench installs it")
            print("bench: safetensors is left out: scripts/bootstrap --bench installs it", file=sys.stderr)
            continue
        folder = where / str(number)
        folder.mkdir()
        flags = ["--model", arguments.model, "--folder", str(folder), "--turns", "{turns}"]
        command = ([str(arguments.bin / "lockstep"), "run", "-n", "1", str(arguments.bin / "lockstep-bench-checkpoint"),
                    "--saving", way] if kind == "ours" else
                   [sys.executable, str(PEER), "--way", way, "--packages", str(PACKAGES)])
        found.append(Contender(name, kind, stack.enter_context(Job([*command, *flags], {"OMP_NUM_THREADS": "1"}, 1))))
    return found


def measure(arguments, title: str, folder: pathlib.Path) -> dict:
    print(f"bench: {title}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as name, contextlib.ExitStack() as stack:
        everyone = start(arguments, pathlib.Path(name), stack)
        floor = []
        for number in range(-1, arguments.rounds):  # one to warm up
            for contender in in_order(everyone, number):
                save = contender.save(arguments.steps)
                loads = {what: contender.ask(what)["seconds"] for what in LOADS}
                if number >= 0:
                    contender.saves.append(save)
                    for what in LOADS:
                        contender.loads[what].append(loads[what])
            if number >= 0:
                floor.append(copy_seconds(pathlib.Path(name), everyone[0].saves[-1]["bytes"]))
        return {"title": title, "contenders": [contender.results() for contender in everyone], "copy": floor}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25, help="beside a save, and before it")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--disk", type=pathlib.Path, default=ROOT / "build", help="a folder on a disk")
    parser.add_argument("--quick", action="store_true", help="a small model, one short round, in memory only")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if importlib.util.find_spec("torchvision") is None:
        raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
    places = [("In memory (tmpfs)", pathlib.Path("/dev/shm")), ("On disk", arguments.disk)]
    if arguments.quick:
        arguments.rounds, arguments.steps, arguments.model, places = 1, 3, "resnet18", places[:1]
    machine = report.read_machine()
    parts = [measure(arguments, title, folder) for title, folder in places]
    whole = {"benchmark": "checkpoint", "machine": machine, "commit": arguments.commit,
             "command": report.command_text("checkpoint"), "versions": report.versions(), "model": arguments.model,
             "rounds": arguments.rounds, "steps": arguments.steps, "places": parts}
    print(report.markdown(whole))
    if arguments.report:
        report.write_report(arguments.report, report.markdown(whole), whole)


if __name__ == "__main__":
    main()
