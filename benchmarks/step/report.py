"""The step benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from report_parts import machine_line, read_machine, require_tcmalloc, versions, write_report  # noqa: E402,F401


def best(workload: dict, kind: str) -> dict:
    return min((row for row in workload["contenders"] if row["kind"] == kind), key=lambda row: row["median"])


def ratios(workload: dict) -> dict:
    """How many times as fast our best row is as the peer as installed, and as the best tuned one."""
    ours = best(workload, "ours")["median"]
    return {kind: best(workload, kind)["median"] / ours for kind in ("installed", "tuned")}


def summary(workloads: list[dict]) -> str:
    rows = ["| workload | DDP as installed, ms | DDP tuned, ms (which) | lockstep, ms (which) | samples/s "
            "| times as installed (target) | times tuned (target) |", "|---|---:|---:|---:|---:|---:|---:|"]
    for workload in workloads:
        installed, tuned, ours = (best(workload, kind) for kind in ("installed", "tuned", "ours"))
        times, targets = ratios(workload), workload["targets"]
        rows.append(f"| {workload['title']} | {1e3 * installed['median']:.3f} | {1e3 * tuned['median']:.3f} "
                    f"({tuned['name'].removeprefix('tuned: ')}) | {1e3 * ours['median']:.3f} ({ours['name']}) "
                    f"| {workload['samples'] / ours['median']:,.0f} | {times['installed']:.2f} ({targets[0]}) "
                    f"| {times['tuned']:.2f} ({targets[1]}) |")
    return "\n".join(rows) + "\n"


def who(row: dict) -> str:
    return f"DDP {row['name']}" if row["kind"] in ("installed", "tuned") else f"lockstep, {row['name']}"


def table(workload: dict, rows: list[dict]) -> str:
    ours = best(workload, "ours")["median"]
    lines = ["| contender | median ms | p99 ms | medians of the rounds, ms | steps | samples/s | times lockstep |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| {who(row)} | {1e3 * row['median']:.3f} | {1e3 * row['p99']:.3f} "
                     f"| {1e3 * min(row['rounds']):.3f}-{1e3 * max(row['rounds']):.3f} | {row['steps']} "
                     f"| {workload['samples'] / row['median']:,.0f} | {row['median'] / ours:.2f} |")
    return "\n".join(lines) + "\n"


def section(workload: dict) -> str:
    rows = [row for row in workload["contenders"] if row["kind"] != "lever"]
    weights, pages = best(workload, "ours")["weights"], best(workload, "ours")["pages"]
    return (f"\n## {workload['title']}\n\n{weights:,} weights; pages of lockstep's shared state: {pages}.\n\n"
            f"{table(workload, rows)}")


def levers(workloads: list[dict]) -> str:
    """Each compared with the last row of ours, in which it moves."""
    lines = ["| workload | row | median ms | p99 ms | medians of the rounds, ms | times as long |",
             "|---|---|---:|---:|---:|---:|"]
    for workload in workloads:
        whole = [row for row in workload["contenders"] if row["kind"] == "ours"][-1]
        off = [row for row in workload["contenders"] if row["kind"] == "lever"]
        for row in [whole, *off] if off else []:
            name = f"lockstep, {row['name']}" if row is whole else row["name"]
            lines.append(f"| {workload['name']} | {name} | {1e3 * row['median']:.3f} | {1e3 * row['p99']:.3f} "
                         f"| {1e3 * min(row['rounds']):.3f}-{1e3 * max(row['rounds']):.3f} "
                         f"| {row['median'] / whole['median']:.2f} |")
    if len(lines) == 2:
        return ""
    return "\n## Levers\n\nOne of them moved, the others as they are. By default tensors come from the caching allocator, ranks are not bound.\n\n" + "\n".join(lines) + "\n"


def markdown(whole: dict) -> str:
    m, v, workloads = whole["machine"], whole["versions"], whole["workloads"]
    return f"""# Training steps

Forward, backward, gradient exchange and update on two processes: Lockstep (`lockstep run`, `DistributedDataParallel`, `lockstep::optim`) beside Python's `DistributedDataParallel` on Gloo, started by torchrun. All took turns in one run, the order rotating, {whole["rounds"]} rounds after one to warm up; who has no turn sleeps. Each step takes a fresh copy of one of 64 random batches; the labels come round in another rhythm, so that nothing is learnt by heart and gradients stay what they are. A step lasts from the end of the one before to its own end, both on the last rank; the first step of a turn, which brings caches back, does not count unless steps are longer than 0.3 s (these have four rounds).

As installed: torchrun's and PyTorch's defaults, fp32. Tuned: one thread, fused optimizer, `gradient_as_bucket_view`, `static_graph`, one bucket, flushed denormals, tcmalloc, channels-last for pictures, and what the row's name says; bf16 is autocast, "bf16 gradients" are exchanged in it. The best tuned row counts.

- machine: {machine_line(m)}
- torch {v["torch"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{summary(workloads)}{"".join(section(workload) for workload in workloads)}{levers(workloads)}"""


def write(path: pathlib.Path, whole: dict):
    write_report(path, markdown(whole), whole)
