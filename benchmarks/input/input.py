"""What the input path makes ready, beside torchvision + torch's DataLoader: one report of all cases.

Run by `scripts/bench input`, under scripts/python-torch. Each case is a run of lockstep-bench-input, in which the
contenders take turns. The sets are those of LOCKSTEP_TEST_DATA or ../shared/data; with --made-up pictures are made up,
and there is no report of them.
"""
import argparse
import gzip
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import report

DATA = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA") or pathlib.Path(__file__).resolve().parents[3] / "shared" / "data")
NEEDED = ("cifar10-jpeg/train.tar.gz", "flowers/train", "mnist")  # below it
DEADLINE_SECONDS = 600

# Title, folder, flags, how many times the fastest peer we want to be.
CASES = [
    ("CIFAR-10 from JPEG files", "cifar", [], 5),
    ("CIFAR-10 from pixels in memory", "cifar", ["--in-memory"], 20),
    ("Flower photographs from JPEG files", "flowers", [], 3),
    ("Flower photographs, decoded before", "flowers", ["--in-memory"], 10),
    ("MNIST", "mnist", [], 10),
]


class UsageError(Exception):
    pass


def real_sets(scratch: pathlib.Path) -> dict[str, pathlib.Path]:
    missing = [name for name in NEEDED if not (DATA / name).exists()]
    if missing:
        raise UsageError(f"no {', '.join(missing)} in {DATA}: set LOCKSTEP_TEST_DATA, or measure pictures --made-up")
    with tarfile.open(DATA / NEEDED[0]) as archive:
        archive.extractall(scratch, filter="data")
    return {"cifar": scratch / "train", "flowers": DATA / NEEDED[1], "mnist": DATA / NEEDED[2]}


def made_up_sets(scratch: pathlib.Path) -> dict[str, pathlib.Path]:
    """Smooth colours with noise on them, as JPEG files; noise in MNIST's format."""
    import numpy
    import PIL.Image
    random = numpy.random.default_rng(0)

    def folder(name, count, size):
        for i in range(count):
            place = scratch / name / f"class{i % 2}"
            place.mkdir(parents=True, exist_ok=True)
            height, width = size(i)
            ramp = numpy.add.outer(numpy.arange(height), numpy.arange(width))[:, :, None] * [1, 2, 3]
            pixels = (ramp + random.integers(0, 32, (height, width, 3))) % 256
            PIL.Image.fromarray(pixels.astype(numpy.uint8)).save(place / f"{i}.jpg", quality=90)
        return scratch / name

    def idx(name, magic, shape):
        head = b"".join(int(value).to_bytes(4, "big") for value in (magic, *shape))
        (scratch / "mnist" / name).write_bytes(gzip.compress(head + random.integers(0, 10, shape, numpy.uint8).tobytes()))

    (scratch / "mnist").mkdir()
    idx("train-images-idx3-ubyte.gz", 0x803, (2000, 28, 28))
    idx("train-labels-idx1-ubyte.gz", 0x801, (2000,))
    return {"cifar": folder("cifar", 2000, lambda i: (32, 32)),
            "flowers": folder("flowers", 100, lambda i: (240 + 3 * (i % 40), 320)), "mnist": scratch / "mnist"}


def measure(arguments, folder: pathlib.Path, flags: list[str]) -> dict:
    command = [str(arguments.bin / "lockstep-bench-input"), "--data-path", str(folder), *flags, "--json",
               "--batch-size", str(arguments.batch_size), "--rounds", str(arguments.rounds),
               "--seconds", str(arguments.seconds), "--peer", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.8, help="of a turn, about")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--made-up", action="store_true", help="without any set, to see that it runs; no report")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    if arguments.made_up and arguments.report:
        parser.error("--made-up pictures are not the sets that a report is about: leave --report out")
    arguments.bin = arguments.bin.resolve()
    memory = pathlib.Path("/dev/shm")  # files of a set that fits in memory come from there from the second epoch on
    cases = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        try:
            sets = (made_up_sets if arguments.made_up else real_sets)(pathlib.Path(scratch))
        except UsageError as error:
            parser.error(str(error))
        if importlib.util.find_spec("torchvision") is None:
            raise SystemExit("bench: torchvision is needed: scripts/bootstrap --tests installs it")
        machine = report.read_machine()
        for title, name, flags, target in CASES:
            print(f"bench: {title}", file=sys.stderr)
            cases.append({"title": title, "target": target, **measure(arguments, sets[name], flags)})
    command = report.command_text("input")
    whole = {"benchmark": "input", "machine": machine, "commit": arguments.commit, "command": command,
             "made_up": arguments.made_up, "cases": cases}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
