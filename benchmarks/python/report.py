"""The report of the backend "lockstep" under Python: numbers in, Markdown and JSON out."""
import pathlib
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import (command_text, machine_line, median, read_machine, spread, versions,  # noqa: E402,F401
                          write_report)

WORKLOADS = {"mlp": "MLP 64-64-10, batch 32 per process, SGD",
             "wide_mlp_sgd": "MLP 1024-4096-4096-1024, 25.2 M weights, batch 16 per process, SGD with momentum"}
MOST_ABOVE_FAKE = 2e-6  # seconds, of a call for 4 B
MOST_TIMES_NOOP = 1.10  # a step, of one with a hook that does nothing
# Times as fast as gloo: size, whether in a tensor of shared_empty, least.
TIMES_GLOO = [("64 KiB", False, 20), ("25 MiB", False, 3), ("25 MiB", True, 6)]


def call(row: dict) -> float:
    return median(row["seconds"])


def step(row: dict) -> float:
    return median(row["rounds"])


def duration(seconds: float) -> str:
    us = 1e6 * seconds
    return f"{us:.2f} µs" if us < 100 else f"{us:.0f} µs" if us < 1000 else f"{us / 1e3:.2f} ms"


def line(what: str, wanted: str, found: str, reached: bool) -> str:
    return f"| {what} | {wanted} | {found} | {'yes' if reached else 'no'} |"


def above_fake(case: dict) -> str:
    ours = rows.best(case["contenders"], call, "ours", shared=False)
    fake = rows.best(case["contenders"], call, "floor")
    more = call(ours) - call(fake)
    return line(f"all-reduce of {case['name']}", f"at most {1e6 * MOST_ABOVE_FAKE:.0f} µs more than `fake`",
                f"{1e6 * more:+.2f} µs: {duration(call(ours))} of {duration(call(fake))}", more <= MOST_ABOVE_FAKE)


def times_gloo(case: dict, shared: bool, least: int) -> str:
    """Where gloo's own calls vary, another run would find another figure, and the page says so."""
    ours = rows.best(case["contenders"], call, "ours", shared=shared)
    gloo = rows.best(case["contenders"], call, "installed")
    times = call(gloo) / call(ours)
    varies = "" if rows.is_steady(gloo["seconds"]) else " (gloo is not steady)"
    tensor = "`shared_empty`" if shared else "ordinary tensor"
    return line(f"all-reduce of {case['name']}, {tensor}", f"{least} times as fast as gloo",
                f"{times:.1f} times: {duration(call(ours))} of {duration(call(gloo))}{varies}", times >= least)


def beside_noop(case: dict) -> list[str]:
    """Like beside like: each way of DDP beside the same way with the hook."""
    lines = []
    for ours in rows.of(case["contenders"], "ours"):
        noop = rows.best(case["contenders"], step, "floor", way=ours["way"])
        times = step(ours) / step(noop)
        lines.append(line(f"a step: {WORKLOADS[case['name']]}, DDP {ours['way']}",
                          f"at most {MOST_TIMES_NOOP:.2f} times that with a hook that does nothing",
                          f"{times:.2f} times: {duration(step(ours))} of {duration(step(noop))}", times <= MOST_TIMES_NOOP))
    return lines


def verdicts(whole: dict) -> str:
    reduces = {case["name"]: case for case in whole["reduces"]}
    lines = ["| what | target | found | reached |", "|---|---|---|---|", above_fake(reduces["4 B"])]
    lines += [times_gloo(reduces[size], shared, least) for size, shared, least in TIMES_GLOO]
    lines += [found for case in whole["workloads"] for found in beside_noop(case)]
    return "\n".join(lines) + "\n"


def reduce_table(reduces: list[dict]) -> str:
    lines = ["| all-reduce | process group | median of the turns | quartiles | turns | calls of a turn |",
             "|---|---|---:|---:|---:|---:|"]
    for case in reduces:
        for row in case["contenders"]:
            low, _, high = statistics.quantiles(row["seconds"], n=4, method="inclusive")
            lines.append(f"| {case['name']} | {row['name']} | {duration(call(row))} | {duration(low)} to {duration(high)} "
                         f"| {len(row['seconds'])} | {row['calls']} |")
    return "\n".join(lines) + "\n"


def step_table(workloads: list[dict]) -> str:
    lines = ["| a step of | contender | median of the turns | p10-p90 of the steps | steps |", "|---|---|---:|---:|---:|"]
    for case in workloads:
        for row in case["contenders"]:
            low, _, high = row["spread"]
            lines.append(f"| {WORKLOADS[case['name']]} | {row['name']} | {duration(step(row))} "
                         f"| {duration(low)}-{duration(high)} | {row['steps']} |")
    return "\n".join(lines) + "\n"


def markdown(whole: dict) -> str:
    quick = "\nA quick run: that it runs. Its figures say nothing.\n" if whole["quick"] else ""
    return f"""# Python's torch.distributed

The backend `lockstep` beside gloo, two ranks on one machine, float32. All contenders are process groups and models of the same two processes, started by `lockstep run`; they take turns in one run, the order rotating, after one turn each to warm up. One thread each, `OMP_NUM_THREADS=1`, glibc's malloc.

- machine: {machine_line(whole["machine"])}
- torch {whole["versions"]["torch"]}, Python {whole["versions"]["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`
{quick}
{verdicts(whole)}
## All-reduces

{reduce_table(whole["reduces"])}
- A turn is `dist.all_reduce(tensor)` one behind the other; its figure is the median of the calls on the rank where that is longest. The first call of a turn does not count. The sums of all but `fake` are checked.
- `fake` is PyTorch's own backend that does nothing: what is left is the way of a call from Python to a backend.

## Steps of DistributedDataParallel

{step_table(whole["workloads"])}
- As installed: nothing is set. Tuned: `gradient_as_bucket_view`, `static_graph`, all gradients in one bucket, fused optimizer.
- The hook that does nothing is PyTorch's `noop_hook`: gradients stay each rank's own, and no rank waits for the other. What is below it is not an exchange's to win.
"""
