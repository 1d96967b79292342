"""All-reduce and barrier across two nodes: Lockstep, Gloo, Open MPI and MPICH, taking turns in one run.

Run by comm.py, and alone under scripts/python-torch. The nodes are networks of their own on this machine. Who fails once has
no more turns, and its rows say why; what does not cross the wire is no figure.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import jobs
import report
from comm import KIB, LONGEST_TURN, MIB, Case, command_text
from turns import in_order  # of ../support, which report looks into

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "link"))
import wire  # noqa: E402
import two_nodes  # noqa: E402, of ../nodes, which wire looks into

WHOLE_SECONDS = 100  # all in all
PORTS = iter(range(20_000, 32_000))  # below those that the kernel gives to others
SUBNET = "10.77.0.0/24"
MPI = {"mpirun.openmpi": "openmpi-bin", "mpicc.openmpi": "libopenmpi-dev", "mpiexec.mpich": "mpich",
       "mpicc.mpich": "libmpich-dev"}
# In ssh's place: [options] HOST COMMAND... Open MPI tells nodes by their hostnames.
THERE = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
[ "$1" != -n ] || shift
[ "$host" != {here} ] || exec sh -c "$*"
exec nsenter --target {process} --net unshare --uts sh -c 'hostname node1 && exec sh -c "$1"' sh "$*"
"""
# UCX looks for interfaces in /sys/class/net, which has those of the network in which it was mounted.
WITH_ENDS = ("mount -t tmpfs ends /sys/class/net && " + "".join(
    f"ln -s /sys/devices/virtual/net/lo /sys/class/net/{end} && " for end in two_nodes.ENDS) + 'exec "$@"')


@dataclasses.dataclass
class Kind(jobs.Kind):
    """`second`: what is started on the other node; MPI's launchers do that themselves."""
    second: list[str] = dataclasses.field(default_factory=list)

    @property
    def kind(self) -> str:
        return {"gloo": "installed", "ours": "ours", "flat": "ours"}.get(self.column, "tuned")


