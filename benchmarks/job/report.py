"""The job benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from report_parts import machine_line, median, read_machine, require_tcmalloc, versions, write_report  # noqa: E402,F401

TARGET_SECONDS = 26.3  # what the tutorial's four V100 needed for ten epochs


def seconds(row: dict) -> float:
    return median([turn["seconds"] for turn in row["turns"]])


def best(rows: list[dict], kind: str) -> dict:
    return min((row for row in rows if row["kind"] == kind), key=seconds)


def who(row: dict) -> str:
    return f"lockstep train, {row['name']}" if row["kind"] == "ours" else f"DDP, {row['name']}"


def percent(accuracies: list[float]) -> str:
    """The last of them."""
    return f"{100 * accuracies[-1]:.2f} %" if accuracies else "-"


def table(whole: dict) -> str:
    rows = whole["contenders"]
    ours = seconds(best(rows, "ours"))
    lines = ["| contender | seconds | samples/s | times lockstep | start, s | training of an epoch, s (all) "
             "| evaluation, s | accuracy after 2 epochs | at the end |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        epochs = [value for turn in row["turns"] for value in turn["epochs"]]
        evaluations = [value for turn in row["turns"] for value in turn["evaluations"]]
        lines.append(
            f"| {who(row)} | {seconds(row):.1f} | {whole['samples'] / seconds(row):,.0f} | {seconds(row) / ours:.2f} "
            f"| {median([turn['start'] for turn in row['turns']]):.2f} | {median(epochs):.2f} "
            f"({min(epochs):.2f}-{max(epochs):.2f}) | {median(evaluations):.2f} "
            f"| {percent(row['turns'][-1]['accuracies'][1:2])} | {percent(row['turns'][-1]['accuracies'])} |")
    return "\n".join(lines) + "\n"


def verdict(whole: dict) -> str:
    rows = whole["contenders"]
    ours, installed, tuned = (seconds(best(rows, kind)) for kind in ("ours", "installed", "tuned"))
    text = (f"`lockstep train` ({best(rows, 'ours')['name']}) {ours:.1f} s: {installed / ours:.2f} times as fast as the "
            f"tutorial's script as installed, {tuned / ours:.2f} times as fast as the best tuned one.")
    if whole["epochs"] == 10:
        text += f" Target: {TARGET_SECONDS} s, what the tutorial's four V100 needed; {'reached' if ours <= TARGET_SECONDS else 'not reached'}."
    return text + "\n"


def profile(found: dict) -> str:
    whole = found["step_seconds"]
    lines = ["| part | ms | share |", "|---|---:|---:|"]
    lines += [f"| {name} | {1e3 * value:.3f} | {100 * value / whole:.1f} % |" for name, value in found["parts"].items()]
    limit = found["limit"]
    bare = sum(limit["operators"].values())
    text = (f"\n### {found['name']}\n\nA step of 2 x 100 samples, without input: {1e3 * whole:.2f} ms on rank 0.\n\n"
            + "\n".join(lines) + "\n\nThe physical limit: the step's convolutions and matrix products alone, called "
            f"through `at::` with the same shapes on both processes at once, take {1e3 * bare:.2f} ms, "
            f"{100 * bare / whole:.0f} % of the step")
    most = ", ".join(f"`{name}` {1e3 * value:.2f}" for name, value in found["operators"].items())
    return text + (f" ({', '.join(f'{name} {1e3 * value:.2f}' for name, value in limit['operators'].items())}). They are "
                   f"{limit['gflop']:.2f} GFLOP per process; at the {limit['peak_gflops']:.0f} GFLOP/s of a large matrix "
                   f"product here they would take {1e3 * limit['gflop'] / limit['peak_gflops']:.2f} ms.\n\n"
                   f"The operators that take most of the step, ms: {most}.\n")


def markdown(whole: dict) -> str:
    v = whole["versions"]
    return f"""# The MNIST job

The ConvNet of the MNIST tutorials, {whole["epochs"]} epochs on two processes, 100 samples per process, SGD with lr 1e-4, the real 60,000 pictures, evaluation on the 10,000 test pictures after each epoch: whole commands, from their start to their end, taking turns ({whole["rounds"]} of each).

- DDP as installed: torchrun, the tutorial's script with torchvision's MNIST and DataLoader
- DDP tuned: tcmalloc, one thread, pixels in memory, one index_select per batch, channels-last, fused optimizer, one bucket, static graph, flushed denormals
- machine: {machine_line(whole["machine"])}
- torch {v["torch"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{verdict(whole)}
{table(whole)}
## Where the time of a step goes

By operator (time in it without those it calls), from torch's own callbacks; "framework" is what no operator accounts for. A barrier before the update tells waiting for the other process from the update; both, and the callbacks, make the step a little longer than in the table.
{"".join(profile(found) for found in whole["profiles"])}"""


def write(path: pathlib.Path, whole: dict):
    write_report(path, markdown(whole), whole)
