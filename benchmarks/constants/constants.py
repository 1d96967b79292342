"""What the constants of our collectives are worth on this machine: each at other values, taking turns in one run.

Run by `scripts/bench constants`, under scripts/python-torch. docs/design/update.md says where each constant stands.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import report_parts  # noqa: E402
import turns  # noqa: E402

# Of each flag of `lockstep bench comm`: what it sets, its default, and the others that are tried.
CONSTANTS = {
    "--at-once": ("bytes up to which one meeting does", 2048, (1024, 4096, 8192)),
    "--chunk": ("bytes that are staged between two meetings", 262144, (65536, 131072)),
    "--look": ("µs of looking, before a rank that waits yields", 50, (10, 200)),
    "--yield": ("µs of yielding, before it sleeps", 2000, (500, 8000)),
    "--check-calls": ("whether what the ranks call is compared", 1, (0,)),
}
RANKS = (2, 4)
ROUNDS = 9
MATTERS = 0.03  # as a part of a call's time
ROW = re.compile(r"^(\S.*?) {2,}([0-9.]+) us ", re.M)


def variants() -> dict[str, list[str]]:
    """Flags by name; those of the default are none."""
    others = {f"{flag} {value}": [flag, str(value)] for flag, (_, _, values) in CONSTANTS.items() for value in values}
    return {"default": [], **others}


def parse(text: str) -> dict[str, float]:
    """Microseconds of each row that `lockstep bench comm` prints."""
    return {name: float(us) for name, us in ROW.findall(text)}


def turn(program: pathlib.Path, ranks: int, flags: list[str], seconds: str) -> dict[str, float]:
    command = [program, "bench", "comm", "--ranks", str(ranks), "--largest", "4", "--seconds", seconds, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(map(str, command))} ends with {done.returncode}\n{done.stderr}")
    return parse(done.stdout)


def measure(program: pathlib.Path, ranks: int, rounds: int, seconds: str) -> dict[str, dict[str, list[float]]]:
    """Of each variant and row the median of each turn."""
    found = turns.take_turns({name: lambda flags=flags: turn(program, ranks, flags, seconds)
                              for name, flags in variants().items()}, rounds)
    return {name: {row: [one[row] for one in all_turns] for row in all_turns[0]} for name, all_turns in found.items()}


def ratio(world: dict, variant: str, row: str) -> float:
    """What the row takes, as a part of what it takes with the default."""
    return report_parts.median(world[variant][row]) / report_parts.median(world["default"][row])


def differs(world: dict, variant: str, row: str) -> bool:
    """By more than MATTERS, and by more than turns of one variant do among themselves."""
    low, _, high = report_parts.spread(world[variant][row])
    default_low, _, default_high = report_parts.spread(world["default"][row])
    return abs(ratio(world, variant, row) - 1) > MATTERS and (high < default_low or low > default_high)


def verdict(world: dict, flag: str) -> str:
    """The rows that another value makes faster, and those it makes slower."""
    parts = []
    for variant in (name for name in world if name.startswith(flag + " ")):
        marked = [(ratio(world, variant, row), row) for row in world[variant] if differs(world, variant, row)]
        told = ", ".join(f"{row} {value:.2f}" for value, row in sorted(marked))
        parts.append(f"`{variant}`: {told or 'no row'}")
    return "; ".join(parts)


def table(world: dict) -> str:
    names = list(world)
    lines = ["| | " + " | ".join(f"`{name}`" if name != "default" else name for name in names) + " |",
             "|---" + "|---:" * len(names) + "|"]
    for row in world["default"]:
        low, middle, high = report_parts.spread(world["default"][row])
        cells = [f"{middle:.2f} ({low:.2f}-{high:.2f})"]
        cells += [("**{:.2f}**" if differs(world, name, row) else "{:.2f}").format(ratio(world, name, row))
                  for name in names[1:]]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def markdown(whole: dict) -> str:
    defaults = "; ".join(f"`{flag}` {value}: {what}" for flag, (what, value, _) in CONSTANTS.items())
    parts = [f"""# Constants of the collectives

All-reduce of float32 and barrier, with one constant at a time set to another value. Each turn is a run of `lockstep bench comm` of its own, and gives a median of each row; the variants take turns, in an order that rotates. The column of the default has microseconds, median and tenth to ninetieth percentile of {whole["rounds"]} turns; the others say what the row takes as a part of that. Bold: differs by more than {MATTERS:.0%}, and the percentiles of the two do not overlap. "Late": rank 0 comes later than the others, who wait; timed from its start.

- defaults: {defaults}
- machine: {report_parts.machine_line(whole["machine"])}
- commit: {whole["commit"]}
- command: `{whole["command"]}`, {whole["took"]:.0f} s
"""]
    for ranks, world in whole["worlds"].items():
        parts.append(f"\n## {ranks} ranks\n\n{table(world)}\nRows that differ:\n\n")
        parts += [f"- {verdict(world, flag)}\n" for flag in CONSTANTS]
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", default="0.02", help="of calls for each row of a turn")
    parser.add_argument("--report", type=pathlib.Path, help="write PATH.md and PATH.json instead of standard output")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    machine, began = report_parts.read_machine(), time.monotonic()
    worlds = {ranks: measure(options.bin / "lockstep", ranks, options.rounds, options.seconds) for ranks in RANKS}
    whole = {"benchmark": "constants", "machine": machine, "commit": options.commit, "rounds": options.rounds,
             "command": report_parts.command_text("constants"), "worlds": worlds, "took": time.monotonic() - began}
    if options.report:
        report_parts.write_report(options.report, markdown(whole), whole)
    else:
        print(markdown(whole))


if __name__ == "__main__":
    main()
