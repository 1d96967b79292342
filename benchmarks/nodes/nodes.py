"""Two nodes on loopback: lockstep run --nnodes beside torchrun with the c10d rendezvous, taking turns in one run.

Run by `scripts/bench nodes`, under scripts/python-torch. Both agents of a job are started at the same time, and what is
timed is when a line of a worker comes out of an agent: the first one of all, and after one of the nodes is gone, agent
and worker at once, the other's next one. Besides, of ours alone: how long a thousand agents take to agree on who is in.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import report
import turns  # of ../support, which report looks into

DEADLINE_SECONDS = 180  # of a job; torchrun goes on without a lost node after some 40 s
PORTS = iter(range(20_000, 32_000))  # below those that the kernel gives to others

# Says that it runs. Alone, it is done. Else the first node's worker waits for the other's as a collective does, whose
# connection ends with it; then it fails. It travels in the environment: in arguments launchers take $$ for $.
WORKER = """echo "worker of node $NODE"
[ "$WORLD_SIZE" = 1 ] && exit 0
[ -n "$MEET" ] || exit 0
if [ "$NODE" = 0 ]; then read -r line <"$MEET"; exit 1; fi
exec 3>"$MEET"
echo $$ >"$MEET.pid.new" && mv "$MEET.pid.new" "$MEET.pid"
exec sleep 600
"""


@dataclasses.dataclass
class Contender:
    name: str
    kind: str  # ours, installed, tuned
    command: list[str]
    conf: str = ""  # more of --rdzv-conf

    def agent(self, nodes: str, node: int, port: int) -> list[str]:
        conf = f"is_host={1 if node == 0 else 0}" + self.conf
        return [*self.command, "--nnodes", nodes, "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"bench{port}", "--rdzv-conf", conf]


def contenders(binaries: pathlib.Path) -> list[Contender]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    # What a lost node costs is above all its last call, 30 s as installed.
    tuned = [sys.executable, "-c", "import gc; gc.disable(); from torch.distributed.run import main; main()", "--no-python",
             "--monitor-interval", "0.01"]
    return [Contender("lockstep run", "ours", [str(binaries / "lockstep"), "run"]),
            Contender("torchrun", "installed", torchrun),
            Contender("torchrun, tuned", "tuned", tuned, ",last_call_timeout=1")]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCH", "LOCKSTEP_"))}
    return {**kept, "OMP_NUM_THREADS": "1"}  # no launcher has to warn


class Job:
    """Both agents, in sessions of their own, and the lines of their workers."""

    def __init__(self, contender: Contender, nodes: str, meet: str = ""):
        self.contender, port = contender, next(PORTS)
        self.until = time.monotonic() + DEADLINE_SECONDS
        self.began = time.monotonic()
        self.agents = [subprocess.Popen([*contender.agent(nodes, node, port), "sh", "-c", 'eval "$WORKER"'],
                                        env={**environment(), "WORKER": WORKER, "NODE": str(node), "MEET": meet},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
                       for node in range(2)]
        self.unread = {agent.stdout.fileno(): b"" for agent in self.agents}

    def fail(self, why: str):
        raise SystemExit(f"bench: {self.contender.name}: {why}; exit codes {[agent.poll() for agent in self.agents]}")

    def line(self, nodes: tuple[int, ...]) -> float:
        """When the next line of a worker came out of one of these nodes' agents."""
        pipes = [self.agents[node].stdout.fileno() for node in nodes]
        while True:
            for pipe in pipes:
                if b"worker of node" in self.unread[pipe] and b"\n" in self.unread[pipe]:
                    self.unread[pipe] = self.unread[pipe].split(b"\n", 1)[1]
                    return time.monotonic()
            ready = select.select(pipes, [], [], max(0.0, self.until - time.monotonic()))[0]
            if not ready:
                self.fail("no line of a worker in time")
            for pipe in ready:
                read = os.read(pipe, 1 << 16)
                if not read:
                    self.fail("an agent has ended without a line of its worker")
                self.unread[pipe] += read

    def wait(self, node: int) -> int:
        try:
            return self.agents[node].wait(max(0.1, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.fail(f"node {node} does not end")

    def kill_node(self, node: int, worker: int):
        for group in (self.agents[node].pid, worker):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)  # where it is in a group of its agent's

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()  # launchers end their workers
                try:
                    agent.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(agent.pid, signal.SIGKILL)
                    agent.wait()
            agent.stdout.close()


def start_to_line(contender: Contender) -> float:
    with Job(contender, "2") as job:
        took = job.line((0, 1)) - job.began
        if any(job.wait(node) != 0 for node in range(2)):
            job.fail("the job failed")
    return took


def lost_to_line(contender: Contender) -> float:
    with tempfile.TemporaryDirectory() as folder:
        meet = f"{folder}/meet"
        os.mkfifo(meet)
        with Job(contender, "1:2", meet) as job:
            job.line((0,))
            while not os.path.exists(meet + ".pid"):
                if time.monotonic() > job.until or job.agents[1].poll() is not None:
                    job.fail("the second node has no worker")
                time.sleep(0.01)
            time.sleep(0.5)  # all agents have come to rest
            killed = time.monotonic()
            job.kill_node(1, int(pathlib.Path(meet + ".pid").read_text()))
            took = job.line((0,)) - killed
            if job.wait(0) != 0:
                job.fail("the other node failed")
    return took


def take_turns(measure, who: list[Contender], rounds: int, warm_up: bool) -> list[dict]:
    found = turns.take_turns({contender.name: lambda contender=contender: measure(contender) for contender in who}, rounds,
                             warm_up)
    return [{"name": contender.name, "kind": contender.kind, "seconds": found[contender.name]} for contender in who]


def membership(binaries: pathlib.Path, agents: int, rounds: int) -> list[str]:
    """What lockstep-bench-membership says, a line for each kind."""
    command = [binaries / "lockstep-bench-membership", "--agents", str(agents), "--rounds", str(rounds)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="where our programs are")
    parser.add_argument("--rounds", type=int, default=10, help="of starts")
    parser.add_argument("--losses", type=int, default=5, help="rounds of lost nodes")
    parser.add_argument("--quick", action="store_true", help="one turn each; without torchrun as installed, which takes a minute")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--report", type=pathlib.Path, help="writes REPORT.md and REPORT.json")
    arguments = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        raise SystemExit("bench: torchrun is needed: scripts/bootstrap --tests installs it")
    if arguments.quick:
        arguments.rounds = arguments.losses = 1
    machine = report.read_machine()
    everyone = [contender for contender in contenders(arguments.bin.resolve())
                if not arguments.quick or contender.kind != "installed"]
    print("bench: start to the first line of a worker", file=sys.stderr)
    start = take_turns(start_to_line, everyone, arguments.rounds, not arguments.quick)
    print("bench: a lost node to the next line of a worker", file=sys.stderr)
    lost = take_turns(lost_to_line, everyone, arguments.losses, not arguments.quick)
    print("bench: many agents agree", file=sys.stderr)
    agree = membership(arguments.bin.resolve(), *((50, 1) if arguments.quick else (1_000, 10)))
    whole = {"benchmark": "nodes", "machine": machine, "commit": arguments.commit,
             "command": report.command_text("nodes"), "versions": report.versions(), "start": start, "lost": lost,
             "membership": agree}
    print(report.markdown(whole))
    if arguments.report:
        report.write_report(arguments.report, report.markdown(whole), whole)


if __name__ == "__main__":
    main()
