"""Where the time of a step of ours goes: what `lockstep-bench-step --profile` finds, and what a page says of it."""
import json
import pathlib

import commands

DEADLINE_SECONDS = 600
EXPLAINED = (
    'By operator (time in it without those it calls), from torch\'s own callbacks; "framework" is what no operator accounts '
    "for. A barrier before the update tells waiting for the other processes from the update; both, and the callbacks, make "
    "the step a little longer than in the table.")


def measure(binaries: pathlib.Path, workload: str, flags: list[str], seconds: float) -> dict:
    done = commands.run([str(binaries / "lockstep-bench-step"), "--workload", workload, *flags, "--profile", "--json",
                         "--seconds", str(seconds)], {}, DEADLINE_SECONDS)
    return json.loads(done.lines[-1][1])


def section(found: dict, samples: str) -> str:
    """Parts, the physical limit, and the operators that take most; `samples` of a step, "2 x 100"."""
    whole = found["step_seconds"]
    lines = ["| part | ms | share |", "|---|---:|---:|"]
    lines += [f"| {name} | {1e3 * value:.3f} | {100 * value / whole:.1f} % |" for name, value in found["parts"].items()]
    limit = found["limit"]
    bare = sum(limit["operators"].values())
    text = (f"A step of {samples} samples, without input: {1e3 * whole:.2f} ms on rank 0.\n\n" + "\n".join(lines)
            + "\n\nThe physical limit: the step's convolutions and matrix products alone, called through `at::` with the same "
            f"shapes on all processes at once, take {1e3 * bare:.2f} ms, {100 * bare / whole:.0f} % of the step")
    alone = ", ".join(f"{name} {1e3 * value:.2f}" for name, value in limit["operators"].items())
    most = ", ".join(f"`{name}` {1e3 * value:.2f}" for name, value in found["operators"].items())
    return text + (f" ({alone}). They are {limit['gflop']:.2f} GFLOP per process; at the {limit['peak_gflops']:.0f} GFLOP/s of "
                   f"a large matrix product here they would take {1e3 * limit['gflop'] / limit['peak_gflops']:.2f} ms.\n\n"
                   f"The operators that take most of the step, ms: {most}.\n")
