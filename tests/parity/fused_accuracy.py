"""`lockstep train` with `--fuse` and without, seed by seed: what fusing costs in accuracy.

  make fused-accuracy CASES="mnist cifar"

Too long for `make test`: a minute for mnist, hours for cifar. Fusing changes bits, so both sides of a seed part ways; a
case passes when the means over the seeds are at most 0.2 points apart, or no further than the seeds of one side are.
Writes a report.

  mnist  the ConvNet, 2 epochs of MNIST
  cifar  ResNet-18 with CIFAR stem, 5 epochs of CIFAR-10's pictures
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

DEADLINE_SECONDS = 7200  # of a command
LIMIT = 0.002
PRECISIONS = {"float32": [], "bfloat16": ["--amp", "bf16"]}
# Flags of `lockstep train`; the set is given by its folder.
CASES = {
    "mnist": ["--dataset", "mnist", "--model", "convnet", "--lr", "1e-4", "--batch-size", "100", "--epochs", "2"],
    "cifar": ["--dataset", "imagefolder", "--transforms", "cifar", "--model", "resnet18_cifar", "--lr", "0.05", "--momentum",
              "0.9", "--batch-size", "64", "--epochs", "5"],
}


def flags(case: str, precision: str, seed: int, fused: bool) -> list[str]:
    return [*CASES[case], *PRECISIONS[precision], "--channels-last", "--seed", str(seed), *(["--fuse"] if fused else [])]


def accuracy(binaries: pathlib.Path, data: pathlib.Path, words: list[str]) -> float:
    """Of the last evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binaries / "lockstep", "train", "-n", "2", "--data-path", data, "--output-dir", folder, *words],
                       check=True, timeout=DEADLINE_SECONDS, stdout=subprocess.DEVNULL)
        events = [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [event["top1"] for event in events if event["event"] == "eval"][-1]


def verdict(plain: list[float], fused: list[float]) -> tuple[bool, str]:
    """Of the accuracies of the seeds on both sides."""
    apart = abs(statistics.fmean(plain) - statistics.fmean(fused))
    seeds = max(max(side) - min(side) for side in (plain, fused))
    said = f"means {100 * apart:.2f} points apart, seeds of one side up to {100 * seeds:.2f}"
    if apart <= LIMIT:
        return True, f"Passed: {said}."
    if apart <= seeds:
        return True, f"Passed by what seeds differ by, not by {100 * LIMIT:.1f} points: {said}."
    return False, f"FAILED: {said}."


def measure(binaries: pathlib.Path, case: str, data: pathlib.Path, seeds: int) -> tuple[bool, list[str]]:
    all_passed, lines = True, ["", f"## {case}", "", f"`lockstep train -n 2 {' '.join(CASES[case])} --channels-last`", "",
                               "| precision | seed | accuracy, % | with --fuse, % | s |", "|---|---:|---:|---:|---:|"]
    said = []
    for precision in PRECISIONS:
        plain, fused = [], []
        for seed in range(seeds):
            start = time.monotonic()
            for side, found in ((False, plain), (True, fused)):
                found.append(accuracy(binaries, data, flags(case, precision, seed, side)))
            lines.append(f"| {precision} | {seed} | {100 * plain[-1]:.2f} | {100 * fused[-1]:.2f} "
                         f"| {time.monotonic() - start:.0f} |")
            print(lines[-1], flush=True)
        passed, text = verdict(plain, fused)
        all_passed &= passed
        said += ["", f"{precision}: {text}"]
    print(*said, sep="\n", flush=True)
    return all_passed, lines + said


def unpack_cifar(data: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    for name in ("train", "test"):
        with tarfile.open(data / "cifar10-jpeg" / f"{name}.tar.gz") as pictures:
            pictures.extractall(folder, filter="data")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the real sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", type=pathlib.Path, required=True)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error("--seeds: 2 or more, for their spread is a part of the measure")
    lines = ["# Accuracy with fused layers and without", "",
             f"Two processes of one thread, {platform.machine()}; accuracy on the test pictures behind the last epoch. Written by",
             f"`make fused-accuracy`, commit {arguments.commit}. Seconds are of both commands: no benchmark."]
    all_passed = True
    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.cases:
            data = unpack_cifar(arguments.data, pathlib.Path(folder)) if case == "cifar" else arguments.data / case
            passed, table = measure(arguments.bin.resolve(), case, data, arguments.seeds)
            all_passed &= passed
            lines += table
    arguments.report.write_text("\n".join(lines) + "\n")
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
