"""Plots of the reports: benchmarks/reports/NAME.json in, NAME.svg beside it.

  PYTHONPATH=.deps/plots python3 benchmarks/support/plots.py NAME...

The same numbers give the same file.
"""
import io
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "lockstep", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                            "axes.spines.right": False, "figure.constrained_layout.use": True})
import matplotlib.pyplot as plt  # noqa: E402

REPORTS = pathlib.Path(__file__).resolve().parents[1] / "reports"
OURS, INSTALLED, TUNED, OTHER = "#1f6f8b", "#c9c9c9", "#8f8f8f", "#d98c3f"
COLOURS = {"ours": OURS, "installed": INSTALLED, "tuned": TUNED}


def best(rows: list[dict], kind: str, value) -> dict:
    return min((row for row in rows if row["kind"] == kind), key=value)


def bars(axes, rows: list[tuple[str, float, str]], unit: str):
    """Horizontal bars, the first on top, each with its number."""
    names, values, colours = zip(*rows)
    drawn = axes.barh(range(len(rows)), values, color=colours)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.bar_label(drawn, [f" {value:,.3g}" for value in values])
    axes.set_xlabel(unit)
    axes.margins(x=0.15)


def step(whole: dict):
    workloads = whole["workloads"]
    figure, all_axes = plt.subplots(len(workloads), 1, figsize=(7, 1.25 * len(workloads) + 0.5), squeeze=False)
    for axes, workload in zip(all_axes[:, 0], workloads):
        rows = []
        for kind, title in (("installed", "DDP as installed"), ("tuned", "DDP tuned"), ("ours", "Lockstep")):
            row = best(workload["contenders"], kind, lambda row: row["median"])
            rows.append((title, 1e3 * row["median"], COLOURS[kind]))
        bars(axes, rows, "ms per step" if workload is workloads[-1] else "")
        axes.set_title(workload["title"], loc="left", fontsize=9)
    return figure


def job(whole: dict):
    figure, axes = plt.subplots(figsize=(7, 2.6))
    rows = [((f"Lockstep, {row['name']}" if row["kind"] == "ours" else f"DDP, {row['name']}"),
             statistics.median(turn["seconds"] for turn in row["turns"]), COLOURS[row["kind"]])
            for row in whole["contenders"]]
    bars(axes, rows, f"s for {whole['epochs']} epochs of MNIST")
    return figure


def launch(whole: dict):
    parts = [(whole["start"], "lockstep run", "s, two workers that do nothing"),
             (whole["first_step"], "lockstep train", "s, command to first training step")]
    parts = [part for part in parts if part[0]]
    figure, all_axes = plt.subplots(len(parts), 1, figsize=(7, 1.9 * len(parts)), squeeze=False)
    for axes, (results, ours, unit) in zip(all_axes[:, 0], parts):
        axes.set_xscale("log")
        bars(axes, [(result["name"], statistics.median(result["seconds"]), OURS if result["name"] == ours else TUNED)
                    for result in results], unit)
    return figure


def input(whole: dict):
    cases = whole["cases"]
    figure, all_axes = plt.subplots(len(cases), 1, figsize=(7, 1.5 * len(cases)), squeeze=False)
    for axes, case in zip(all_axes[:, 0], cases):
        bars(axes, [(row["name"], statistics.median(row["rates"]), OURS if row["name"].startswith("lockstep") else TUNED)
                    for row in case["contenders"]], "pictures/s" if case is cases[-1] else "")
        axes.set_title(case["title"], loc="left", fontsize=9)
    return figure


def reduce_update(whole: dict):
    sections = whole["sections"]
    figure, all_axes = plt.subplots(len(sections), 1, figsize=(7, 1.1 * len(sections) + 0.5), squeeze=False)
    for axes, section in zip(all_axes[:, 0], sections):
        milliseconds = 1e3 * section["step_seconds"]
        bars(axes, [("Gloo + torch::optim", milliseconds * section["over_default"], INSTALLED),
                    ("Gloo + fused operator", milliseconds * section["over_fused"], TUNED),
                    ("Lockstep", milliseconds, OURS)], "ms" if section is sections[-1] else "")
        axes.set_title(f"{section['weights'] / 1e6:.1f} M weights, {section['optimizer']}", loc="left", fontsize=9)
    return figure


# Column of comm.json: what it is called, colour, line.
COLUMNS = {"gloo": ("Gloo as installed", INSTALLED, "-"), "gloo tuned": ("Gloo tuned", TUNED, "-"),
           "mpi": ("Open MPI as installed", OTHER, "--"), "mpi tuned": ("Open MPI tuned", OTHER, "-"),
           "staged": ("Lockstep, staged", OURS, "--"), "zero copy": ("Lockstep, zero copy", OURS, "-")}


def comm(whole: dict):
    """All-reduce over size; of a column the best contender at each size."""
    worlds = whole["worlds"]
    figure, all_axes = plt.subplots(1, len(worlds), figsize=(4.2 * len(worlds), 3.6), squeeze=False, sharey=True)
    for axes, world in zip(all_axes[0], worlds):
        for column, (title, colour, line) in COLUMNS.items():
            points = []
            for case in world["cases"]:
                medians = [statistics.median(row["seconds"]) for row in case["contenders"] if row["column"] == column]
                if medians and case.get("bytes", 0) > 0:
                    points.append((case["bytes"], 1e6 * min(medians)))
            if points:
                axes.loglog(*zip(*sorted(points)), line, color=colour, marker=".", label=title)
        axes.set_title(f"{world['ranks']} ranks", loc="left")
        axes.set_xlabel("bytes")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("µs per all-reduce, median")
    all_axes[0][0].legend(fontsize=8)
    return figure


DRAW = {"comm": comm, "reduce-update": reduce_update, "step": step, "job": job, "launch": launch, "input": input}


def draw(name: str):
    whole = json.loads((REPORTS / f"{name}.json").read_text())
    figure = DRAW[name](whole)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    part = REPORTS / f"{name}.svg.part"
    part.write_text("".join(line.rstrip() + "\n" for line in drawn.getvalue().splitlines()))
    part.replace(REPORTS / f"{name}.svg")


def main():
    for name in sys.argv[1:]:
        if name not in DRAW:
            raise SystemExit(f"plots: there is no plot of '{name}' ({', '.join(DRAW)})")
        draw(name)


if __name__ == "__main__":
    main()
