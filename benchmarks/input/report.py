"""The input benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from report_parts import machine_line, median, read_machine, spread, write_report  # noqa: E402,F401

INSTALLED = ("torchvision, ",)
TUNED = ("torchvision tuned, ",)


def rate(case: dict, begins: tuple[str, ...]) -> float:
    """The best median of those contenders."""
    return max(median(contender["rates"]) for contender in case["contenders"] if contender["name"].startswith(begins))


def times(case: dict, begins: tuple[str, ...]) -> float:
    return rate(case, ("lockstep",)) / rate(case, begins)


def summary(cases: list[dict]) -> str:
    rows = ["| input | pictures/s | times torchvision's best setting | times its best tuned one | target |",
            "|---|---:|---:|---:|---:|"]
    rows += [f"| {case['title']} | {rate(case, ('lockstep',)):,.0f} | {times(case, INSTALLED):.1f} "
             f"| {times(case, TUNED):.1f} | {case['target']} |" for case in cases]
    return "\n".join(rows) + "\n"


def section(case: dict) -> str:
    ours = rate(case, ("lockstep",))
    rows = ["| contender | median pictures/s | p10-p90 | lockstep is |", "|---|---:|---:|---:|"]
    for contender in case["contenders"]:
        low, middle, high = spread(contender["rates"])
        rows.append(f"| {contender['name']} | {middle:,.0f} | {low:,.0f}-{high:,.0f} | {ours / middle:.1f}x |")
    split = " + ".join(f"{name} {1e6 * seconds:.2f}" for name, seconds in case["split_seconds"].items())
    return (f"\n## {case['title']}\n\n{case['set']}; transforms: {case['transforms']}; batches of "
            f"{case['batch_size']}. A picture in one thread, microseconds: {split}.\n\n" + "\n".join(rows) + "\n")


def markdown(whole: dict) -> str:
    m, cases = whole["machine"], whole["cases"]
    data = "**made up: these are not the real sets**" if whole["made_up"] else "those of ../shared/data"
    return f"""# Input

Pictures made ready per second, in random order, by the whole machine: the public path (a set, `PictureBatches`, `Loader` with 2 worker threads) beside torchvision's data sets and torch's `DataLoader`, all taking turns in one run. cifar: RandomCrop(32, padding 4), RandomHorizontalFlip; photos: RandomResizedCrop(224), RandomHorizontalFlip; all: ToTensor, Normalize.

- machine: {machine_line(m)}
- {cases[0]["peer"]}
- torchvision: as tutorials write it, Pillow and `transforms`; 0 workers, or 2 that stay (`persistent_workers`)
- torchvision tuned: bytes as tensors, `torchvision.io.decode_image`, `transforms.v2`, one thread for torch, `prefetch_factor` 4
- pictures: {data}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{summary(cases)}{"".join(section(case) for case in cases)}"""


def write(path: pathlib.Path, whole: dict):
    write_report(path, markdown(whole), whole)
