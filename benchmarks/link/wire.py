"""The wire between two nodes of benchmarks/nodes/two_nodes.py, held to a rate, and what has crossed it."""
import dataclasses
import pathlib
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "nodes"))
import plain  # noqa: E402
import two_nodes  # noqa: E402


@dataclasses.dataclass
class Sent:
    """By an interface, since it is there."""
    bytes: int
    packets: int


def parse_sent(table: str, interface: str) -> Sent:
    """Of /proc/PID/net/dev: behind the colon eight numbers of what came, then of what was sent."""
    for line in table.splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            columns = numbers.split()
            return Sent(int(columns[8]), int(columns[9]))
    raise SystemExit(f"bench: there is no interface {interface} in the network of a node")


class Wire(two_nodes.Network):
    def __enter__(self):
        self.rate: str | None = None
        super().__enter__()
        return self

    def shape(self, rate: str | None):
        """Each way carries so much from now on, as tc writes it; None: as much as the machine can. The queue is of
        20 ms, and packets of 64 KiB pass whole."""
        if rate == self.rate:
            return
        change = ["del"] if rate is None else ["replace"]
        how = [] if rate is None else ["tbf", "rate", rate, "burst", "128kb", "latency", "20ms"]
        for node in range(2):
            command = [*self.on(node), "tc", "qdisc", *change, "dev", two_nodes.ENDS[node], "root", *how]
            try:
                done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SystemExit(f"bench: a link with a rate (tc, tbf) is needed: {error}") from None
            if done.returncode != 0:
                raise SystemExit(f"bench: a link with a rate (tc, tbf) is needed: {done.stderr.strip()}")
        self.rate = rate

    def sent(self) -> list[Sent]:
        """By each node: /proc has the counters of any process's network, where /sys has those of the mount's."""
        processes = ("self", str(self.other.pid))
        return [parse_sent(pathlib.Path(f"/proc/{process}/net/dev").read_text(), end)
                for process, end in zip(processes, two_nodes.ENDS)]

    def idle(self, seconds: float) -> list[float]:
        """Bytes a second that each node sends while nobody trains: the agents' signs of life."""
        before = self.sent()
        time.sleep(seconds)
        return [(after.bytes - first.bytes) / seconds for first, after in zip(before, self.sent())]


class PlainEnd:
    """On node 1, what plain.seconds() connects to."""

    def __init__(self, wire: Wire, port: int):
        self.wire, self.port = wire, port

    def __enter__(self):
        command = [*self.wire.on(1), sys.executable, "-B", plain.__file__, two_nodes.ADDRESSES[1], str(self.port)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=two_nodes.dies_with_this)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"bench: {' '.join(command)} does not listen")
        return self

    def seconds(self, count: int) -> float:
        return plain.seconds(two_nodes.ADDRESSES[1], self.port, count)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
