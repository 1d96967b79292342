"""The report of two nodes: numbers in, Markdown and JSON out."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import rows  # noqa: E402
from report_parts import command_text, machine_line, read_machine, spread, versions, write_report  # noqa: E402,F401


def median(row: dict) -> float:
    return spread(row["seconds"])[1]


def table(results: list[dict]) -> str:
    ours = median(rows.best(results, median, "ours"))
    lines = ["| contender | median s | p10-p90 s | turns | times lockstep run |", "|---|---:|---:|---:|---:|"]
    for result in results:
        low, middle, high = spread(result["seconds"])
        lines.append(f"| {result['name']} | {middle:.3f} | {low:.3f}-{high:.3f} | {len(result['seconds'])} "
                     f"| {middle / ours:.1f} |")
    return "\n".join(lines) + "\n"


def verdict(results: list[dict]) -> str:
    ours, peer = rows.best(results, median, "ours"), rows.best_peer(results, median)
    return (f"`{ours['name']}` {median(ours):.3f} s: {median(peer) / median(ours):.1f} times as fast as the fastest peer, "
            f"{peer['name']}.")


def listed(lines: list[str]) -> str:
    return "".join(f"- {' '.join(line.split())}\n" for line in lines)


def markdown(whole: dict) -> str:
    return f"""# Two nodes

`--nnodes 2`, one worker each, a shell that writes a line: what is measured is the launcher. Both agents run on this machine and meet on loopback, with `--rdzv-backend c10d`. All contenders took turns in one run after a round to warm up, the order rotating; `OMP_NUM_THREADS` is 1 for all.

- machine: {machine_line(whole["machine"])}
- torchrun of torch {whole["versions"]["torch"]}, Python {whole["versions"]["python"]}
- torchrun, tuned: `--monitor-interval 0.01`, garbage collector off, `--rdzv-conf last_call_timeout=1`
- commit: {whole["commit"]}
- command: `{whole["command"]}`

## Start to the first worker's line

Both agents are started at once. {verdict(whole["start"])}

{table(whole["start"])}
## A lost node to the other's next line

`--nnodes 1:2`: agent and worker of the node that does not host are killed at once, by SIGKILL; the other node's worker sees that as a collective does, whose connection breaks, and fails. {verdict(whole["lost"])}

{table(whole["lost"])}
## Many agents agree on who is in

From the first connection until the last agent knows: one process on one core, real sockets of the loopback.

{listed(whole["membership"])}"""