def meeting(port: int, each: int) -> list[str]:
    """Flags that both launchers have."""
    return ["--nnodes", "2", "--nproc-per-node", str(each), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{two_nodes.ADDRESSES[0]}:{port}", "--rdzv-id", f"comm{port}"]


def on_both(name: str, column: str, command) -> Kind:
    """`command(node)`, with the variables that name the node's end of the wire."""
    first, second = (["env", f"GLOO_SOCKET_IFNAME={two_nodes.ENDS[node]}", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
                      *command(node)] for node in range(2))
    return Kind(name, column, first, second)


def ours(binaries: pathlib.Path, each: int, name: str, column: str, flags) -> Kind:
    meets = meeting(next(PORTS), each)
    return on_both(name, column, lambda node: [
        str(binaries / "lockstep"), "run", *meets, "--insecure", str(binaries / "lockstep-bench-comm-rank"), "{folder}",
        "{name}", *flags(node)])


def torchrun(library: pathlib.Path, each: int) -> Kind:
    meets = meeting(next(PORTS), each)
    return on_both("Gloo, torchrun", "gloo", lambda node: [
        sys.executable, "-B", "-m", "torch.distributed.run", *meets, "--rdzv-conf", f"is_host={1 - node}", "--local-addr",
        two_nodes.ADDRESSES[node], str(jobs.HERE / "torch_peer.py"), "{folder}", "{name}", str(library)])


def open_mpi(peer: pathlib.Path, there: pathlib.Path, each: int, crowded: bool) -> Kind:
    """Bound to no core: each node would begin with the same one."""
    settings = {"orte_tmpdir_base": "{folder}/{name}.session", "plm": "rsh", "plm_rsh_agent": str(there),
                "oob_tcp_if_include": SUBNET, "btl_tcp_if_include": SUBNET, "btl": "self,vader,tcp", "pml": "ob1",
                "mpi_yield_when_idle": str(int(crowded))}
    hosts = ",".join(f"{address}:{each}" for address in two_nodes.ADDRESSES)
    return Kind("Open MPI", "openmpi", [
        "mpirun.openmpi", "-n", "{n}", "--host", hosts, "--bind-to", "none",
        *(word for name, value in settings.items() for word in ("--mca", name, value)), str(peer), "{folder}", "{name}"])


def mpich(peer: pathlib.Path, there: pathlib.Path, each: int) -> Kind:
    return Kind("MPICH", "mpich", [
        "unshare", "--mount", "sh", "-c", WITH_ENDS, "sh", "mpiexec.mpich", "-n", "{n}", "-ppn", str(each),
        "-hosts", ",".join(two_nodes.ADDRESSES), "-localhost", two_nodes.ADDRESSES[0], "-launcher", "ssh",
        "-launcher-exec", str(there), "-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES",
        ",".join(two_nodes.ENDS), str(peer), "{folder}", "{name}"])


def mpich_version() -> str:
    said = subprocess.run(["mpiexec.mpich", "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    return next((line.split(":", 1)[1].strip() for line in said.splitlines() if line.strip().startswith("Version:")),
                "unknown")


def kinds(options: argparse.Namespace, peers: dict[str, pathlib.Path], there: pathlib.Path, each: int) -> list[Kind]:
    crowded = 2 * each > len(os.sched_getaffinity(0))
    found = [torchrun(options.library, each),
             ours(options.bin, each, "Gloo, C++", "gloo tuned",
                  lambda node: ["--contender", "gloo", "--address", two_nodes.ADDRESSES[node]]),
             open_mpi(peers["openmpi"], there, each, crowded), mpich(peers["mpich"], there, each),
             ours(options.bin, each, "lockstep", "ours", lambda node: [])]
    if each > 1:  # else both are the same
        found.append(ours(options.bin, each, "lockstep, flat", "flat", lambda node: ["--flat"]))
    return found


class Job(jobs.Job):
    """Processes on both nodes."""

    def __init__(self, network: two_nodes.Network, kind: Kind, number: int, ranks: int, folder: pathlib.Path):
        super().__init__(kind, number, ranks, folder)
        self.other = None
        if kind.second:
            words = [word.format(n=ranks, folder=folder, name=f"job{number}") for word in kind.second]
            self.other = subprocess.Popen([*network.on(1), *words], env=jobs.environment(), stdin=subprocess.DEVNULL,
                                          stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
                                          preexec_fn=jobs.die_with_parent)

    def end(self):
        super().end()
        if self.other is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.other.wait(20)
        if self.other.poll() is None:
            self.other.kill()
            self.other.wait()


class Contender:
    """A job until it fails; then why."""

    def __init__(self, job):
        self.job, self.why = job, ""

    def attempt(self, what):
        """What it returns; None when that fails, or anything has before."""
        if self.why:
            return None
        try:
            return what()
        except SystemExit as failed:
            self.fail(str(failed))
            return None

    def fail(self, why: str):
        print(f"bench: across two nodes: {self.job.kind.name}: {why}", file=sys.stderr)
        self.why = why

    def wait_until_ready(self):
        said = self.attempt(self.job.lines)
        if said is not None and any(line != "ready\n" for line in said):
            self.fail("it does not start")

    def turn(self, network, case: Case, calls: int) -> tuple[list[float], float] | None:
        """Seconds of each call, and bytes that crossed the wire in one."""
        before = network.sent()
        seconds = self.attempt(lambda: self.job.turn(case.elements(), calls))
        if seconds is None:
            return None
        crossed = sum(after.bytes - first.bytes for first, after in zip(before, network.sent())) / len(seconds)
        if crossed < case.bytes:
            self.fail(f"{crossed:.0f} bytes have crossed the wire for a tensor of {case.bytes}")
            return None
        return seconds, crossed


def cases(quick: bool) -> list[Case]:
    if quick:
        return [Case("4 B", 4, 3, 1), Case("64 KiB", 64 * KIB, 3, 1), Case("barrier", -1, 3, 1)]
    return [Case("4 B", 4, 60, 10), Case("64 KiB", 64 * KIB, 60, 10), Case("1 MiB", MIB, 20, 10),
            Case("25 MiB", 25 * MIB, 3, 8), Case("barrier", -1, 60, 10)]


def take_turns(everyone: list[Contender], network, case: Case, until: float) -> list[dict]:
    """The first turn, to warm up and to see how many calls are a short turn, is thrown away."""
    calls, found = {}, {id(one): [] for one in everyone}
    for one in everyone:
        first = one.turn(network, case, min(case.calls, 5))
        calls[id(one)] = 0 if first is None else max(1, min(case.calls, int(LONGEST_TURN / statistics.median(first[0]))))
    for number in range(case.rounds):
        if time.monotonic() > until:
            break
        for one in in_order(everyone, number):
            if (taken := one.turn(network, case, calls[id(one)])) is not None:
                found[id(one)].append(taken)
    return [row(one, found[id(one)]) for one in everyone]


def row(one: Contender, taken: list[tuple[list[float], float]]) -> dict:
    """Where a contender has failed in the case, the turns before do not stand for it."""
    seconds = [] if one.why else [value for turn, _ in taken for value in turn]
    kind = one.job.kind
    return {"name": kind.name, "kind": kind.kind, "column": kind.column, "command": command_text(kind.command),
            "seconds": seconds, "calls": len(seconds), "why": one.why or ("" if seconds else "no time left"),
            "wire": statistics.median(crossed for _, crossed in taken) if seconds else 0}


def measure(options: argparse.Namespace, network, folder: pathlib.Path, peers: dict, each: int, until: float) -> dict:
    print(f"bench: two nodes, {2 * each} ranks", file=sys.stderr)
    folder.mkdir()
    there = folder / "there"
    there.write_text(THERE.format(process=network.other.pid, here=two_nodes.ADDRESSES[0]))
    there.chmod(0o755)
    everyone = []
    try:
        for number, kind in enumerate(kinds(options, peers, there, each)):
            everyone.append(Contender(Job(network, kind, number, 2 * each, folder)))
        for one in everyone:
            one.wait_until_ready()
        found = []
        table = cases(options.quick)
        for number, case in enumerate(table):
            left = until - time.monotonic()
            rows = take_turns(everyone, network, case, time.monotonic() + left / (len(table) - number))
            found.append({"case": case.name, "bytes": case.bytes, "contenders": rows})
        return {"ranks": 2 * each, "mpich": mpich_version(), "cases": found}
    finally:
        for one in everyone:
            one.job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/bin", type=pathlib.Path)
    parser.add_argument("--library", default="build/benchmarks/liblockstep_bench_turns.so", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="one rank on each node, a few calls, nothing large")
    parser.add_argument("--into", type=pathlib.Path, help="write the numbers into this file instead of a page")
    options = parser.parse_args()
    missing = [package for program, package in MPI.items() if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"bench: Open MPI and MPICH are needed: install {' '.join(missing)}; scripts/bootstrap --tests does")
    options.bin, options.library = options.bin.resolve(), options.library.resolve()
    two_nodes.enter_own_network()
    began = time.monotonic()
    jobs.ANSWER_SECONDS = 30  # nobody holds up the others for longer
    sizes = [1] if options.quick else [1, 2]  # ranks of each node
    worlds = []
    with tempfile.TemporaryDirectory() as name, wire.Wire() as network:
        folder = pathlib.Path(name)
        peers = {mpi: jobs.build_mpi_peer(folder, f"mpicc.{mpi}") for mpi in ("openmpi", "mpich")}
        for number, each in enumerate(sizes):
            until = began + WHOLE_SECONDS * (number + 1) / len(sizes)
            worlds.append(measure(options, network, folder / str(each), peers, each, until))
    if options.into:
        options.into.write_text(json.dumps(worlds))
    else:
        print(report.across_page(worlds))


if __name__ == "__main__":
    main()
