"""The report of the all-reduce benchmark: numbers in, Markdown and JSON out."""
import importlib.metadata
import pathlib
import platform
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, spread, write_plotted_report  # noqa: E402,F401

COLUMNS = {"gloo": "Gloo as installed", "gloo tuned": "Gloo tuned", "mpi": "Open MPI as installed",
           "mpi tuned": "Open MPI tuned", "staged": "ours, staged", "zero copy": "ours, zero copy"}
OURS = ("staged", "zero copy")
# Of the contenders across two nodes.
ACROSS = {"gloo": "Gloo as installed", "gloo tuned": "Gloo, C++", "openmpi": "Open MPI", "mpich": "MPICH", "ours": "ours",
          "flat": "ours, flat"}
# By ranks and case; times Gloo as installed, zero copy, where nothing else is said.
TARGETS = {2: {"4 B": 100, "1 KiB": 100, "4 KiB": 100, "64 KiB": 100, "1 MiB": 25, "25 MiB": 12, "256 MiB": 8},
           4: {"barrier": "20 µs"}}


def versions() -> dict:
    mpirun = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return {"torch": importlib.metadata.version("torch"), "python": platform.python_version(),
            "mpirun": mpirun.splitlines()[0]}


def time_text(seconds: float) -> str:
    us = seconds * 1e6
    if us < 1000:
        return f"{us:.2f} µs" if us < 10 else f"{us:.1f} µs"
    return f"{us / 1e3:.2f} ms" if us < 1e5 else f"{us / 1e3:.0f} ms"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 20 else f"{ratio:.1f}x" if ratio >= 2 else f"{ratio:.2f}x"


def median(row: dict) -> float:
    return statistics.median(row["seconds"])


def ours(case: dict, column: str) -> dict | None:
    return rows.best(case["contenders"], median, "ours", column=column)


def times(case: dict, column: str, peer: dict) -> float:
    return median(peer) / median(ours(case, column))


