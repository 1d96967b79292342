"""The jobs of the all-reduce benchmark: how each contender is started, and how it is told to take its turn."""
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ANSWER_SECONDS = 90
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


@dataclasses.dataclass
class Kind:
    """How a contender's ranks are started; {n} is their number, {folder} where the pipes are, {name} its own."""
    name: str
    column: str
    command: list[str]

    @property
    def kind(self) -> str:
        """As installed is what PyTorch brings along."""
        return {"gloo": "installed", "staged": "ours", "zero copy": "ours"}.get(self.column, "tuned")


def mpi_compiler() -> str:
    missing = [package for program, package in (("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin"))
               if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"bench: Open MPI is needed: install {' and '.join(missing)}; scripts/bootstrap --tests does")
    return "mpicc"


def build_mpi_peer(folder: pathlib.Path, compiler: str | None = None) -> pathlib.Path:
    compiler = compiler or mpi_compiler()
    program = folder / f"{compiler}_peer"
    subprocess.run([compiler, "-O3", "-o", program, HERE / "mpi_peer.c", HERE / "turns.c"], check=True, timeout=60)
    return program


def kinds(binaries: pathlib.Path, library: pathlib.Path, mpi_peer: pathlib.Path, ranks: int) -> list[Kind]:
    crowded = ranks > len(os.sched_getaffinity(0))
    rank = [str(binaries / "lockstep-bench-comm-rank"), "{folder}", "{name}"]
    ours = [str(binaries / "lockstep"), "run", "-n", "{n}", *rank]
    bind = [] if crowded else ["--bind"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{n}",
                str(HERE / "torch_peer.py"), "{folder}", "{name}", str(library)]
    # A session folder each: those that start at once otherwise race for making the one they share.
    mpirun = ["mpirun", "-n", "{n}", "--mca", "orte_tmpdir_base", "{folder}/{name}.session",
              *(["--oversubscribe"] if crowded else [])]
    peer = [str(mpi_peer), "{folder}", "{name}"]
    placed = ["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"] if crowded else ["--bind-to", "core"]
    tuned = [*mpirun, *placed, "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    return [
        Kind("Gloo, torchrun", "gloo", torchrun),
        Kind("Gloo, C++", "gloo tuned", [*ours, "--contender", "gloo"]),
        Kind("Gloo, C++, 2 devices, 4 threads, 4 parts, huge pages", "gloo tuned",
             [*ours, "--contender", "gloo", "--devices", "2", "--threads", "4", "--parts", "4", "--huge"]),
        Kind("Open MPI", "mpi", [*mpirun, *peer]),
        Kind("Open MPI, ob1 and vader, huge pages", "mpi tuned", [*tuned, *peer, "huge"]),
        Kind("Open MPI, its shared-memory collectives, huge pages", "mpi tuned",
             [*tuned, "--mca", "coll_sm_priority", "100", *peer, "huge"]),
        Kind("lockstep, staged", "staged", [*ours, "--contender", "staged", *bind]),
        Kind("lockstep, zero copy", "zero copy", [*ours, "--contender", "zero-copy", *bind]),
    ]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PET_", "TORCH", "LOCKSTEP_", "OMPI_"))}
    # OMP_NUM_THREADS: no launcher has to warn. The rest lets mpirun start as root.
    return {**kept, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Job:
    """A contender's ranks, asleep between their turns."""

    def __init__(self, kind: Kind, number: int, ranks: int, folder: pathlib.Path):
        self.kind = kind
        name = f"job{number}"
        self.orders, self.answers = [], []
        for rank in range(ranks):
            for side, pipes in (("in", self.orders), ("out", self.answers)):
                path = folder / f"{name}.{rank}.{side}"
                os.mkfifo(path)
                # Both ends, so that opening waits for nobody; when this process ends the ranks read an end.
                pipes.append(open(os.open(path, os.O_RDWR | os.O_CLOEXEC), "r+b", buffering=0))
        self.log = open(folder / f"{name}.log", "w+")
        words = [word.format(n=ranks, folder=folder, name=name) for word in kind.command]
        self.process = subprocess.Popen(words, env=environment(), stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent)

    def lines(self) -> list[str]:
        return [self.line(pipe) for pipe in self.answers]

    def line(self, pipe) -> str:
        text = b""
        while not text.endswith(b"\n"):
            ready = False
            for _ in range(ANSWER_SECONDS):
                ready = bool(select.select([pipe], [], [], 1)[0])
                if ready or self.process.poll() is not None:
                    break
            if not ready:
                self.log.seek(0)
                raise SystemExit(f"bench: {self.kind.name}: no answer (exit code {self.process.poll()})\n"
                                 + self.log.read())
            text += os.read(pipe.fileno(), 1 << 16)
        return text.decode()

    def turn(self, elements: int, calls: int) -> list[float]:
        """The seconds of each call, from the first rank's start to the last rank's end."""
        for pipe in self.orders:
            pipe.write(f"{elements} {calls}\n".encode())
        times = [list(map(int, line.split())) for line in self.lines()]
        starts, ends = zip(*((rank[0::2], rank[1::2]) for rank in times))
        return [(max(end) - min(start)) / 1e9 for start, end in zip(zip(*starts), zip(*ends))]

    def end(self):
        for pipe in (*self.orders, *self.answers):
            pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


@contextlib.contextmanager
def started(kinds_: list[Kind], ranks: int, folder: pathlib.Path):
    jobs = []
    try:
        for number, kind in enumerate(kinds_):
            jobs.append(Job(kind, number, ranks, folder))
        for job in jobs:
            if any(line != "ready\n" for line in job.lines()):
                raise SystemExit(f"bench: {job.kind.name} does not start")
        yield jobs
    finally:
        for job in jobs:
            job.end()
