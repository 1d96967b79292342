"""Two nodes with two workers each, in networks of their own on this machine: our trainer, and a script under torchrun.

Run by `scripts/bench nodes`, under scripts/python-torch; a row of it by `scripts/python-torch benchmarks/nodes/nodes.py
--data FOLDER --only ROW`. All train the MNIST ConvNet. Timed is until rank 0 has done the first step: from the commands
on both nodes; and from a fault, which ends all workers that are left, that of the next attempt. Besides, of ours alone:
how long a thousand agents take to agree on who is in. It ends within 8 minutes; what fails, or has no time left, says
so in its row.
"""
import argparse
import dataclasses
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import report
import commands  # of ../support, which report looks into
import turns
import two_nodes

WHOLE_SECONDS = 470  # all in all
PATIENCE_SECONDS = 60  # for the first step of a start
PEER = pathlib.Path(__file__).resolve().parents[1] / "peer"
PORTS = iter(range(20_000, 32_000))  # below those that the kernel gives to others
MARK = r"^mark first step ([0-9.]+)$"  # by the clock that all processes share
OUR_STEP = r"\bstep \d+/"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# Without the garbage collector torch is imported a tenth faster.
TUNED = [sys.executable, "-c", "import gc; gc.disable(); from torch.distributed.run import main; main()",
         "--monitor-interval", "0.01"]


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # ours, installed, tuned, floor
    turn: Callable[[], dict]
    expected_seconds: float  # of a turn, which is not begun where so much time is not left


