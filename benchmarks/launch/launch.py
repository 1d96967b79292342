"""What a launcher costs: lockstep run beside torchrun and mpirun, taking turns in one run.

Run by `scripts/bench launch`, under scripts/python-torch.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import first_step
import report
import turns  # of ../support, which report looks into

DEADLINE_SECONDS = 60
PORTS = iter(range(20_000, 32_000))  # below those that the kernel gives to others


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # ours, installed, tuned, floor
    command: list[str]

    def with_workers(self, count: int) -> list[str]:
        return [text.format(workers=count, port=next(PORTS) if "{port}" in text else 0) for text in self.command]


def contenders(binaries: pathlib.Path) -> dict[str, Contender]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "{workers}"]
    # Without the garbage collector torch is imported a tenth faster; -OO, -I, PYTHONMALLOC, no GPU in sight, no libuv
    # were tried and do not help.
    tuned = [sys.executable, "-c", "import gc; gc.disable(); from torch.distributed.run import main; main()",
             *torchrun[3:], "--monitor-interval", "0.01", "--master-port", "{port}"]
    return {
        "bare": Contender("no launcher: two processes", "floor", []),
        "lockstep": Contender("lockstep run", "ours", [str(binaries / "lockstep"), "run", "-n", "{workers}"]),
        "mpirun": Contender("mpirun (Open MPI)", "tuned", ["mpirun", "-n", "{workers}"]),
        "torchrun": Contender("torchrun", "installed", [*torchrun, "--master-port", "{port}"]),
        "tuned": Contender("torchrun, tuned", "tuned", tuned),
        # Meets its like through a store, as --standalone does; TORCH_DISABLE_SHARE_RDZV_TCP_STORE makes restarts work.
        "standalone": Contender("torchrun --standalone", "installed", [*torchrun, "--standalone"]),
    }


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCH", "LOCKSTEP_"))}
    # OMP_NUM_THREADS: no launcher has to warn. The rest lets mpirun start as root, and two on one core.
    return {**kept, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def spawn(command: list[str]) -> int:
    quiet = [(os.POSIX_SPAWN_OPEN, file, "/dev/null", os.O_RDWR, 0) for file in (0, 1, 2)]
    return os.posix_spawnp(command[0], command, environment(), file_actions=quiet, setsid=True)


@contextlib.contextmanager
def deadline(*processes: int, seconds: int = DEADLINE_SECONDS):
    """Kills the processes when the time is up; whoever waits for them sees a failure."""
    def kill(*_):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
    before = signal.signal(signal.SIGALRM, kill)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def start_to_finish(contender: Contender, worker: list[str]) -> float:
    commands = [[*contender.with_workers(2), *worker]] if contender.command else [worker] * 2
    began = time.monotonic()
    processes = [spawn(command) for command in commands]
    with deadline(*processes):
        codes = [wait(process) for process in processes]
    took = time.monotonic() - began
    if any(codes):
        raise SystemExit(f"bench: {contender.name} {worker}: exit codes {codes}")
    return took


def kill_to_restart(contender: Contender, worker: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [*contender.with_workers(2), "--max-restarts", "1", worker, "note", folder]
        process = spawn(command)
        with deadline(process):
            code = wait(process)
        times = {file.name: int(file.read_text()) for file in pathlib.Path(folder).iterdir()}
    if code != 0 or set(times) != {"0.0", "0.1", "1.0", "1.1", "killed"}:
        raise SystemExit(f"bench: {contender.name}: exit code {code}, noted {sorted(times)}")
    return (max(times["1.0"], times["1.1"]) - times["killed"]) / 1e9


def memory(contender: Contender, worker: str, workers: int) -> dict[str, int]:
    """Bytes of the launcher when all workers run: what it holds, what it ever held; with its helper processes."""
    with tempfile.TemporaryDirectory() as folder:
        process = spawn([*contender.with_workers(workers), worker, "wait", folder])
        with deadline(process):
            while len([name for name in os.listdir(folder) if name.startswith("0.") and name[-1].isdigit()]) < workers:
                if os.waitpid(process, os.WNOHANG)[0] != 0:
                    raise SystemExit(f"bench: {contender.name} with {workers} workers ended early")
                time.sleep(0.01)
            time.sleep(0.3)  # it has come to rest
            found = {"resident": field(process, "VmRSS"), "peak": field(process, "VmHWM")}
            program = os.readlink(f"/proc/{process}/exe")
            helpers = [child for child in children(process) if os.readlink(f"/proc/{child}/exe") == program]
            found["helpers"] = sum(field(child, "VmRSS") for child in helpers)
            os.kill(process, signal.SIGTERM)
            wait(process)
    return found


def field(process: int, name: str) -> int:
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"bench: /proc/{process}/status has no {name}")


def children(process: int) -> list[int]:
    return [int(word) for word in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def in_a_row(contender: Contender, worker: str, count: int) -> dict[str, float]:
    command = [*contender.with_workers(2), worker]
    began, failures = time.monotonic(), 0
    for _ in range(count):
        process = spawn(command)
        with deadline(process):
            failures += wait(process) != 0
    return {"launches": count, "failures": failures, "seconds": time.monotonic() - began}


def take_turns(arguments, measure, who: list[Contender]) -> list[dict]:
    """As many turns for each, the quick ones too."""
    found = turns.take_turns({contender.name: lambda contender=contender: measure(contender) for contender in who},
                             arguments.rounds, not arguments.quick)
    return [{"name": contender.name, "kind": contender.kind, "seconds": found[contender.name]} for contender in who]


def measure_first_step(arguments) -> list[dict]:
    if not arguments.data or not arguments.data.is_dir():
        print(f"bench: no data in {arguments.data}: the first training step is not measured", file=sys.stderr)
        return []
    print("bench: first training step", file=sys.stderr)
    return first_step.measure(arguments.bin, arguments.data, arguments.rounds, not arguments.quick)


def measure_all(arguments, everyone: dict[str, Contender]) -> dict:
    worker = str(arguments.bin / "lockstep-bench-worker")
    launchers = [everyone[name] for name in ("lockstep", "torchrun", "standalone", "tuned")]

    def all_turns(title, measure, who):
        print(f"bench: {title}", file=sys.stderr)
        return take_turns(arguments, measure, who)

    return {
        "first_step": measure_first_step(arguments),
        "start": all_turns("a C++ program that returns 0", lambda c: start_to_finish(c, [worker]), [*everyone.values()]),
        "start_true": all_turns("true", lambda c: start_to_finish(c, [shutil.which("true")]), [*everyone.values()]),
        "restart": all_turns("kill to restart", lambda c: kill_to_restart(c, worker), launchers),
        "memory": [{"name": contender.name, "workers": workers, **memory(contender, worker, workers)}
                   for workers in (2, 64) for contender in (everyone["lockstep"], everyone["torchrun"])],
        "in_a_row": in_a_row(everyone["lockstep"], worker, arguments.launches),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--data", type=pathlib.Path, help="folder of MNIST's .gz files, for the first training step")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="one turn each, of files that nobody has warmed up; 5 launches")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if arguments.quick:
        arguments.rounds, arguments.launches = 1, 5
    if importlib.util.find_spec("torch") is None or shutil.which("mpirun") is None:
        raise SystemExit("bench: torchrun and mpirun are needed: scripts/bootstrap --tests installs both")
    machine = report.read_machine()
    results = measure_all(arguments, contenders(arguments.bin))
    command = report.command_text("launch")
    whole = {"benchmark": "launch", "machine": machine, "commit": arguments.commit, "command": command,
             "versions": report.versions(), "rounds": arguments.rounds, **results}
    print(report.markdown(whole))
    if arguments.report:
        report.write(arguments.report, whole)


if __name__ == "__main__":
    main()
