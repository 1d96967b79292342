"""The launcher benchmark's report: numbers in, Markdown and JSON out."""
import importlib.metadata
import pathlib
import platform
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, spread, write_plotted_report  # noqa: E402,F401

TARGETS = {"start": 30, "restart": 20, "memory": 10e6, "first_step": 8}
OURS = "lockstep run"


def versions() -> dict:
    mpirun = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return {"torch": importlib.metadata.version("torch"), "python": platform.python_version(),
            "mpirun": mpirun.splitlines()[0]}


def median(row: dict) -> float:
    return spread(row["seconds"])[1]


def times_table(results: list[dict]) -> str:
    ours = median(rows.best(results, median, "ours"))
    lines = ["| contender | median ms | p10-p90 ms | turns | times lockstep run |", "|---|---:|---:|---:|---:|"]
    for result in results:
        low, middle, high = (1e3 * value for value in spread(result["seconds"]))
        lines.append(f"| {result['name']} | {middle:.2f} | {low:.2f}-{high:.2f} | {len(result['seconds'])} "
                     f"| {middle / 1e3 / ours:.2f} |")
    return "\n".join(lines) + "\n"


def verdict(results: list[dict], target: float) -> str:
    """Beside what is installed, and beside the fastest that is not ours."""
    ours = rows.best(results, median, "ours")
    installed, peer = rows.best(results, median, "installed"), rows.best_peer(results, median)
    return (f"`{ours['name']}` {duration(median(ours))}: {median(installed) / median(ours):.1f} times as fast as "
            f"{installed['name']} (target: {target}), {median(peer) / median(ours):.1f} times as fast as the fastest peer, "
            f"{peer['name']}.")


def duration(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 0.1 else f"{seconds:.3f} s"


def first_step(results: list[dict]) -> str:
    """From the command to the end of the first training step; nothing when it was not measured."""
    if not results:
        return ""
    ours = median(rows.best(results, median, "ours"))
    lines = ["| contender | median s | p10-p90 s | turns | times lockstep train | of it, s |",
             "|---|---:|---:|---:|---:|---|"]
    for result in results:
        low, middle, high = spread(result["seconds"])
        parts = ", ".join(f"{name} {spread([part[name] for part in result['parts']])[1]:.2f}"
                          for name in result["parts"][0])
        lines.append(f"| {result['name']} | {middle:.3f} | {low:.3f}-{high:.3f} | {len(result['seconds'])} "
                     f"| {middle / ours:.2f} | {parts} |")
    return (f"""## Command to first step

The MNIST ConvNet on two processes, 100 samples per process, channels-last but for the tutorial's script, from the command to the end of the first training step, with the same files. The tutorial's script has torchvision's MNIST and DataLoader; the tuned one reads the files itself and imports no torchvision; both end there. {verdict(results, TARGETS["first_step"])}

""" + "\n".join(lines) + "\n\n")


def memory_table(results: list[dict]) -> str:
    rows = ["| launcher | workers | resident MB | peak MB | its helper processes MB |", "|---|---:|---:|---:|---:|"]
    rows += [f"| {result['name']} | {result['workers']} | {result['resident'] / 1e6:.1f} | {result['peak'] / 1e6:.1f} "
             f"| {result['helpers'] / 1e6:.1f} |" for result in results]
    return "\n".join(rows) + "\n"


def markdown(whole: dict) -> str:
    m, row, v = whole["machine"], whole["in_a_row"], whole["versions"]
    peak = max(result["peak"] + result["helpers"] for result in whole["memory"] if result["name"] == OURS)
    return f"""# Launch

Two workers that do nothing, so that what is measured is the launcher. All contenders took turns in one run: {whole["rounds"]} rounds after one to warm up, a turn for each in every round, the order rotating. Output goes to /dev/null, `OMP_NUM_THREADS` is 1 for all.

- machine: {machine_line(m)}
- torchrun of torch {v["torch"]}, Python {v["python"]}; {v["mpirun"]}
- torchrun, tuned: `--monitor-interval 0.01`, garbage collector off, static rendezvous; byte code is cached for all
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{first_step(whole["first_step"])}## Start to finish

From the launcher's start to its end. {verdict(whole["start"], TARGETS["start"])}

{times_table(whole["start"])}
The same with `true`:

{times_table(whole["start_true"])}
## A killed worker to the restarted workers' `main`

A worker kills itself by SIGKILL, 0.2 to 0.5 s after all have begun, at no fixed point of torchrun's polling; the clock runs until `main` has begun in both workers of the next attempt. {verdict(whole["restart"], TARGETS["restart"])}

{times_table(whole["restart"])}
## Memory of the launcher

When all workers run; at most {peak / 1e6:.1f} MB for `lockstep run`, its peak and its helper process together (target: below {TARGETS["memory"] / 1e6:.0f} MB).

{memory_table(whole["memory"])}
## In a row

{row["launches"]} starts of `lockstep run -n 2` one after another: {row["failures"]} failures, {row["seconds"]:.1f} s, {1e3 * row["seconds"] / row["launches"]:.2f} ms each.
"""


def write(path: pathlib.Path, whole: dict):
    write_plotted_report(path, markdown(whole), whole)
