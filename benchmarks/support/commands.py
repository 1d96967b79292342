"""Whole commands, timed from outside."""
import gzip
import os
import pathlib
import signal
import subprocess
import threading
import time


class Finished:
    """What a command did: when it began and ended, its lines of output and when each came. Monotonic clock."""

    def __init__(self, began: float, ended: float, lines: list[tuple[float, str]]):
        self.began, self.ended, self.lines = began, ended, lines

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def marks(self, name: str) -> list[float]:
        """The seconds of all lines "mark NAME SECONDS"."""
        begin = f"mark {name} "
        return [float(line.removeprefix(begin)) for _, line in self.lines if line.startswith(begin)]


def run(command: list[str], environment: dict[str, str], deadline_seconds: float) -> Finished:
    """Runs it to its end. SystemExit with its last words when it fails or takes too long."""
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    timer = threading.Timer(deadline_seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    try:
        lines = [(time.monotonic(), line.rstrip("\n")) for line in process.stdout]
        process.wait()
    finally:
        timer.cancel()
    ended = time.monotonic()
    if process.returncode != 0:
        words = "\n".join(line for _, line in lines[-30:])
        raise SystemExit(f"bench: {' '.join(command)}: exit code {process.returncode}\n{words}")
    return Finished(began, ended, lines)


def unpack_mnist(source: pathlib.Path, target: pathlib.Path, most: int = 60_000) -> pathlib.Path:
    """MNIST's files, not compressed, where torchvision wants them below `target`; of each set the first `most` pictures.
    Returns their folder."""
    raw = target / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in source.glob("*-ubyte.gz"):
        with gzip.open(packed) as file:
            content = file.read()
        count = min(most, int.from_bytes(content[4:8], "big"))
        header, each = (16, 28 * 28) if "images" in packed.name else (8, 1)
        cut = content[:4] + count.to_bytes(4, "big") + content[8:header + count * each]
        (raw / packed.name.removesuffix(".gz")).write_bytes(cut)
    return raw
