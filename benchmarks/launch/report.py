"""The launcher benchmark's report: numbers in, Markdown and JSON out."""
import importlib.metadata
import pathlib
import platform
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from report_parts import machine_line, read_machine, spread, write_report  # noqa: E402,F401

TARGETS = {"start": 30, "restart": 20, "memory": 10e6, "first_step": 8}
OURS = "lockstep run"
TRAIN = "lockstep train"


def versions() -> dict:
    mpirun = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return {"torch": importlib.metadata.version("torch"), "python": platform.python_version(),
            "mpirun": mpirun.splitlines()[0]}


def median(results: list[dict], name: str) -> float:
    return spread(next(result["seconds"] for result in results if result["name"] == name))[1]


def times_table(results: list[dict]) -> str:
    ours = median(results, OURS)
    rows = ["| contender | median ms | p10-p90 ms | turns | times lockstep run |", "|---|---:|---:|---:|---:|"]
    for result in results:
        low, middle, high = (1e3 * value for value in spread(result["seconds"]))
        rows.append(f"| {result['name']} | {middle:.2f} | {low:.2f}-{high:.2f} | {len(result['seconds'])} "
                    f"| {middle / 1e3 / ours:.2f} |")
    return "\n".join(rows) + "\n"


def faster(results: list[dict], target: float) -> str:
    ours = median(results, OURS)
    others = [f"{median(results, result['name']) / ours:.1f} times as fast as {result['name']}"
              for result in results if result["name"].startswith("torchrun")]
    return f"`lockstep run` {1e3 * ours:.2f} ms: {', '.join(others)} (target: {target}).\n"


def first_step(results: list[dict]) -> str:
    """From the command to the end of the first training step; nothing when it was not measured."""
    if not results:
        return ""
    ours = median(results, TRAIN)
    others = [f"{median(results, result['name']) / ours:.1f} times as fast as {result['name']}"
              for result in results if result["name"] != TRAIN]
    rows = ["| contender | median s | p10-p90 s | times lockstep train | of it, s |", "|---|---:|---:|---:|---|"]
    for result in results:
        low, middle, high = spread(result["seconds"])
        parts = ", ".join(f"{name} {spread([part[name] for part in result['parts']])[1]:.2f}"
                          for name in result["parts"][0])
        rows.append(f"| {result['name']} | {middle:.3f} | {low:.3f}-{high:.3f} | {middle / ours:.2f} | {parts} |")
    return (f"""## Command to first step

The MNIST ConvNet on two processes, 100 samples per process, from the command to the end of the first training step, with the same files. The tutorial's script has torchvision's MNIST and DataLoader; the tuned one reads the files itself and imports no torchvision; both end there. `lockstep train` {ours:.3f} s: {', '.join(others)} (target: {TARGETS["first_step"]} times torchrun).

""" + "\n".join(rows) + "\n\n")


def memory_table(results: list[dict]) -> str:
    rows = ["| launcher | workers | resident MB | peak MB | its helper processes MB |", "|---|---:|---:|---:|---:|"]
    rows += [f"| {result['name']} | {result['workers']} | {result['resident'] / 1e6:.1f} | {result['peak'] / 1e6:.1f} "
             f"| {result['helpers'] / 1e6:.1f} |" for result in results]
    return "\n".join(rows) + "\n"


def markdown(whole: dict) -> str:
    m, row, v = whole["machine"], whole["in_a_row"], whole["versions"]
    peak = max(result["peak"] + result["helpers"] for result in whole["memory"] if result["name"] == OURS)
    return f"""# Launch

Two workers that do nothing, so that what is measured is the launcher. All contenders took turns in one run: {whole["rounds"]} rounds after one to warm up, three turns a round for those that are quick. Output goes to /dev/null, `OMP_NUM_THREADS` is 1 for all.

- machine: {machine_line(m)}
- torchrun of torch {v["torch"]}, Python {v["python"]}; {v["mpirun"]}
- torchrun, tuned: `--monitor-interval 0.01`, garbage collector off, static rendezvous; byte code is cached for all
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{first_step(whole["first_step"])}## Start to finish

From the launcher's start to its end. {faster(whole["start"], TARGETS["start"])}
{times_table(whole["start"])}
The same with `true`:

{times_table(whole["start_true"])}
## A killed worker to the restarted workers' `main`

A worker kills itself by SIGKILL, 0.2 to 0.5 s after all have begun, at no fixed point of torchrun's polling; the clock runs until `main` has begun in both workers of the next attempt. {faster(whole["restart"], TARGETS["restart"])}
{times_table(whole["restart"])}
## Memory of the launcher

When all workers run; at most {peak / 1e6:.1f} MB for `lockstep run`, its peak and its helper process together (target: below {TARGETS["memory"] / 1e6:.0f} MB).

{memory_table(whole["memory"])}
## In a row

{row["launches"]} starts of `lockstep run -n 2` one after another: {row["failures"]} failures, {row["seconds"]:.1f} s, {1e3 * row["seconds"] / row["launches"]:.2f} ms each.
"""


def write(path: pathlib.Path, whole: dict):
    write_report(path, markdown(whole), whole)
