"""What the reports of benchmarks written in Python share."""
import json
import os
import pathlib
import platform
import statistics


def read_machine() -> dict:
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()

    def first(key):
        return next((line.split(":", 1)[1].strip() for line in info if line.split(":")[0].strip() == key), "unknown")

    return {"cpu": f"{first('model name')} (family {first('cpu family')}, model {first('model')})",
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "load": os.getloadavg()[0],
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}


def spread(values: list[float]) -> tuple[float, float, float]:
    """The tenth percentile, the median and the ninetieth, interpolated."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return tenths[0], statistics.median(values), tenths[-1]


def median(values: list[float]) -> float:
    return statistics.median(values)


def write_report(path: pathlib.Path, markdown: str, whole: dict):
    """PATH.md and PATH.json, nothing half-written."""
    for suffix, text in ((".md", markdown), (".json", json.dumps(whole, indent=1) + "\n")):
        part = path.with_name(path.name + suffix + ".part")
        part.write_text(text)
        part.replace(path.with_name(path.name + suffix))
