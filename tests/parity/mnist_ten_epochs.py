"""MNIST, 2 processes, 10 epochs: Python's DistributedDataParallel and `lockstep train`, seed by seed.

  make parity-long

Too long for `make test`. Both sides draw their own initial weights and order from the seed. Writes a
report; exit code 1 when a final loss differs by more than the spread of Python's seeds or an accuracy
by more than 0.3 points.
"""
import argparse
import pathlib
import platform
import sys
import tempfile
import time

import torch

import lockstep
import reference
from reference import Job

STEPS = 10 * 300  # 60,000 samples / (2 processes x 100)
TAIL = 100  # the final loss is the mean of the last so many steps
ACCURACY_LIMIT = 0.003


def make_job(data_path: str, seed: int) -> Job:
    return Job("convnet", "mnist", data_path, "sgd", lr=1e-4, batch_size=100, max_steps=STEPS, seed=seed,
               evaluate=True)


def run_python(job: Job, folder: pathlib.Path) -> dict:
    return reference.run([job], folder / "python.json")[0]


def run_lockstep(job: Job, folder: pathlib.Path) -> dict:
    events = lockstep.train(job, folder / "lockstep")
    return {"losses": lockstep.losses(events), "top1": lockstep.last_accuracy(events)}


def measure(run, job: Job) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        result = run(job, pathlib.Path(folder))
        losses = result["losses"]
        assert len(losses) == STEPS
        return {"seed": job.seed, "step 100": losses[99], "step 600": losses[599], "step 3000": losses[-1],
                "final": sum(losses[-TAIL:]) / TAIL, "top1": result["top1"], "seconds": time.monotonic() - start}


def table_row(side: str, row: dict) -> str:
    losses = " | ".join(f"{row[name]:.7f}" for name in ("step 100", "step 600", "step 3000", "final"))
    return f"| {side} | {row['seed']} | {losses} | {row['top1']:.4f} | {row['seconds']:.0f} |"


def report(theirs: list[dict], ours: list[dict], verdict: str, commit: str) -> str:
    rows = [table_row("Python", row) for row in theirs] + [table_row("Lockstep", row) for row in ours]
    return "\n".join([
        "# MNIST, 10 epochs: Lockstep and Python",
        "",
        f"ConvNet, SGD, lr 1e-4, 2 processes of one thread, batch 100 per process; torch {torch.__version__},",
        f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}. Written by `make parity-long`,",
        f"commit {commit}.",
        "",
        f"The loss is the mean over the step's global batch, final the mean of the last {TAIL} steps; accuracy is that of",
        "the 10,000 test images. Seconds are of the whole command, on a machine that did other work too: no benchmark.",
        "",
        "| side | seed | loss, step 100 | step 600 | step 3000 | final | accuracy | s |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        verdict,
        "",
    ])


def judge(theirs: list[dict], ours: list[dict]) -> tuple[bool, str]:
    finals = [row["final"] for row in theirs]
    spread = max(finals) - min(finals)
    loss = max(abs(a["final"] - b["final"]) for a, b in zip(ours, theirs, strict=True))
    accuracy = max(abs(a["top1"] - b["top1"]) for a, b in zip(ours, theirs, strict=True))
    passed = loss <= spread and accuracy <= ACCURACY_LIMIT
    return passed, (f"{'Passed' if passed else 'FAILED'}: final losses of the same seed differ by at most {loss:.1e} "
                    f"(spread of Python's seeds {spread:.1e}),\naccuracies by {100 * accuracy:.2f} points (limit "
                    f"{100 * ACCURACY_LIMIT:.1f}).")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-path", required=True, help="folder of the MNIST files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", type=pathlib.Path, required=True)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    theirs, ours = [], []
    for seed in range(arguments.seeds):
        job = make_job(arguments.data_path, seed)
        for side, run, rows in (("Python", run_python, theirs), ("Lockstep", run_lockstep, ours)):
            rows.append(measure(run, job))
            print(table_row(side, rows[-1]), flush=True)
    passed, verdict = judge(theirs, ours)
    print(verdict)
    arguments.report.write_text(report(theirs, ours, verdict, arguments.commit))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