def last_hundredth(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def main_table(world: dict) -> str:
    """Medians of the best contender of each column; then each of our two ways over Gloo as installed and over the fastest
    peer."""
    titles = [f"{column} {over}" for column in OURS for over in ("over Gloo", "over the fastest peer")]
    lines = ["| | " + " | ".join([*COLUMNS.values(), *titles, "target"]) + " |",
             "|---" + "|---:" * (len(COLUMNS) + len(titles) + 1) + "|"]
    for case in world["cases"]:
        cells = []
        for column in COLUMNS:
            found = rows.best(case["contenders"], median, *rows.PEERS, "ours", column=column)
            cells.append(f"{time_text(median(found))} (p99 {time_text(last_hundredth(found['seconds']))})")
        installed = rows.best(case["contenders"], median, "installed")
        peer = rows.best_peer(case["contenders"], median)
        ratios = [ratio_text(times(case, column, other)) if rows.is_steady(other["seconds"]) else "not steady"
                  for column in OURS for other in (installed, peer)]
        target = TARGETS.get(world["ranks"], {}).get(case["case"], "")
        lines.append(f"| {case['case']} | " + " | ".join([*cells, *ratios]) + f" | {target} |")
    return "\n".join(lines) + "\n"


def behind(world: dict) -> str:
    """Where we are not ahead of the fastest peer, said plainly."""
    found = []
    for case in world["cases"]:
        peer = rows.best_peer(case["contenders"], median)
        found += [f"{case['case']} {column} ({ratio_text(times(case, column, peer))} of {peer['name']})"
                  for column in OURS if times(case, column, peer) <= 1]
    return f"Not ahead of the fastest peer: {'; '.join(found)}.\n" if found else "Ahead of every peer at every size.\n"


def details(world: dict) -> str:
    lines = ["| | contender | median | p10 | p90 | p99 | calls |", "|---|---|---:|---:|---:|---:|---:|"]
    for case in world["cases"]:
        for contender in case["contenders"]:
            low, middle, high = spread(contender["seconds"])
            lines.append(f"| {case['case']} | {contender['name']} | {time_text(middle)} | {time_text(low)} "
                        f"| {time_text(high)} | {time_text(last_hundredth(contender['seconds']))} "
                        f"| {len(contender['seconds'])} |")
    return "\n".join(lines) + "\n"


def measured(case: dict) -> list[dict]:
    return [row for row in case["contenders"] if row["seconds"]]


def across_table(world: dict) -> str:
    """Medians of each, and ours over Gloo as installed and over the fastest peer."""
    there = {row["column"] for case in world["cases"] for row in case["contenders"]}
    columns = {column: title for column, title in ACROSS.items() if column in there}
    lines = ["| | " + " | ".join([*columns.values(), "ours over Gloo", "over the fastest peer"]) + " |",
             "|---" + "|---:" * (len(columns) + 2) + "|"]
    for case in world["cases"]:
        here = measured(case)
        found = {column: rows.best(here, median, *rows.PEERS, "ours", column=column) for column in columns}
        cells = [time_text(median(row)) if row else "no figure" for row in found.values()]
        for other in (found["gloo"], rows.best_peer(here, median)):
            if other is None or found["ours"] is None:
                cells.append("no figure")
            else:
                steady = rows.is_steady(other["seconds"])
                cells.append(ratio_text(median(other) / median(found["ours"])) if steady else "not steady")
        lines.append(f"| {case['case']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def across_details(world: dict) -> str:
    lines = ["| | contender | median | p10 | p90 | calls | over the wire in a call |", "|---|---|---:|---:|---:|---:|---:|"]
    for case in world["cases"]:
        for row in case["contenders"]:
            begin = f"| {case['case']} | {row['name']} |"
            if not row["seconds"]:
                why = " ".join(row["why"].replace("|", "/").split())[-200:]
                lines.append(f"{begin} none: {why} | | | 0 | |")
                continue
            low, middle, high = spread(row["seconds"])
            lines.append(f"{begin} {time_text(middle)} | {time_text(low)} | {time_text(high)} | {row['calls']} "
                         f"| {row['wire'] / 1024:,.1f} KiB |")
    return "\n".join(lines) + "\n"


def across_page(worlds: list[dict]) -> str:
    parts = [f"""
## Across two nodes

Two networks in namespaces on this machine, with a wire between them that has no rate: what the network layers of the kernel and of each contender cost, not a card. All ranks share the machine's cores. Measured as above. Gloo is told its interface; Open MPI has TCP between nodes and shared memory within, each node a hostname of its own; MPICH (UCX) has TCP; ours is started by an agent on each node, and with several ranks on each has two levels, or, flat, messages between all ranks (backend "tcp"). What crosses the wire is counted at both ends, with headers; a contender whose bytes are fewer than the tensor's has no figure. MPICH is {worlds[0]["mpich"]}.
"""]
    for world in worlds:
        parts.append(f"\n### {world['ranks']} ranks on two nodes\n\n{across_table(world)}\n{across_details(world)}")
    return "".join(parts)


def markdown(whole: dict) -> str:
    m, v = whole["machine"], whole["versions"]
    parts = [f"""# All-reduce and barrier

float32, sum, in place, medians. Every contender is a job of its own, started by its own launcher; all took turns in one run, in an order that rotates, and sleep in a read between their turns. Before each call every rank fills its buffer with new values and meets the others at a start line that belongs to none of the contenders and at which they sleep; the clock runs from the first rank's start to the last rank's end; the sums are checked. Ours are started by `lockstep run` and, where there is a core for each rank, bound to it, as mpirun does without being asked. "Tuned" is the best of the contenders of that column at that size. A contender whose quartiles lie more than a factor of two apart is not steady: another run would find another figure, and none is given.

- staged: `group.all_reduce(t)` on an ordinary tensor, which is copied through shared memory; zero copy: on one of `group.shared_empty`
- machine: {machine_line(m)}
- torch {v["torch"]}, Python {v["python"]}; {v["mpirun"]}
- commit: {whole["commit"]}
- command: `{whole["command"]}`, {whole["took"]:.0f} s
"""]
    for world in whole["worlds"]:
        parts.append(f"\n## {world['ranks']} ranks\n\n{main_table(world)}\n{behind(world)}\nAll contenders:\n\n{details(world)}")
    if whole.get("across"):
        parts.append(across_page(whole["across"]))
    return "".join(parts)


def thinned(values: list[float]) -> list[float]:
    """In order, and of many the 201 that stand for the percentiles: the report would be megabytes otherwise."""
    ordered = sorted(values)
    if len(ordered) > 201:
        ordered = [ordered[round(place * (len(ordered) - 1) / 200)] for place in range(201)]
    return [float(f"{value:.4g}") for value in ordered]


def write(path: pathlib.Path, whole: dict):
    text = markdown(whole)
    for world in [*whole["worlds"], *whole.get("across", [])]:
        for case in world["cases"]:
            for contender in case["contenders"]:
                contender["calls"] = len(contender["seconds"])
                contender["seconds"] = thinned(contender["seconds"])
    write_plotted_report(path, text, whole)
