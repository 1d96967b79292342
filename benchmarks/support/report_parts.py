"""What the reports of benchmarks written in Python share."""
import ctypes
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import statistics
import sys


# Of those that the CPU has, a report names the ones that decide how fast products are.
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def read_machine() -> dict:
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()

    def first(key):
        return next((line.split(":", 1)[1].strip() for line in info if line.split(":")[0].strip() == key), "unknown")

    has = first("flags").split()
    return {"cpu": f"{first('model name')} (family {first('cpu family')}, model {first('model')})",
            "instruction_sets": [name for name in INSTRUCTION_SETS if name in has],
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "load": os.getloadavg()[0],
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}


def machine_line(machine: dict) -> str:
    sets = " with " + ", ".join(machine["instruction_sets"]) if machine.get("instruction_sets") else ""
    return (f"{machine['cpu']}{sets}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.1f} GiB memory, "
            f"Linux {machine['kernel']}, load {machine['load']:.2f} before")


def command_text(benchmark: str) -> str:
    """As somebody in the repository's root would type it; a label (--commit) measures nothing, nor does a machine's path."""
    words = sys.argv[1:]
    if "--commit" in words:
        place = words.index("--commit")
        words = words[:place] + words[place + 2:]
    words = [pathlib.Path(word).name if word.startswith("/") else word for word in words]
    return shlex.join(["scripts/python-torch", f"benchmarks/{benchmark}/{pathlib.Path(sys.argv[0]).name}", *words])


def versions() -> dict:
    return {"torch": importlib.metadata.version("torch"), "python": platform.python_version()}


def require_tcmalloc():
    """LD_PRELOAD only warns when a library is missing, and the tuned peer would be none."""
    try:
        ctypes.CDLL("libtcmalloc_minimal.so.4")
    except OSError:
        raise SystemExit("bench: tcmalloc is needed: scripts/bootstrap --tests installs it") from None


def spread(values: list[float]) -> tuple[float, float, float]:
    """The tenth percentile, the median and the ninetieth, interpolated."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return tenths[0], statistics.median(values), tenths[-1]


def median(values: list[float]) -> float:
    return statistics.median(values)


def with_plot(path: pathlib.Path, markdown: str) -> str:
    """The page with the plot that scripts/bench draws from the numbers, below its title."""
    title, rest = markdown.split("\n", 1)
    return f"{title}\n\n![{title.removeprefix('# ')}]({path.name}.svg)\n{rest}"


def write_plotted_report(path: pathlib.Path, markdown: str, whole: dict):
    """Of a benchmark that scripts/bench draws a plot of."""
    write_report(path, with_plot(path, markdown), whole)


def write_report(path: pathlib.Path, markdown: str, whole: dict):
    """PATH.md and PATH.json, nothing half-written."""
    for suffix, text in ((".md", markdown), (".json", json.dumps(whole, indent=1) + "\n")):
        part = path.with_name(path.name + suffix + ".part")
        part.write_text(text)
        part.replace(path.with_name(path.name + suffix))
