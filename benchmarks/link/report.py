"""The report of two nodes over a link with a rate: numbers in, Markdown and JSON out."""
import dataclasses
import pathlib
import sys
from collections.abc import Callable

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import (command_text, machine_line, median, read_machine, require_tcmalloc, spread,  # noqa: E402,F401
                          versions, write_report)

RATE = "1gbit"  # as tc writes it
BYTES_PER_SECOND = 1e9 / 8


def step(row: dict) -> float:
    return median(row["seconds"])


def sent(row: dict) -> list[float]:
    """Bytes that each node sends in a step."""
    return [median([turn[node] for turn in row["sent"]]) for node in range(2)]


def measured(contenders: list[dict]) -> list[dict]:
    return [row for row in contenders if row["seconds"]]


def ours(case: dict) -> dict | None:
    return rows.best(measured(case["contenders"]), step, "ours")


def beside_gloo(case: dict) -> tuple[str, bool] | None:
    """DDP as installed is an all-reduce of all ranks by Gloo, which knows no nodes."""
    mine, flat = ours(case), rows.best(measured(case["contenders"]), step, "installed")
    if mine is None or flat is None:
        return None
    part = sum(sent(mine)) / sum(sent(flat))
    return f"{part:.3f}: {megabytes(sum(sent(mine)))} of {megabytes(sum(sent(flat)))}", part <= 0.70


def as_told(case: dict) -> tuple[str, bool] | None:
    mine = ours(case)
    if mine is None:
        return None
    more = sum(sent(mine)) / case["told"]["all"] - 1
    return f"{100 * more:+.2f} %: {megabytes(sum(sent(mine)))} of {megabytes(case['told']['all'])}", abs(more) <= 0.05


def at_the_limit(case: dict) -> tuple[str, bool] | None:
    """max(compute, bytes / link): the same job where the link has no rate, and the busier node's bytes at the rate."""
    mine, free = ours(case), rows.best(measured(case["contenders"]), step, "lever", limited=False)
    if mine is None or free is None:
        return None
    compute, link = step(free), max(sent(mine)) / BYTES_PER_SECOND
    times = step(mine) / max(compute, link)
    text = f"{times:.2f} times {milliseconds(max(compute, link))} ms"
    return f"{text} (compute {milliseconds(compute)}, link {milliseconds(link)})", times <= 1.10


def as_fast_as_ddp(least: float):
    def judge(case: dict) -> tuple[str, bool] | None:
        mine, peer = ours(case), rows.best_peer(measured(case["contenders"]), step, "fp32")
        if mine is None or peer is None:
            return None
        times = step(peer) / step(mine)
        return f"{times:.2f} times as fast as {peer['name']}", times >= least

    return judge


@dataclasses.dataclass
class Target:
    title: str
    wanted: str
    judge: Callable[[dict], tuple[str, bool] | None]


@dataclasses.dataclass
class Workload:
    title: str
    steps: list[Target]  # what its steps are held to; its bytes are held to BYTES


BYTES = [Target("bytes of a step", "at most 0.70 of flat Gloo's", beside_gloo),
         Target("bytes of a step", "within 5 % of what is told at the start", as_told)]
WORKLOADS = {
    "resnet18_cifar": Workload("ResNet-18", [
        Target("a step", "at most 1.10 times max(compute, bytes / link)", at_the_limit)]),
    "wide_mlp_sgd": Workload("wide MLP", [
        Target("a step", "1.4 times as fast as Python's DDP", as_fast_as_ddp(1.4))])}


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f}"


def verdicts(workloads: list[dict], quick: bool) -> str:
    """Of a quick run the bytes alone: a turn of one step tells nothing of its time."""
    lines = ["| what | target | found | reached |", "|---|---|---|---|"]
    for case in workloads:
        workload = WORKLOADS[case["name"]]
        for target in BYTES + ([] if quick else workload.steps):
            text, reached = target.judge(case) or ("no figure", False)
            begin = f"| {workload.title}: {target.title} | {target.wanted} |"
            lines.append(f"{begin} {text} | {'yes' if reached else 'no'} |")
    return "\n".join(lines) + "\n"


def table(workloads: list[dict]) -> str:
    lines = ["| what | contender | computes in | median ms | p10-p90 ms | steps | MB sent, by node | bytes a packet |",
             "|---|---|---|---:|---:|---:|---:|---:|"]
    for case in workloads:
        for row in case["contenders"]:
            begin = f"| {WORKLOADS[case['name']].title} | {row['name']} | {row.get('precision', '')} |"
            if not row["seconds"]:
                lines.append(f"{begin} no time left | | 0 | | |")
                continue
            low, middle, high = (milliseconds(value) for value in spread(row["seconds"]))
            by_node = ", ".join(f"{count / 1e6:.2f}" for count in sent(row))
            count = len(row["seconds"])
            lines.append(f"{begin} {middle} | {low}-{high} | {count} | {by_node} | {row['packet']:,.0f} |")
    return "\n".join(lines) + "\n"


def markdown(whole: dict) -> str:
    return f"""# Two nodes over 1 Gbit/s

Whole training steps of two nodes with two workers each, in network namespaces on one machine. tc's tbf holds the wire between them to 1 Gbit/s each way, but where a row says so; the four workers share the machine's cores, so what they compute takes longer than on two machines. Batches are 64 (ResNet-18 with CIFAR stem) and 16 (MLP 1024-4096-4096-1024, 25.2 M weights) per process, SGD with momentum. Pictures are channels-last, but for DDP as installed. The contenders take turns in one run, the order rotating, after one turn each to warm up; the first step of a turn does not count.

- machine: {machine_line(whole["machine"])}
- torch {whole["versions"]["torch"]}, Python {whole["versions"]["python"]}; all processes have `OMP_NUM_THREADS=1`
- commit: {whole["commit"]}
- command: `{whole["command"]}`, {whole["took"]:.0f} s

{verdicts(whole["workloads"], whole["quick"])}
## Each contender

{table(whole["workloads"])}
- Bytes are those that each end of the wire has sent, from `/proc/net/dev`, with all headers that it counts, divided by the steps; what the agents send while nobody trains is taken off. Packets of more than 1,500 bytes are as the kernel hands them over before a card would cut them up: the headers of the cut ones, 4.6 % on a wire of 1,500 bytes, are not in the count. tbf does count them, so of 1 Gbit/s at most 956 Mbit/s are payload.
- Flat Gloo is DDP as installed: all four ranks in one ring, two of whose edges cross the wire. Told at the start is the line `nodes send each other ... bytes in each step`.
- Compute is the step of the same job while the wire has no rate: exchange included, at what the machine can do. Bytes / link are those of the node that sends more, at 1 Gbit/s. As many bytes through plain sockets, both ways at once, show what the link really carries.
- DDP, tuned: tcmalloc, flushed denormals, fused optimizer, gradient_as_bucket_view, static_graph, buckets of 25 MB, which go out while backward still runs; for the MLP also all in one bucket. With gradients sent in bf16 (DDP by `bf16_compress_hook`, ours by `DataParallelOptions::compression`) another sum is computed, of half the bytes: those rows are to be compared with each other, and float32 with float32.
"""
