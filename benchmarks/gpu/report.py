"""The report of the benchmark on a GPU: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from idle import idle  # noqa: E402
from report_parts import command_text, machine_line, median, read_machine, versions, write_report  # noqa: E402,F401

MOST_IDLE = 0.03


def with_figures(case: dict) -> list[dict]:
    return [row for row in case["rows"] if row["ms"]]


def ms(row: dict) -> float:
    return median(row["ms"])


def ratio(row: dict) -> float | None:
    """None where no eager Python has a figure."""
    return median(row["ratios"]) if row["ratios"] else None


def per_cent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.1f} %"


def yes(reached: bool | None) -> str:
    return "not known" if reached is None else "yes" if reached else "no"


def which(row: dict | None) -> str:
    return "no figure" if row is None else f"{ms(row):.2f} ({row['name']})"


def goal(case: dict) -> str:
    found = with_figures(case)
    eager = rows.best(found, ms, *rows.PEERS, eager=True)
    ours = rows.best(found, ms, "ours")
    if ours is None:
        return f"| {case['title']} | {which(eager)} | no figure | - | no | not known | not known |"
    beside, share = ratio(ours), idle(ours["watched"])
    return (f"| {case['title']} | {which(eager)} | {which(ours)} | {'-' if beside is None else f'{beside:.3f}'} "
            f"| {yes(None if beside is None else beside <= 1)} | {per_cent(share)} "
            f"| {yes(None if share is None else share <= MOST_IDLE)} |")


def goals(cases: list[dict]) -> str:
    head = ["| case | fastest eager Python, ms | fastest of ours, ms | ratio | never slower | GPU idle | at most 3 % |",
            "|---|---:|---:|---:|---|---:|---|"]
    return "\n".join([*head, *map(goal, cases)]) + "\n"


def line(row: dict) -> str:
    if not row["ms"]:
        return f"| {row['name']} | none: {row['why'].replace('|', '/')} | | | | | | |"
    watched, beside = row["watched"], ratio(row)
    shown = "-" if beside is None else f"{beside:.3f} ({min(row['ratios']):.3f}-{max(row['ratios']):.3f})"
    gpm, nvml = (None if watched.get(name) is None else 1 - watched[name] for name in ("gpm", "nvml"))
    return (f"| {row['name']} | {ms(row):.2f} | {min(row['ms']):.2f}-{max(row['ms']):.2f} | {shown} | {per_cent(gpm)} "
            f"| {per_cent(nvml)} | {per_cent(watched.get('sms'))} | {row['first_seconds']:.1f} |")


def table(case: dict) -> str:
    return (f"\n## {case['title']}\n\n"
            "| contender | ms | of the rounds | times eager Python (of the rounds) | GPU idle, GPM "
            "| GPU idle, utilisation | multiprocessors busy | first step, s |\n"
            "|---|---:|---:|---:|---:|---:|---:|---:|\n"
            + "\n".join(map(line, case["rows"])) + "\n")


def markdown(whole: dict) -> str:
    gpu, v = whole["gpu"], whole["versions"]
    lost = "".join(f"- {text}\n" for text in whole["counters"])
    return f"""# ResNet-50 on a GPU

Forward, backward and update of ResNet-50 on one batch of {whole["batch"]} random pictures of 224 x 224 that lies on the GPU, SGD with momentum. All took turns in one run, the order rotating: {whole["rounds"]} rounds of {whole["steps"]} steps behind a warm-up; medians. A ratio is to the faster eager Python of the same round. torch.compile took its turns with eager Python alone, behind the others, and is not what ours are held to. cuDNN chooses its algorithms by trying, but in the deterministic row; float32 has TF32 convolutions on both sides, as is the default. A first step contains loading what is needed for it and trying algorithms; with torch.compile, compiling.

How much of the time the GPU is idle is read from outside of the programs, by the same counters for all, over a second of a turn of its own. GPM is the hardware's: the share of the time in which no compute work was active; utilisation is what nvidia-smi shows, in whole per cents. Both take pauses shorter than they resolve for work, so it is idle at least so much. Of contenders with the same kernels, who keeps fewer multiprocessors busy has more such pauses.

- GPU: {gpu["device"]}, {gpu["memory_bytes"] / 2**30:.1f} GiB, driver {gpu["driver"] or "not known"}
- machine: {machine_line(whole["machine"])}
- torch {v["torch"]}, CUDA {gpu["cuda"]}, cuDNN {gpu["cudnn"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`, {whole["seconds"]:.0f} s
{lost}
{goals(whole["cases"])}{"".join(map(table, whole["cases"]))}"""


def write(path: pathlib.Path, whole: dict):
    write_report(path, markdown(whole), whole)
