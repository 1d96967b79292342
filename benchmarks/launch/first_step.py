"""From a command to the end of its first training step: MNIST ConvNet on two processes, ours and torchrun's."""
import json
import pathlib
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import commands  # noqa: E402
from report_parts import median  # noqa: E402
from turns import take_turns  # noqa: E402

PEER = pathlib.Path(__file__).resolve().parents[1] / "peer"
PORTS = iter(range(23_000, 32_000))
DEADLINE_SECONDS = 60
MARKS = ("python", "imports", "process group", "data", "model", "first step")
OURS = "lockstep train"


def python_parts(done: commands.Finished, marks: dict[str, float]) -> dict[str, float]:
    names = ["launcher and interpreter", "imports", "process group", "data", "model", "first step"]
    times = [done.began, *(marks[name] for name in MARKS)]
    return {name: after - before for name, before, after in zip(names, times, times[1:])}


def run_python(command: list[str], environment: dict[str, str]) -> dict:
    done = commands.run(command, environment, DEADLINE_SECONDS)
    marks = {name: done.marks(name)[0] for name in MARKS}
    return {"seconds": marks["first step"] - done.began, "parts": python_parts(done, marks)}


def torchrun(script: str, data: pathlib.Path, *flags: str) -> list[str]:
    return ["-m", "torch.distributed.run", "--nproc-per-node", "2", *flags, "--master-port", str(next(PORTS)),
            str(PEER / script), "--data", str(data), "--one-step"]


def as_installed(_: pathlib.Path, data: pathlib.Path) -> dict:
    return run_python([sys.executable, *torchrun("mnist_tutorial.py", data)], {})


def tuned(_: pathlib.Path, data: pathlib.Path) -> dict:
    """Without the garbage collector torch is imported a tenth faster; the script imports no torchvision."""
    quick = ["-c", "import gc; gc.disable(); from torch.distributed.run import main; main()"]
    return run_python([sys.executable, *quick, *torchrun("mnist_tuned.py", data)[2:], "--channels-last"],
                      {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})


def by_hand(_: pathlib.Path, data: pathlib.Path) -> dict:
    """No launcher: a shell starts both ranks."""
    rank = f"{sys.executable} {PEER / 'mnist_tuned.py'} --data {data} --one-step --channels-last"
    script = f"RANK=1 LOCAL_RANK=1 {rank} & RANK=0 LOCAL_RANK=0 {rank} && wait $!"
    return run_python(["sh", "-c", script], {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(next(PORTS)), "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo"})


def ours(binaries: pathlib.Path, data: pathlib.Path) -> dict:
    """It ends when its line comes out; its events begin when all is ready."""
    with tempfile.TemporaryDirectory() as folder:
        offset = time.time() - time.monotonic()
        done = commands.run([str(binaries / "lockstep"), "train", "-n", "2", "--dataset", "mnist", "--data-path",
                             str(data / "MNIST" / "raw"), "--model", "convnet", "--channels-last", "--batch-size", "100",
                             "--lr", "1e-4", "--max-steps", "1", "--print-freq", "1", "--no-eval", "--output-dir",
                             f"{folder}/run"], {}, DEADLINE_SECONDS)
        events = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    shown = next(when for when, line in done.lines if "step 1/1" in line) - done.began
    ready = events[0]["time"] - offset - done.began
    return {"seconds": shown, "parts": {"until all is ready": ready, "first step": shown - ready}}


def loading(binaries: pathlib.Path) -> float:
    """Until the same program says its first word of help: it has its libraries then."""
    helped = commands.run([str(binaries / "lockstep"), "run", "-n", "2", str(binaries / "lockstep-trainer"), "--help"],
                          {}, DEADLINE_SECONDS)
    return helped.lines[0][0] - helped.began


# Name: kind, how it is run.
CONTENDERS = {OURS: ("ours", ours), "torchrun, the tutorial's script": ("installed", as_installed),
              "torchrun, tuned": ("tuned", tuned), "no launcher, tuned": ("tuned", by_hand)}


def measure(binaries: pathlib.Path, source: pathlib.Path, rounds: int, warm_up: bool = True) -> list[dict]:
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch)
        commands.unpack_mnist(source, data)
        turns = take_turns({name: lambda run=run: run(binaries, data) for name, (_, run) in CONTENDERS.items()}, rounds,
                           warm_up)
    # After all turns: a command of ours between them would warm up our files for our own turn.
    libraries = median([loading(binaries) for _ in range(rounds)])
    for turn in turns[OURS]:
        ready = turn["parts"].pop("until all is ready")
        turn["parts"] = {"launcher, libraries": libraries, "join, data, model, state": ready - libraries, **turn["parts"]}
    return [{"name": name, "kind": CONTENDERS[name][0], "seconds": [turn["seconds"] for turn in of],
             "parts": [turn["parts"] for turn in of]} for name, of in turns.items()]