def variables(node: int, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCH", "LOCKSTEP_"))}
    # OMP_NUM_THREADS: no launcher has to warn. The second lets torchrun's restarts work.
    return {**kept, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": two_nodes.ENDS[node], **more}


def python(script: str, data: pathlib.Path, *flags: str) -> list[str]:
    return [sys.executable, "-u", str(PEER / script), "--data", str(data), *flags]


def meeting(nodes: str, port: int) -> list[str]:
    """Flags that both launchers have."""
    return ["--nnodes", nodes, "--nproc-per-node", "2", "--max-restarts", "3", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{two_nodes.ADDRESSES[0]}:{port}", "--rdzv-id", f"bench{port}"]


def our_agents(binaries: pathlib.Path, nodes: str, worker: list[str]) -> list[tuple]:
    flags = [*meeting(nodes, next(PORTS)), "--insecure"]
    return [(node, [str(binaries / "lockstep"), "run", *flags, *worker], variables(node)) for node in range(2)]


def torchrun_agents(launcher: list[str], nodes: str, worker: list[str]) -> list[tuple]:
    flags = meeting(nodes, next(PORTS))
    return [(node, [*launcher, *flags, "--rdzv-conf", f"is_host={1 - node}", "--local-addr", two_nodes.ADDRESSES[node],
                    "--no-python", *worker], variables(node)) for node in range(2)]


def by_hand(worker: list[str]) -> list[tuple]:
    meets = {"WORLD_SIZE": "4", "MASTER_ADDR": two_nodes.ADDRESSES[0], "MASTER_PORT": str(next(PORTS))}
    return [(rank // 2, worker, variables(rank // 2, RANK=str(rank), LOCAL_RANK=str(rank % 2), **meets))
            for rank in range(4)]


class Bench:
    def __init__(self, arguments: argparse.Namespace, network: two_nodes.Network, data: pathlib.Path, until: float):
        self.binaries, self.quick = arguments.bin, arguments.quick
        self.rounds = 1 if self.quick else arguments.rounds
        self.network, self.data, self.until = network, data, until
        self.warm_up = not self.quick  # before the first row: then all files are warm
        self.tuned_script = python("mnist_tuned.py", data, "--channels-last", "--one-step")
        self.long_script = python("mnist_tuned.py", data, "--channels-last", "--epochs", "1000")

    def job(self, starts: list[tuple]) -> two_nodes.Job:
        return two_nodes.Job(self.network, starts, self.until)

    def ours(self, *flags: str) -> list[str]:
        return [str(self.binaries / "lockstep"), "train", "--dataset", "mnist", "--data-path",
                str(self.data / "MNIST" / "raw"), "--model", "convnet", "--channels-last", "--lr", "1e-4",
                "--print-freq", "1", "--no-eval", *flags]

    def our_long_job(self, nodes: str) -> list[tuple]:
        """Each attempt's rank 0 says that it begins: a step behind that is its own, and not of the attempt before."""
        train = shlex.join(self.ours("--global-batch-size", "400", "--logical-shards", "4", "--epochs", "1000"))
        return our_agents(self.binaries, nodes, ["sh", "-c", f'[ "$RANK" != 0 ] || echo begins; exec {train}'])

    def take_turns(self, contenders: list[Contender], rounds: int) -> list[dict]:
        """Who fails has no more turns, and a word why."""
        why: dict[str, str] = {}

        def turn(contender: Contender) -> dict | None:
            if contender.name not in why:
                if time.monotonic() + contender.expected_seconds > self.until:
                    why[contender.name] = "no time left"
                    return None
                try:
                    return contender.turn()
                except (two_nodes.Failed, OSError, subprocess.SubprocessError) as failed:
                    why[contender.name] = str(failed)
            return None

        found = turns.take_turns({one.name: lambda one=one: turn(one) for one in contenders}, rounds, self.warm_up)
        self.warm_up = False
        rows = []
        for one in contenders:
            done = [taken for taken in found[one.name] if taken is not None]
            rows.append({"name": one.name, "kind": one.kind, "seconds": [taken["seconds"] for taken in done]})
            if done and "before" in done[0]:
                rows[-1]["before"] = [taken["before"] for taken in done]
            if one.name in why:
                rows[-1]["why"] = why[one.name]
        return rows

    def our_start(self) -> dict:
        with self.job(our_agents(self.binaries, "2", self.ours("--batch-size", "100", "--max-steps", "1"))) as job:
            return {"seconds": job.find(OUR_STEP, PATIENCE_SECONDS)[0] - job.began}

    def script_start(self, starts: Callable[[], list[tuple]]) -> dict:
        """To the first step, and of it what passes before the script's first line."""
        with self.job(starts()) as job:
            first_line = float(job.find(r"^mark python ([0-9.]+)$", PATIENCE_SECONDS)[1][1])
            first_step = float(job.find(MARK, PATIENCE_SECONDS)[1][1])
            return {"seconds": first_step - job.began, "before": first_line - job.began}

    def start(self) -> list[dict]:
        tutorial = python("mnist_tutorial.py", self.data, "--one-step")
        contenders = [
            Contender("lockstep train", "ours", self.our_start, 5),
            Contender("torchrun, the tutorial's script", "installed",
                      lambda: self.script_start(lambda: torchrun_agents(TORCHRUN, "2", tutorial)), 20),
            Contender("torchrun, tuned", "tuned",
                      lambda: self.script_start(lambda: torchrun_agents(TUNED, "2", self.tuned_script)), 20)]
        return self.take_turns(contenders[::2] if self.quick else contenders, self.rounds)

    def agents(self) -> list[dict]:
        script = self.tuned_script
        contenders = [
            Contender("no launcher", "floor", lambda: self.script_start(lambda: by_hand(script)), 15),
            Contender("lockstep run", "ours",
                      lambda: self.script_start(lambda: our_agents(self.binaries, "2", script)), 15),
            Contender("torchrun", "installed",
                      lambda: self.script_start(lambda: torchrun_agents(TORCHRUN, "2", script)), 20)]
        return self.take_turns(contenders[:2] if self.quick else contenders, 1 if self.quick else self.rounds + 1)

    def our_fault(self, nodes: str, fault: Callable[[two_nodes.Job], float], patience: float = 30) -> dict:
        with self.job(self.our_long_job(nodes)) as job:
            job.find("^begins$", PATIENCE_SECONDS)
            job.find(OUR_STEP, PATIENCE_SECONDS)
            time.sleep(1)  # it is under way
            when = fault(job)
            job.find("^begins$", patience)
            return {"seconds": job.find(OUR_STEP, patience)[0] - when}

    def script_fault(self, nodes: str, fault: Callable[[two_nodes.Job], float], patience: float) -> dict:
        with self.job(torchrun_agents(TORCHRUN, nodes, self.long_script)) as job:
            job.find(MARK, PATIENCE_SECONDS)  # an attempt says it once
            time.sleep(1)
            when = fault(job)
            return {"seconds": float(job.find(MARK, patience)[1][1]) - when}

    def worker(self) -> list[dict]:
        def fault(job: two_nodes.Job) -> float:
            return job.kill_worker(1, 1)

        contenders = [Contender("lockstep train", "ours", lambda: self.our_fault("2", fault), 8),
                      Contender("torchrun", "installed", lambda: self.script_fault("2", fault, 40), 30)]
        return self.take_turns(contenders[:1] if self.quick else contenders, self.rounds)

    def silent(self) -> list[dict]:
        def fault(job: two_nodes.Job) -> float:
            when = time.monotonic()
            job.network.cut()
            return when

        def turn() -> dict:
            try:
                return self.our_fault("1:2", fault)
            finally:
                self.network.mend()

        return self.take_turns([Contender("lockstep train", "ours", turn, 15)], self.rounds)

    def lost(self) -> list[dict]:
        def fault(job: two_nodes.Job) -> float:
            return job.kill_node(1)

        ours = Contender("lockstep train", "ours", lambda: self.our_fault("1:2", fault), 10)
        theirs = Contender("torchrun", "installed", lambda: self.script_fault("1:2", fault, 90), 70)
        found = self.take_turns([ours], self.rounds)
        if not self.quick:  # a single turn, for it takes a minute
            found += self.take_turns([theirs], 1)
        return found

    def membership(self) -> list[dict]:
        agents, rounds = ("50", "1") if self.quick else ("1000", "5")
        command = [self.binaries / "lockstep-bench-membership", "--agents", agents, "--rounds", rounds]
        try:
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                  timeout=max(1.0, min(60.0, self.until - time.monotonic()))).stdout
        except (OSError, subprocess.SubprocessError) as error:
            return [{"name": f"{agents} agents", "kind": "ours", "seconds": [], "why": str(error)}]
        found = re.findall(r"agents agree, (\S.*?) +median ([0-9.]+) s, p10-p90 ([0-9.]+)-([0-9.]+) s", said)
        return [{"name": f"{agents} agents, {how}", "kind": "ours", "turns": int(rounds),
                 "spread": [float(low), float(middle), float(high)]} for how, middle, low, high in found]


def measure(bench: Bench, names: list[str]) -> dict[str, list[dict]]:
    found = {}
    for name in names:
        print(f"bench: {report.ROWS[name].title}", file=sys.stderr)
        found[name] = getattr(bench, name)()
    return found


def main():
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of MNIST's .gz files")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, but one for torchrun and a lost node")
    parser.add_argument("--only", choices=report.ROWS, action="append", help="this row alone; again for another one")
    parser.add_argument("--quick", action="store_true",
                        help="one turn each, of files that nobody has warmed up; torchrun at the start alone")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("bench: torchrun is needed: scripts/bootstrap --tests installs it")
    if not arguments.data.is_dir():
        raise SystemExit(f"bench: MNIST is needed, and there is no {arguments.data}")
    two_nodes.enter_own_network()
    machine = report.read_machine()
    with tempfile.TemporaryDirectory() as scratch, two_nodes.Network() as network:
        data = pathlib.Path(scratch)
        commands.unpack_mnist(arguments.data, data)
        bench = Bench(arguments, network, data, began + WHOLE_SECONDS)
        rows = measure(bench, arguments.only or list(report.ROWS))
    whole = {"benchmark": "nodes", "machine": machine, "commit": arguments.commit,
             "command": report.command_text("nodes"), "versions": report.versions(), "took": time.monotonic() - began,
             "rows": rows}
    print(report.markdown(whole))
    if arguments.report:
        report.write_report(arguments.report, report.markdown(whole), whole)
    if report.without_figure(rows):
        raise SystemExit(f"bench: no figure of ours: {', '.join(report.without_figure(rows))}")


if __name__ == "__main__":
    main()
