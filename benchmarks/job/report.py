"""The job benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import profiles  # noqa: E402
import rows  # noqa: E402
from report_parts import (command_text, machine_line, median, read_machine, require_tcmalloc, versions,  # noqa: E402,F401
                          write_plotted_report)

TARGET_SECONDS = 26.3  # what the tutorial's four V100 needed for ten epochs


def seconds(row: dict) -> float:
    return median([turn["seconds"] for turn in row["turns"]])


def who(row: dict) -> str:
    return f"lockstep train, {row['name']}" if row["kind"] == "ours" else f"DDP, {row['name']}"


def percent(accuracies: list[float]) -> str:
    """The last of them."""
    return f"{100 * accuracies[-1]:.2f} %" if accuracies else "-"


def table(whole: dict) -> str:
    of = whole["contenders"]
    ours = seconds(rows.best(of, seconds, "ours"))
    lines = ["| contender | seconds | of the turns | samples/s | times lockstep | start, s | training of an epoch, s (all) "
             "| evaluation, s | accuracy after 2 epochs | at the end |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for row in of:
        took = [turn["seconds"] for turn in row["turns"]]
        epochs = [value for turn in row["turns"] for value in turn["epochs"]]
        evaluations = [value for turn in row["turns"] for value in turn["evaluations"]]
        lines.append(
            f"| {who(row)} | {seconds(row):.1f} | {min(took):.1f}-{max(took):.1f} "
            f"| {whole['samples'] / seconds(row):,.0f} | {seconds(row) / ours:.2f} "
            f"| {median([turn['start'] for turn in row['turns']]):.2f} | {median(epochs):.2f} "
            f"({min(epochs):.2f}-{max(epochs):.2f}) | {median(evaluations):.2f} "
            f"| {percent(row['turns'][-1]['accuracies'][1:2])} | {percent(row['turns'][-1]['accuracies'])} |")
    return "\n".join(lines) + "\n"


def verdict(whole: dict) -> str:
    """A sentence for each precision of ours, and the target."""
    of = whole["contenders"]
    installed = seconds(rows.best(of, seconds, "installed"))
    text = ""
    for precision in rows.precisions(of):
        row = rows.best(of, seconds, "ours", precision=precision)
        ours, peer = seconds(row), rows.best_peer(of, seconds, precision)
        text += (f"`lockstep train` ({row['name']}) {ours:.1f} s: {installed / ours:.2f} times as fast as the tutorial's "
                 f"script as installed (float32), {seconds(peer) / ours:.2f} times as fast as the fastest peer beside it "
                 f"({peer['name']}). ")
    if whole["epochs"] == 10:
        ours = seconds(rows.best(of, seconds, "ours"))
        reached = "reached" if ours <= TARGET_SECONDS else "not reached"
        text += f"Target: {TARGET_SECONDS} s, what the tutorial's four V100 needed; {reached}."
    return text.strip() + "\n"


def profile(found: dict) -> str:
    return f"\n### {found['name']}\n\n{profiles.section(found, '2 x 100')}"


def markdown(whole: dict) -> str:
    v = whole["versions"]
    return f"""# The MNIST job

The ConvNet of the MNIST tutorials, {whole["epochs"]} epochs on two processes, 100 samples per process, SGD with lr 1e-4, the real 60,000 pictures, evaluation on the 10,000 test pictures after each epoch: whole commands, from their start to their end, taking turns in an order that rotates ({whole["rounds"]} of each, after a job of one epoch by each; medians).

- DDP as installed: torchrun, the tutorial's script with torchvision's MNIST and DataLoader
- DDP tuned: tcmalloc, one thread, pixels in memory, one index_select per batch, fused optimizer, one bucket, static graph, flushed denormals, and the memory format of the row's name; compiled: with torch.compile, whose time is a part of the job, with what it has kept on disk from the first round
- lockstep, fused: `--fuse`, layers that do the work of several, which are the same functions and round otherwise
- machine: {machine_line(whole["machine"])}
- torch {v["torch"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{verdict(whole)}
{table(whole)}
## Where the time of a step goes

{profiles.EXPLAINED}
{"".join(profile(found) for found in whole["profiles"])}"""


def write(path: pathlib.Path, whole: dict):
    write_plotted_report(path, markdown(whole), whole)
