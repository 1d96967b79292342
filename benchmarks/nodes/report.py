"""The report of two nodes: numbers in, Markdown and JSON out."""
import dataclasses
import pathlib
import sys
from collections.abc import Callable

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, spread, versions, write_report  # noqa: E402,F401

SILENT_SECONDS = 5  # after which a node is lost: keep_alive_interval=1, keep_alive_max_attempt=5


def figures(contender: dict) -> tuple[float, float, float, int] | None:
    """Seconds: the tenth percentile, median and ninetieth; of how many turns. None without a turn that succeeded."""
    if "spread" in contender:
        return *contender["spread"], contender["turns"]
    return (*spread(contender["seconds"]), len(contender["seconds"])) if contender["seconds"] else None


def median(contender: dict) -> float:
    return figures(contender)[1]


def measured(contenders: list[dict]) -> list[dict]:
    return [contender for contender in contenders if figures(contender) is not None]


def times_as_fast(least: float):
    def judge(contenders: list[dict]) -> tuple[str, bool] | None:
        ours, peer = rows.best(contenders, median, "ours"), rows.best_peer(contenders, median)
        if ours is None or peer is None:
            return None
        times = median(peer) / median(ours)
        return f"{times:.1f} times as fast as {peer['name']}", times >= least

    return judge


def added(most: float):
    """By ours, to what stands there without a launcher."""
    def judge(contenders: list[dict]) -> tuple[str, bool] | None:
        ours, floor = rows.best(contenders, median, "ours"), rows.best(contenders, median, "floor")
        if ours is None or floor is None:
            return None
        more = median(ours) - median(floor)
        return f"{1e3 * more:+.0f} ms", more <= most

    return judge


def within(most: float):
    """The slowest of ours, where there are several."""
    def judge(contenders: list[dict]) -> tuple[str, bool] | None:
        slowest = max((median(contender) for contender in rows.of(contenders, "ours")), default=None)
        return None if slowest is None else (f"{slowest:.3f} s", slowest <= most)

    return judge


@dataclasses.dataclass
class Row:
    title: str
    target: str
    judge: Callable[[list[dict]], tuple[str, bool] | None]


# In the order in which they are measured: torchrun's lost node takes longest, and comes last.
ROWS = {
    "start": Row("commands to first step", "8 times as fast as torchrun", times_as_fast(8)),
    "agents": Row("the same script, commands to first step", "at most 50 ms more than without a launcher", added(0.05)),
    "worker": Row("worker lost to first step of all", "at most 1 s", within(1)),
    "silent": Row("node silent to first step of the others", f"its limit ({SILENT_SECONDS} s) + 1 s",
                  within(SILENT_SECONDS + 1)),
    "membership": Row("many agents agree on who is in", "1,000 in at most 1 s", within(1)),
    "lost": Row("node lost to first step of the others", "at most 2 s", within(2)),
}


def without_figure(found: dict[str, list[dict]]) -> list[str]:
    """Rows in which ours has none."""
    return [name for name, contenders in found.items() if not rows.of(measured(contenders), "ours")]


def verdicts(found: dict[str, list[dict]]) -> str:
    lines = ["| what | target | found | reached |", "|---|---|---|---|"]
    for name, contenders in found.items():
        text, reached = ROWS[name].judge(measured(contenders)) or ("no figure", False)
        lines.append(f"| {ROWS[name].title} | {ROWS[name].target} | {text} | {'yes' if reached else 'no'} |")
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """On one line of a table, whatever a program has said."""
    return " ".join(text.replace("|", "/").split())[:300]


def table(found: dict[str, list[dict]]) -> str:
    lines = ["| what | contender | median s | p10-p90 s | turns | besides |", "|---|---|---:|---:|---:|---|"]
    for name, contenders in found.items():
        for contender in contenders:
            besides = cell(contender.get("why", ""))
            if "before" in contender:
                before = f"{spread(contender['before'])[1]:.3f} s of it before the script's first line"
                besides = f"{before}; {besides}" if besides else before
            low, middle, high, turns = figures(contender) or (None, None, None, 0)
            numbers = "none | none" if middle is None else f"{middle:.3f} | {low:.3f}-{high:.3f}"
            lines.append(f"| {ROWS[name].title} | {contender['name']} | {numbers} | {turns} | {besides} |")
    return "\n".join(lines) + "\n"


def markdown(whole: dict) -> str:
    return f"""# Two nodes

Two nodes with two workers each, in network namespaces on one machine, with a wire between them: four workers share its cores, and so do the agents. All train the MNIST ConvNet, 100 samples per worker, channels-last but for the tutorial's script, and meet with `--rdzv-backend c10d` at an address of the first node. The contenders of a row take turns, the order rotating, after one round of the first row to warm up the files; `OMP_NUM_THREADS` is 1 for all. A lost node under torchrun has one turn, for it takes a minute.

- machine: {machine_line(whole["machine"])}
- torchrun of torch {whole["versions"]["torch"]}, Python {whole["versions"]["python"]}, as installed; "tuned": `--monitor-interval 0.01`, garbage collector off, the script imports no torchvision
- commit: {whole["commit"]}
- command: `{whole["command"]}`, {whole["took"]:.0f} s

{verdicts(whole["rows"])}
## Each contender

{table(whole["rows"])}
- Commands to first step: from the first of the two commands until rank 0 has done the first step, which takes all ranks. Ours says so by a line of output; Python notes its own time.
- The same script: the tuned one, under agents and started by hand with the variables set. The time before its first line is what launchers do before the workers begin; the rest is the script's, and varies with it.
- Faults come one second behind the first step, `--max-restarts 3`. A worker lost: SIGKILL for one worker of the second node. A node lost: SIGKILL for its agent and workers at once, whose connections close; `--nnodes 1:2`, the other node goes on. Silent: what either node sends is lost on the way, nothing is closed. The clock runs until rank 0 of the next attempt has done a step: ours goes on behind the last step that all had, the script under torchrun begins anew.
- Many agents: one process on one core has the hosting agent's part and theirs; real sockets of the loopback, not a simulated network.
"""
