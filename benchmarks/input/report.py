"""The input benchmark's report: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, median, read_machine, spread, write_plotted_report  # noqa: E402,F401


def seconds(row: dict) -> float:
    """Of a picture."""
    return 1 / median(row["rates"])


def summary(cases: list[dict]) -> str:
    lines = ["| input | pictures/s | times torchvision's best setting | times the fastest peer | which | target |",
             "|---|---:|---:|---:|---|---:|"]
    for case in cases:
        of = case["contenders"]
        ours, peer = rows.best(of, seconds, "ours"), rows.best_peer(of, seconds)
        lines.append(f"| {case['title']} | {1 / seconds(ours):,.0f} "
                     f"| {seconds(rows.best(of, seconds, 'installed')) / seconds(ours):.1f} "
                     f"| {seconds(peer) / seconds(ours):.2f} | {peer['name']} | {case['target']} |")
    return "\n".join(lines) + "\n"


def section(case: dict) -> str:
    ours = seconds(rows.best(case["contenders"], seconds, "ours"))
    lines = ["| contender | median pictures/s | p10-p90 | lockstep is |", "|---|---:|---:|---:|"]
    for contender in case["contenders"]:
        low, middle, high = spread(contender["rates"])
        lines.append(f"| {contender['name']} | {middle:,.0f} | {low:,.0f}-{high:,.0f} | {1 / ours / middle:.2f}x |")
    split = " + ".join(f"{name} {1e6 * took:.2f}" for name, took in case["split_seconds"].items())
    return (f"\n## {case['title']}\n\n{case['set']}; transforms: {case['transforms']}; batches of "
            f"{case['batch_size']}. A picture in one thread, microseconds: {split}.\n\n" + "\n".join(lines) + "\n")


def markdown(whole: dict) -> str:
    m, cases = whole["machine"], whole["cases"]
    data = "**made up: these are not the real sets**" if whole["made_up"] else "MNIST, CIFAR-10 and photographs of flowers (../shared/data)"
    return f"""# Input

Pictures made ready per second, in random order, by the whole machine, from bytes to normalised floats: the public path (a set, `PictureBatches`, `Loader` with 2 worker threads) beside torchvision's data sets and torch's `DataLoader`, and beside batches that an expert makes by hand, all taking turns in one run, the order rotating, after one turn each to warm up. cifar: RandomCrop(32, padding 4), RandomHorizontalFlip; photos: RandomResizedCrop(224), RandomHorizontalFlip; all: ToTensor, Normalize.

- machine: {machine_line(m)}
- {cases[0]["peer"]}
- torchvision: as tutorials write it, Pillow and `transforms`; 0 workers, or 2 that stay (`persistent_workers`)
- torchvision tuned: bytes as tensors, `torchvision.io.decode_image`, `transforms.v2`, one thread for torch, `prefetch_factor` 4
- batched: whole batches by `__getitems__`; MNIST one index_select, CIFAR a crop and a flip of each picture by one gather from the padded set, all normalised together; by DataLoader, in a loop without it, or by threads
- less work: what is left when the pixels were normalised before; no peer
- pictures: {data}
- commit: {whole["commit"]}
- command: `{whole["command"]}`

{summary(cases)}{"".join(section(case) for case in cases)}"""


def write(path: pathlib.Path, whole: dict):
    write_plotted_report(path, markdown(whole), whole)
