"""Who takes turns in the benchmark on a GPU, and the processes that they are."""
import contextlib
import dataclasses
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

EAGER_SCRIPT = pathlib.Path(__file__).resolve().with_name("eager.py")
EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Failed)\b")


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    kind: str  # as in support/rows.py
    who: str = ""  # of eager.py; ours have none
    flags: tuple[str, ...] = ()  # of lockstep-bench-gpu-step

    @property
    def is_eager(self) -> bool:
        """The faster of these is what the others are held to."""
        return self.who in ("plain", "fused")

    @property
    def process(self) -> str:
        """Contenders for which this is the same share one: eager Python's share the memory that torch keeps."""
        return "eager" if self.is_eager else self.name


PLAIN = Contender("Python, SGD()", "installed", "plain")
FUSED = Contender("Python, SGD(fused=True)", "tuned", "fused")
COMPILED = Contender("Python, torch.compile, SGD(fused=True)", "tuned", "compiled")
OURS = [
    Contender("a loop of libtorch, torch::optim::SGD", "floor", flags=("--contender", "loop")),
    Contender("DistributedDataParallel, torch::optim::SGD", "ours", flags=("--contender", "torch")),
    Contender("DistributedDataParallel, FusedSGD", "ours", flags=("--contender", "fused")),
    Contender("DistributedDataParallel, lockstep::optim::SGD", "ours", flags=("--contender", "lockstep")),
    Contender("lockstep::optim::SGD, deterministic", "lever", flags=("--contender", "lockstep", "--exact")),
]


@dataclasses.dataclass(frozen=True)
class Case:
    amp: str  # none, bf16
    format: str  # contiguous, channels_last

    @classmethod
    def of(cls, text: str) -> "Case":
        """Of "bf16,channels_last"; ValueError for another text."""
        amp, memory_format = text.split(",")
        if amp not in ("none", "bf16") or memory_format not in ("contiguous", "channels_last"):
            raise ValueError(text)
        return cls(amp, memory_format)

    @property
    def facts(self) -> dict[str, str]:
        """What its rows may be compared with."""
        return {"precision": "fp32" if self.amp == "none" else self.amp,
                "format": "channels-last" if self.format == "channels_last" else "channels first"}

    @property
    def title(self) -> str:
        return f"{'float32' if self.amp == 'none' else 'bfloat16'}, {self.facts['format']}"

    def command(self, contender: Contender, program: pathlib.Path, batch: int) -> list[str]:
        if contender.who:
            return [sys.executable, "-B", str(EAGER_SCRIPT), "--batch", str(batch), "--amp", self.amp, "--format",
                    self.format]
        layout = ["--channels-last"] if self.format == "channels_last" else []
        return [str(program), *contender.flags, "--batch", str(batch), "--amp", self.amp, *layout]


class Failed(Exception):
    """Why a contender has no figure, in one line."""


class Process:
    """Reads what to do and answers with the milliseconds of a step. It sleeps in between."""

    def __init__(self, command: list[str]):
        # All cores for operators: what an OMP_NUM_THREADS of the shell says is not meant for this.
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=environment, start_new_session=True)
        self.unread = b""
        self.has_ended = False

    def tell(self, line: str):
        if self.has_ended:
            return
        with contextlib.suppress(BrokenPipeError):  # then there is no answer, which says why
            os.write(self.process.stdin.fileno(), f"{line}\n".encode())

    def answer(self, seconds: float) -> float:
        """Failed when none comes in that time, or it is no number."""
        if self.has_ended:
            raise Failed("its process has been ended")
        until = time.monotonic() + seconds
        while b"\n" not in self.unread:
            left = until - time.monotonic()
            if left <= 0:
                raise Failed(f"no answer within {seconds:.0f} s")
            if not select.select([self.process.stdout], [], [], left)[0]:
                continue
            some = os.read(self.process.stdout.fileno(), 1 << 12)
            if not some:
                raise Failed(self._last_words())
            self.unread += some
        line, self.unread = self.unread.split(b"\n", 1)
        try:
            return float(line)
        except ValueError:
            raise Failed(f"it said '{line.decode(errors='replace')}'") from None

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        named = [line for line in lines if EXCEPTION.match(line)]  # torch.compile's have advice behind them
        return f"exit code {self.process.poll()}: {(named or lines or ['and not a word'])[-1]}"

    def let_go(self):
        """It ends by itself, beside others."""
        self.process.stdin.close()

    def end(self):
        """With all that it has started: torch.compile has helpers."""
        if self.has_ended:
            return
        self.has_ended = True
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
