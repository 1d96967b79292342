"""Two builds beside each other: whether they train the same bits, and how fast their steps are, in turns in one run.

    python3 benchmarks/beside/beside.py BASE NEW [--rounds N] [--seconds X] [--only WORD]

BASE and NEW are folders with the programs of a build (build/bin). Prints Markdown: a row for each job with both
hashes of the weights, and a row for each step with the median of the ratios of one round, base over new. Exit code 1
where hashes differ. For by hand: an older commit is built in a tree of its own.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from report_parts import machine_line, read_machine  # noqa: E402
from turns import Job, in_order, step_times  # noqa: E402

DEADLINE = 300  # seconds of a job
SETTLE_STEPS = 64  # in the first ones the engine tries which stores are the faster ones (optim/store_choice.h) ...
SETTLE_SECONDS = 10  # ... which does not matter to steps that are longer than these allow

# What two builds must agree in: flags of `lockstep train --dataset digits`. With 4 logical shards any number of ranks
# has the same bits, so one row has several.
_MODELS = [("mlp", 20), ("mlp_dropout", 20), ("convnet", 20), ("resnet18", 3), ("resnet18_cifar", 2),
           ("resnet50", 2)]
_OPTIMIZERS = ["sgd", "sgd --momentum 0.9", "sgd_nesterov", "sgd --momentum 0.9 --weight-decay 1e-3", "adam", "adamw --weight-decay 0.01"]
_BATCH = "--global-batch-size 32 --logical-shards 4"
JOBS = ([f"--model {model} --opt adam --max-steps {steps} {_BATCH}" for model, steps in _MODELS] +
        [f"--model mlp --opt {optimizer} --max-steps 50 {_BATCH}" for optimizer in _OPTIMIZERS] +
        [f"--model {model} --opt adam --amp bf16 --max-steps 10 {_BATCH}" for model in ("mlp", "convnet")] +
        [f"--model convnet --opt sgd --channels-last --max-steps 10 {_BATCH}",
         f"--model convnet --opt adam --epochs 1 {_BATCH.replace('32', '200')}"])
RANKS = (1, 2, 4)

_MIXED = "--amp bf16"
STEPS = [f"--workload {name} {flags}".strip() for name, ways in {
    "mlp": ("", _MIXED), "convnet": ("", "--channels-last", f"{_MIXED} --channels-last"),
    "wide_mlp_sgd": ("", _MIXED), "wide_mlp_adam": ("", _MIXED),
    "resnet18_cifar": ("", f"{_MIXED} --channels-last")}.items() for flags in ways]


def weights_hash(binaries: pathlib.Path, flags: str, ranks: int) -> str:
    with tempfile.TemporaryDirectory(prefix="lockstep-beside-") as folder:
        command = [str(binaries / "lockstep"), "train", "--dataset", "digits", *flags.split(), "--lr", "0.01",
                   "--nproc-per-node", str(ranks), "--no-eval", "--output-dir", f"{folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
        if done.returncode != 0:
            raise SystemExit(f"beside: {' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
        events = [json.loads(line) for line in pathlib.Path(folder, "run/metrics.jsonl").read_text().splitlines()]
        return next(event["weights_hash"] for event in events if "weights_hash" in event)


def same_bits(base: pathlib.Path, new: pathlib.Path, only: str) -> bool:
    print(f"\n## Bits\n\n| job | ranks | base | new | the same |\n|---|---|---|---|---|")
    alike = True
    for flags in (job for job in JOBS if only in job):
        ours = {ranks: weights_hash(new, flags, ranks) for ranks in RANKS}
        theirs = weights_hash(base, flags, 1)
        same = set(ours.values()) == {theirs}
        alike &= same
        print(f"| `{flags}` | {', '.join(map(str, RANKS))} | {theirs} | {', '.join(sorted(set(ours.values())))} "
              f"| {'yes' if same else 'NO'} |", flush=True)
    return alike


class Steps:
    """A job of two ranks that does steps when it is its turn."""

    def __init__(self, binaries: pathlib.Path, flags: str, seconds: float):
        self.job = Job([str(binaries / "lockstep"), "run", "-n", "2", str(binaries / "lockstep-bench-step"),
                        *flags.split(), "--turns", "{turns}"], {})
        self.times: list[float] = []
        pace = min(min(step_times(self.job.ask({"steps": 4}), 1)) for _ in range(3))
        if SETTLE_STEPS * pace < SETTLE_SECONDS:
            self.job.ask({"steps": SETTLE_STEPS})
        self.steps = 2 + int(seconds / pace)

    def turn(self) -> float:
        self.times.append(statistics.median(step_times(self.job.ask({"steps": self.steps}), 1)))
        return self.times[-1]


def compare_steps(base: pathlib.Path, new: pathlib.Path, only: str, rounds: int, seconds: float):
    print("\n## Steps, two ranks\n\n| step | base ms | new ms | base / new | p10-p90 |\n|---|---:|---:|---:|---:|")
    for flags in (step for step in STEPS if only in step):
        both = [Steps(binaries, flags, seconds) for binaries in (base, new)]
        try:
            for number in range(rounds):
                for one in in_order(both, number):
                    one.turn()
        finally:
            for one in both:
                one.job.end()
        ratios = sorted(b / n for b, n in zip(both[0].times, both[1].times))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        base_ms, new_ms = (1e3 * statistics.median(one.times) for one in both)
        print(f"| `{flags}` | {base_ms:.4g} | {new_ms:.4g} | {statistics.median(ratios):.3f} "
              f"| {low:.3f}-{high:.3f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--only", default="", help="jobs and steps whose flags have this in them")
    arguments = parser.parse_args()
    base, new = arguments.base.resolve(), arguments.new.resolve()
    print(f"# Two builds\n\n- machine: {machine_line(read_machine())}\n- base: {base}\n- new: {new}")
    alike = same_bits(base, new, arguments.only)
    compare_steps(base, new, arguments.only, arguments.rounds, arguments.seconds)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
