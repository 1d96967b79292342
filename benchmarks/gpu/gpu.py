"""ResNet-50 on one GPU: eager PyTorch, torch.compile and our programs take turns in one run.

Run by `scripts/bench gpu`, under scripts/python-torch. By hand where nothing is built, FOLDER having
lockstep-bench-gpu-step and libtorch's folder being in LD_LIBRARY_PATH:

    python3 benchmarks/gpu/gpu.py --bin FOLDER --report FILE

--quick: that it runs, not how fast.
"""
import argparse
import ctypes
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import report  # noqa: E402
from contenders import COMPILED, EAGER_SCRIPT, FUSED, OURS, PLAIN, Case, Contender, Failed, Process  # noqa: E402
from idle import NEEDED_SECONDS, Meter  # noqa: E402
from turns import in_order  # noqa: E402

CASES = ["none,channels_last", "bf16,channels_last", "none,contiguous"]
ANSWER_SECONDS = 90  # for a turn; a first step loads libtorch's CUDA part and tries cuDNN's algorithms
COMPILE_SECONDS = 240
WARM_STEPS = 10
CASE_NEEDS_SECONDS = 30  # without so much time a case is not begun


class Racer:
    """A contender in a case: its process, and what was found."""

    def __init__(self, contender: Contender, process: Process):
        self.contender, self.process = contender, process
        self.times: list[float] = []  # milliseconds of a step, of each round
        self.first: float | None = None  # seconds of the first step
        self.watched: dict[str, float | None] = {}
        self.why = ""  # it has no figure

    def tell(self, steps: int):
        self.process.tell(f"{self.contender.who} {steps}".strip())

    def turn(self, steps: int, seconds: float) -> float:
        self.tell(steps)
        return self.process.answer(seconds)


class Bench:
    def __init__(self, arguments: argparse.Namespace, meter: Meter):
        self.arguments, self.meter = arguments, meter
        self.until = time.monotonic() + arguments.deadline

    def left(self) -> float:
        return self.until - time.monotonic()

    def rows(self, case: Case, contenders: list[Contender], shown: list[Contender]) -> list[dict]:
        """Of `shown`; all of them take turns."""
        racers = self._race(case, contenders) if self.left() > CASE_NEEDS_SECONDS else []
        found = rows_of(racers) or [row_of(contender, "no time left") for contender in contenders]
        return [{**row, **case.facts} for row in found if row["name"] in [contender.name for contender in shown]]

    def _race(self, case: Case, contenders: list[Contender]) -> list[Racer]:
        processes = {}
        try:
            for contender in contenders:
                if contender.process not in processes:
                    processes[contender.process] = Process(
                        case.command(contender, self.arguments.program, self.arguments.batch))
            racers = [Racer(contender, processes[contender.process]) for contender in contenders]
            for racer in racers:
                self._try(racer, self._warm_up)
            self._rounds(racers)
            for racer in racers:
                self._try(racer, self._watch)
            return racers
        finally:
            for process in processes.values():
                process.let_go()
            for process in processes.values():
                process.end()

    def _try(self, racer: Racer, action):
        """Who fails once has no more turns."""
        if racer.why:
            return
        try:
            action(racer)
        except Failed as failure:
            racer.why = str(failure)
            racer.process.end()
        if racer.why:
            print(f"bench: {racer.contender.name}: {racer.why}", file=sys.stderr, flush=True)

    def _warm_up(self, racer: Racer):
        seconds = COMPILE_SECONDS if racer.contender is COMPILED else ANSWER_SECONDS
        racer.first = racer.turn(1, max(1, min(seconds, self.left()))) / 1e3
        racer.turn(self.arguments.warm, ANSWER_SECONDS)

    def _rounds(self, racers: list[Racer]):
        for number in range(self.arguments.rounds):
            if self.left() <= 0:
                break
            for racer in in_order(racers, number):
                self._try(racer, lambda one: one.times.append(one.turn(self.arguments.steps, ANSWER_SECONDS)))
        for racer in racers:
            racer.why = racer.why or ("" if racer.times else "no time left")

    def _watch(self, racer: Racer):
        if self.meter.nvml is None:
            return
        steps = math.ceil(NEEDED_SECONDS * 1e3 / min(racer.times))
        racer.tell(steps)
        racer.watched = self.meter.watch()
        racer.process.answer(ANSWER_SECONDS)


