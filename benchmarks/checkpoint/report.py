"""The checkpoint benchmark's report: numbers in, Markdown out."""
import pathlib
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, spread, versions, write_report  # noqa: E402,F401

LOADS = {"load weights": "weights into a living model", "load all": "weights, moments and counts into new ones"}
IN_PLACE = "load weights"  # what the targets are for: the other one makes a region first, which no peer has


def median(row: dict, what: str) -> float:
    return statistics.median(save[what] for save in row["saves"])


def stall(row: dict) -> float:
    return median(row, "stall")


def loading(what: str):
    return lambda row: statistics.median(row["loads"][what])


def spread_ms(values: list[float]) -> str:
    low, middle, high = (1e3 * value for value in spread(values))
    return f"{middle:.1f} | {low:.1f}-{high:.1f}"


def written(row: dict, size: float) -> str:
    """Milliseconds and MB/s, of those that read back behind it."""
    if row["saves"][0].get("written") is None:
        return "|"
    seconds = median(row, "written")
    return f"{1e3 * seconds:.0f} | {size / seconds / 1e6:.0f}"


def saving_table(place: dict) -> str:
    lines = ["| contender | step alone ms | longest step longer by, ms | p10-p90 ms | of as many alone, ms | p10-p90 ms "
             "| steps beside, times alone | written and synced after ms | MB/s | whole after ms | MB/s | MB more |", "|---" + "|---:" * 11 + "|"]
    for row in place["contenders"]:
        seconds, size = median(row, "seconds"), median(row, "bytes")
        lines.append(f"| {row['name']} | {1e3 * row['step']:.1f} | {spread_ms([save['stall'] for save in row['saves']])} "
                     f"| {spread_ms([save['control'] for save in row['saves']])} | {median(row, 'beside'):.2f} "
                     f"| {written(row, size)} | {1e3 * seconds:.0f} "
                     f"| {size / seconds / 1e6:.0f} | {median(row, 'additional_bytes') / 1e6:.0f} |")
    copied = statistics.median(place["copy"])
    size = median(place["contenders"][0], "bytes")
    lines.append(f"| floor: the same bytes written and synced | | | | | | | {1e3 * copied:.0f} | {size / copied / 1e6:.0f} "
                 "| | | |")
    return "\n".join(lines) + "\n"


def loading_table(place: dict) -> str:
    lines = ["| contender | " + " | ".join(f"{title}, ms | p10-p90 ms" for title in LOADS.values()) + " |",
             "|---" + "|---:" * (2 * len(LOADS)) + "|"]
    for row in place["contenders"]:
        lines.append(f"| {row['name']} | " + " | ".join(spread_ms(row["loads"][what]) for what in LOADS) + " |")
    return "\n".join(lines) + "\n"


def verdict(place: dict) -> str:
    of = place["contenders"]
    ours = rows.best(of, stall, "ours")
    words = [f"The longest step with a save is longer by {1e3 * stall(ours):.1f} ms (target: 5), "
             f"the longest of as many alone by {1e3 * median(ours, 'control'):.1f} ms"]
    for name, target in (("torch.save", "20"), ("dcp.async_save", "3")):
        peer = min((row for row in of if row["name"].split(",")[0] == name), key=stall)
        words.append(f"{stall(peer) / max(stall(ours), 1e-4):.1f} times less than {peer['name']} (target: {target})")
    words.append(f"steps beside it {median(ours, 'beside'):.2f} of a step alone (target: 1.3)")
    for what, title in LOADS.items():
        mine = loading(what)(rows.best(of, loading(what), "ours"))
        by_name = {row["name"]: loading(what)(row) for row in of}
        first, second = (" (target: 3)", " (target: 1)") if what == IN_PLACE else ("", " (no target)")
        words.append(f"{title}, verified: {by_name['torch.save'] / mine:.1f} times as fast as torch.load{first}, "
                     f"{by_name['torch.save, mmap'] / mine:.1f} times as its mmap{second}")
    return "; ".join(words) + ".\n"


def markdown(whole: dict) -> str:
    v, first = whole["versions"], whole["places"][0]["contenders"][0]
    parts = [f"""# Checkpoints

{whole["model"]} and Adam train on small pictures, {median(first, "bytes") / 1e6:.0f} MB of weights and moments; one process with one computing thread, a core left for what saves. All contenders took turns in one run, {whole["rounds"]} rounds after one to warm up, in an order that rotates. A turn: {whole["steps"]} steps alone, {whole["steps"]} with a save that begins before the first, then two loads with the files in memory. "Longer by" is the longest step until the checkpoint is whole, less the median step alone; "of as many alone" is the same of that many steps without a save, so what the machine's noise is of it. Ours are synced, read back and compared with their hashes before they count as whole, and verified when loaded; of the others only "and fsync" is synced, none is read back or verified. "Written and synced" is what the disk and the floor are compared by, all but the own sync of the manifest; "whole" is found behind a step. Targets of loading are for weights into a living model, an existing region; "into new ones" makes a shared region of two states in huge pages besides. "MB more" is what the process had above what it had before the save; our third buffer is there before.

- machine: {machine_line(whole["machine"])}
- torch {v["torch"]}, Python {v["python"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`
"""]
    for place in whole["places"]:
        parts.append(f"\n## {place['title']}\n\n{verdict(place)}\nSaving:\n\n{saving_table(place)}\nLoading, from a warm cache:\n\n"
                     f"{loading_table(place)}")
    return "".join(parts)
