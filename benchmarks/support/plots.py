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

import rows as rule  # noqa: E402

REPORTS = pathlib.Path(__file__).resolve().parents[1] / "reports"
OURS, INSTALLED, TUNED, OTHER = "#1f6f8b", "#c9c9c9", "#8f8f8f", "#d98c3f"
FLOOR = "#eeeeee"
COLOURS = {"ours": OURS, "installed": INSTALLED, "tuned": TUNED, "floor": FLOOR}


def bars(axes, rows: list[tuple[str, float, str]], unit: str):
    """Horizontal bars, the first on top, each with its number."""
    names, values, colours = zip(*rows)
    drawn = axes.barh(range(len(rows)), values, color=colours)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.bar_label(drawn, [f" {value:,.3g}" for value in values])
    axes.set_xlabel(unit)
    axes.margins(x=0.15)


def median(row: dict) -> float:
    return row["median"]


def seconds(row: dict) -> float:
    return statistics.median(row["seconds"])


def step(whole: dict):
    """Of each precision the fastest peer and ours."""
    workloads = whole["workloads"]
    figure, all_axes = plt.subplots(len(workloads), 1, figsize=(7, 1.7 * len(workloads) + 0.5), squeeze=False)
    for axes, workload in zip(all_axes[:, 0], workloads):
        of = workload["contenders"]
        chosen = [("DDP as installed, fp32", rule.best(of, median, "installed"))]
        chosen += [(f"{who}, {precision}", row) for precision in rule.precisions(of) for who, row in (
            ("DDP's fastest", rule.best(of, median, *rule.PEERS, precision=precision)),
            ("Lockstep", rule.best(of, median, "ours", precision=precision))) if row]
        bars(axes, [(title, 1e3 * row["median"], COLOURS[row["kind"]]) for title, row in chosen],
             "ms per step" if workload is workloads[-1] else "")
        axes.set_title(workload["title"], loc="left", fontsize=9)
    return figure


def job(whole: dict):
    figure, axes = plt.subplots(figsize=(7, 3.2))
    bars(axes, [((f"Lockstep, {row['name']}" if row["kind"] == "ours" else f"DDP, {row['name']}"),
                 statistics.median(turn["seconds"] for turn in row["turns"]), COLOURS[row["kind"]])
                for row in whole["contenders"]], f"s for {whole['epochs']} epochs of MNIST")
    return figure


def launch(whole: dict):
    parts = [(whole["start"], "s, two workers that do nothing"), (whole["first_step"], "s, command to first training step")]
    parts = [part for part in parts if part[0]]
    figure, all_axes = plt.subplots(len(parts), 1, figsize=(7, 1.9 * len(parts)), squeeze=False)
    for axes, (results, unit) in zip(all_axes[:, 0], parts):
        axes.set_xscale("log")
        bars(axes, [(result["name"], seconds(result), COLOURS[result["kind"]]) for result in results], unit)
    return figure


def input(whole: dict):
    cases = whole["cases"]
    figure, all_axes = plt.subplots(len(cases), 1, figsize=(7, 2.6 * len(cases)), squeeze=False)
    for axes, case in zip(all_axes[:, 0], cases):
        bars(axes, [(row["name"], statistics.median(row["rates"]), COLOURS[row["kind"]]) for row in case["contenders"]],
             "pictures/s" if case is cases[-1] else "")
        axes.set_title(case["title"], loc="left", fontsize=9)
    return figure


def reduce_update(whole: dict):
    sections = whole["sections"]
    figure, all_axes = plt.subplots(len(sections), 1, figsize=(7, 1.1 * len(sections) + 0.5), squeeze=False)
    for axes, section in zip(all_axes[:, 0], sections):
        of = section["contenders"]
        chosen = [("Gloo + torch::optim", rule.best(of, seconds, "installed")),
                  ("the fastest peer", rule.best_peer(of, seconds)), ("Lockstep", rule.best(of, seconds, "ours"))]
        bars(axes, [(title, 1e3 * seconds(row), COLOURS[row["kind"]]) for title, row in chosen],
             "ms" if section is sections[-1] else "")
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


DRAW = {"comm": comm, "reduce-update": reduce_update, "step": step, "nets": step, "job": job, "launch": launch, "input": input}


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