def row_of(contender: Contender, why: str = "") -> dict:
    return {"name": contender.name, "kind": contender.kind, "eager": contender.is_eager, "why": why, "ms": [],
            "ratios": [], "first_seconds": None, "watched": {}}


def rows_of(racers: list[Racer]) -> list[dict]:
    """A ratio is to the faster eager Python of the same round."""
    eager = [racer.times for racer in racers if racer.contender.is_eager and not racer.why]
    best = [min(times) for times in zip(*eager)]
    found = []
    for racer in racers:
        row = row_of(racer.contender, racer.why)
        if not racer.why:
            row.update(ms=racer.times, ratios=[ms / base for ms, base in zip(racer.times, best)],
                       first_seconds=racer.first, watched=racer.watched)
        found.append(row)
    return found


def measure(arguments: argparse.Namespace, meter: Meter) -> list[dict]:
    """What is most wanted first: torch.compile, which takes longest, has the time that the others leave."""
    bench, found = Bench(arguments, meter), []
    for case in arguments.case:
        everyone = [PLAIN, FUSED, *OURS]
        found.append({"title": case.title, "rows": bench.rows(case, everyone, everyone)})
        tell(found[-1], found[-1]["rows"])
    for case, one in zip(arguments.case, found):
        if arguments.compile:
            rows = bench.rows(case, [PLAIN, FUSED, COMPILED], [COMPILED])
            one["rows"] += rows
            tell(one, rows)
    return found


def tell(case: dict, rows: list[dict]):
    """As they come: should the run be ended from outside, they are there."""
    for row in rows:
        figures = {"why": row["why"]}
        if row["ms"]:
            figures = {"ms": statistics.median(row["ms"]), "ratio": report.ratio(row), **row["watched"]}
        print(json.dumps({"case": case["title"], "contender": row["name"], **figures}), file=sys.stderr, flush=True)


def facts_of_gpu() -> dict:
    """SystemExit in one line where there is none."""
    for package in ("torch", "torchvision"):
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"bench: {package} is needed: scripts/bootstrap --tests installs it")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise SystemExit(f"bench: a GPU is needed: the NVIDIA driver is not there: {error}") from None
    done = subprocess.run([sys.executable, "-B", str(EAGER_SCRIPT), "--facts"], capture_output=True, text=True,
                          timeout=120, check=False)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["not a word"])[-1]
        raise SystemExit(f"bench: a GPU is needed: torch does not say what there is: {words}")
    facts = json.loads(done.stdout)
    if "why" in facts:
        raise SystemExit(f"bench: a GPU is needed: {facts['why']}")
    return facts


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our program is")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15, help="of a turn")
    parser.add_argument("--case", action="append", type=Case.of, help="none|bf16,contiguous|channels_last; repeatable")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile")
    parser.add_argument("--deadline", type=float, default=230, help="seconds: what is not begun by then is left out")
    parser.add_argument("--quick", action="store_true", help="one case of two pictures, one round, no torch.compile")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.program = arguments.bin.resolve() / "lockstep-bench-gpu-step"
    arguments.warm = WARM_STEPS
    if arguments.quick:
        arguments.batch, arguments.rounds, arguments.steps, arguments.warm = 2, 1, 1, 1
        arguments.compile = False
    arguments.case = arguments.case or [Case.of(text) for text in (CASES[:1] if arguments.quick else CASES)]
    return arguments


def main():
    arguments = parse()
    gpu = facts_of_gpu()
    if not arguments.program.exists():
        raise SystemExit(f"bench: there is no {arguments.program}")
    machine = report.read_machine()
    meter = Meter(gpu["uuid"])
    begun = time.monotonic()
    cases = measure(arguments, meter)
    whole = {"benchmark": "gpu", "machine": machine, "gpu": {**gpu, "driver": meter.driver},
             "commit": arguments.commit, "command": report.command_text("gpu"), "versions": report.versions(),
             "batch": arguments.batch, "rounds": arguments.rounds, "steps": arguments.steps,
             "seconds": time.monotonic() - begun, "counters": meter.without, "cases": cases}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
