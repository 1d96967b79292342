"""The step benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import profiles  # noqa: E402
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, require_tcmalloc, versions, write_plotted_report  # noqa: E402,F401


def median(row: dict) -> float:
    return row["median"]


def who(row: dict) -> str:
    return f"lockstep, {row['name']}" if row["kind"] == "ours" else f"DDP {row['name']}"


def which(row: dict) -> str:
    return f"{1e3 * row['median']:.3f} ({row['name'].removeprefix('tuned: ')})"


def summary(workloads: list[dict]) -> str:
    """A line for each precision of ours: float32 beside float32, bf16 beside the fastest of all."""
    lines = ["| workload | DDP as installed (float32), ms | DDP's fastest, ms (which) | lockstep, ms (which) | samples/s "
             "| times as installed | times DDP's fastest | targets |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for workload in workloads:
        of = workload["contenders"]
        installed = rows.best(of, median, "installed")
        for precision in rows.precisions(of):
            ours = rows.best(of, median, "ours", precision=precision)
            peer = rows.best_peer(of, median, precision)
            lines.append(f"| {workload['title']}, {precision} | {1e3 * installed['median']:.3f} | {which(peer)} "
                         f"| {which(ours)} | {workload['samples'] / ours['median']:,.0f} "
                         f"| {installed['median'] / ours['median']:.2f} | {peer['median'] / ours['median']:.2f} "
                         f"| {', '.join(str(target) for target in workload['targets']) or '-'} |")
    return "\n".join(lines) + "\n"


def alike(workload: dict) -> str:
    """Pictures: the fastest of each side with the same precision and the same format in memory."""
    of = workload["contenders"]
    both = sorted({(row["precision"], row["format"]) for row in rows.of(of, "ours") if "format" in row}, reverse=True)
    if not both:
        return ""
    lines = ["| like against like | DDP, ms (which) | lockstep, ms (which) | times |", "|---|---:|---:|---:|"]
    for precision, memory in both:
        like = {"precision": precision, "format": memory}
        ours, peer = rows.best(of, median, "ours", **like), rows.best(of, median, *rows.PEERS, **like)
        if peer is not None:
            lines.append(f"| {precision}, {memory} | {which(peer)} | {which(ours)} "
                         f"| {peer['median'] / ours['median']:.2f} |")
    return "\n" + "\n".join(lines) + "\n"


def table(workload: dict) -> str:
    ours = rows.best(workload["contenders"], median, "ours")["median"]
    lines = ["| contender | median ms | p99 ms | medians of the rounds, ms | steps | samples/s | times lockstep |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows.of(workload["contenders"], "ours", *rows.PEERS):
        lines.append(f"| {who(row)} | {1e3 * row['median']:.3f} | {1e3 * row['p99']:.3f} "
                     f"| {1e3 * min(row['rounds']):.3f}-{1e3 * max(row['rounds']):.3f} | {row['steps']} "
                     f"| {workload['samples'] / row['median']:,.0f} | {row['median'] / ours:.2f} |")
    return "\n".join(lines) + "\n"


def section(workload: dict) -> str:
    ours = rows.best(workload["contenders"], median, "ours")
    anew = (" Each contender started anew for each turn, for beside each other they do not fit into memory; the first two "
            "steps of a turn do not count, and there are at most four rounds.") if workload.get("anew") else ""
    return (f"\n## {workload['title']}\n\n{ours['weights']:,} weights; pages of lockstep's shared state: {ours['pages']}."
            f"{anew}\n\n{table(workload)}{alike(workload)}")


def levers(workloads: list[dict]) -> str:
    """Each compared with the last row of ours, in which it moves."""
    lines = ["| workload | row | median ms | p99 ms | medians of the rounds, ms | times as long |",
             "|---|---|---:|---:|---:|---:|"]
    for workload in workloads:
        whole = rows.of(workload["contenders"], "ours")[-1]
        off = rows.of(workload["contenders"], "lever")
        for row in [whole, *off] if off else []:
            name = f"lockstep, {row['name']}" if row is whole else row["name"]
            lines.append(f"| {workload['name']} | {name} | {1e3 * row['median']:.3f} | {1e3 * row['p99']:.3f} "
                         f"| {1e3 * min(row['rounds']):.3f}-{1e3 * max(row['rounds']):.3f} "
                         f"| {row['median'] / whole['median']:.2f} |")
    if len(lines) == 2:
        return ""
    return "\n## Levers\n\nOne of them moved, the others as they are. By default tensors come from the caching allocator, ranks are not bound.\n\n" + "\n".join(lines) + "\n"


def where_time_goes(workloads: list[dict]) -> str:
    """Of the fastest row of ours of each."""
    text = f"\n## Where the time of a step goes\n\n{profiles.EXPLAINED}\n"
    for workload in workloads:
        found = workload["profile"]
        text += (f"\n### {workload['title']}, {found['name']}\n\n"
                 + profiles.section(found, f"{found['ranks']} x {found['batch']}"))
    return text


def markdown(whole: dict) -> str:
    m, v, workloads = whole["machine"], whole["versions"], whole["workloads"]
    return f"""# Training steps

Forward, backward, gradient exchange and update, on two processes of one thread unless the title says otherwise: Lockstep (`lockstep run`, `DistributedDataParallel`, `lockstep::optim`) beside Python's `DistributedDataParallel` on Gloo, started by torchrun. All took turns in one run, the order rotating, {whole["rounds"]} rounds after one to warm up; who has no turn sleeps. Each step takes a fresh copy of one of 64 random batches (of 224 x 224 pictures fewer); the labels come round in another rhythm, so that nothing is learnt by heart and gradients stay what they are. A step lasts from the end of the one before to its own end, both on the last rank; the first step of a turn, which brings caches back, does not count unless steps are longer than 0.3 s (these have four rounds).

As installed: torchrun's and PyTorch's defaults, float32. Tuned: one thread, fused optimizer, `gradient_as_bucket_view`, `static_graph`, one bucket, flushed denormals, tcmalloc, and what the row's name says; bf16 is autocast, "bf16 gradients" are exchanged in it. Our rows that are fused have `--fuse`: layers that do the work of several with BatchNorm, which are the same functions and round otherwise, and linear layers of the same bits whose gradients are computed in their slots. DDP's fastest is the fastest row that is not ours: of the float32 rows beside our float32, of all rows beside our bf16. Targets: times as installed, times tuned, at our fastest.

- machine: {machine_line(m)}
- torch {v["torch"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{summary(workloads)}{"".join(section(workload) for workload in workloads)}{levers(workloads)}{where_time_goes(workloads)}"""


def write(path: pathlib.Path, whole: dict):
    write_plotted_report(path, markdown(whole), whole)
