"""Two nodes on this machine, networks of their own with a wire between them, and jobs on both."""
import contextlib
import ctypes
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

ADDRESSES = ("10.77.0.1", "10.77.0.2")
ENDS = ("va", "vb")  # of the wire
NOBODY = "02:00:00:00:00:99"  # a hardware address that no card has
INSIDE = "NODES_BENCH_INSIDE"  # in the environment of a driver that has a network of its own
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Failed(Exception):
    """Why a turn has no figure."""


def enter_own_network():
    """Starts this program again in a network of its own, where it is root, unless it is there already."""
    if os.environ.pop(INSIDE, None):
        os.environ["PATH"] += ":/usr/sbin:/sbin"  # of ip
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what lost its parent is found, and ended
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    try:
        tried = subprocess.run([*alone, "true"], check=False, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        raise SystemExit("bench: network namespaces are needed, and there is no unshare") from None
    if tried.returncode != 0:
        raise SystemExit(f"bench: network namespaces are needed: {tried.stderr.strip()}")
    sys.stdout.flush()
    os.execvpe(alone[0], [*alone, sys.executable, "-B", *sys.argv], {**os.environ, INSIDE: "1"})


def dies_with_this():
    """Before a child's exec: it is told to end when this process is gone."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def descendants(process: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in pathlib.Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def kill_all(processes: list[int]):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def has_variable(process: int, variable: str) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return variable.encode() in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return False


class Network:
    """Node 0 is in this process's network, node 1 in another."""

    def __enter__(self):
        self.other = subprocess.Popen(["unshare", "--net", "sleep", "3600"], preexec_fn=dies_with_this)
        until = time.monotonic() + 10
        while not self.is_apart():
            if self.other.poll() is not None or time.monotonic() > until:
                raise SystemExit("bench: network namespaces are needed: there is no second one")
            time.sleep(0.01)
        try:
            self.connect()
        except Failed as failed:
            raise SystemExit(f"bench: network namespaces are needed: {failed}") from None
        return self

    def is_apart(self) -> bool:
        """Whether the second network is there; False of a process that has ended, too."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            return os.readlink(f"/proc/{self.other.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        return False

    def connect(self):
        for node in range(2):
            self.run(node, "link", "set", "lo", "up")
        self.run(0, "link", "add", ENDS[0], "type", "veth", "peer", "name", ENDS[1], "netns", str(self.other.pid))
        for node in range(2):
            self.run(node, "addr", "add", f"{ADDRESSES[node]}/24", "dev", ENDS[node])
            self.run(node, "link", "set", ENDS[node], "up")
        # The kernel looks at links once a second; until then UCX takes an end for one that is down.
        until = time.monotonic() + 10
        while not all("state UP" in self.run(node, "link", "show", "dev", ENDS[node]) for node in range(2)):
            if time.monotonic() > until:
                raise Failed("the wire between them does not come up")
            time.sleep(0.01)

    def __exit__(self, *_):
        self.clear()
        self.other.kill()
        self.other.wait()

    def on(self, node: int) -> list[str]:
        """What stands before a command of this node."""
        return ["nsenter", "--target", str(self.other.pid), "--net"] if node == 1 else []

    def run(self, node: int, *words: str) -> str:
        try:
            done = subprocess.run([*self.on(node), "ip", *words], check=False, capture_output=True, text=True, timeout=20)
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            raise Failed(str(error)) from None
        if done.returncode != 0:
            raise Failed(f"ip {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def cut(self):
        """What either node sends is lost on the way; nothing is closed."""
        for node in range(2):
            self.run(node, "neigh", "replace", ADDRESSES[1 - node], "lladdr", NOBODY, "nud", "permanent", "dev",
                     ENDS[node])

    def mend(self):
        for node in range(2):
            with contextlib.suppress(Failed):  # of a wire that was not cut
                self.run(node, "neigh", "del", ADDRESSES[1 - node], "dev", ENDS[node])

    def clear(self):
        """Ends all that was started, and what that has started, but the second network."""
        until = time.monotonic() + 20
        while left := [process for process in descendants(os.getpid()) if process != self.other.pid]:
            kill_all(left)
            for process in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
            if time.monotonic() > until:
                print(f"bench: processes that do not end: {left}", file=sys.stderr)
                return
            time.sleep(0.01)


class Job:
    """Processes on both nodes, each (node, command, variables), and the lines that come out of them."""

    def __init__(self, network: Network, starts: list[tuple[int, list[str], dict[str, str]]], until: float):
        self.network, self.until = network, until
        self.unread, self.read_at, self.said = b"", 0.0, []
        self.pipe, theirs = os.pipe()
        self.began = time.monotonic()
        self.processes = [
            subprocess.Popen([*network.on(node), *command], env=variables, stdin=subprocess.DEVNULL, stdout=theirs,
                             stderr=theirs, start_new_session=True, preexec_fn=dies_with_this)
            for node, command, variables in starts]
        os.close(theirs)

    def find(self, pattern: str, seconds: float) -> tuple[float, re.Match]:
        """The next line in which this is, and when it came; the lines before are over."""
        until = min(self.until, time.monotonic() + seconds)
        while True:
            while b"\n" in self.unread:
                line, self.unread = self.unread.split(b"\n", 1)
                self.said.append(line.decode(errors="replace"))
                if found := re.search(pattern, self.said[-1]):
                    return self.read_at, found
            if not select.select([self.pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                raise self.failed(f"no line with '{pattern}' in time")
            read = os.read(self.pipe, 1 << 16)
            self.read_at = time.monotonic()
            if not read:
                raise self.failed(f"all have ended without a line with '{pattern}'")
            self.unread += read
            if self.read_at > until:  # whoever talks on and on
                raise self.failed(f"no line with '{pattern}' in time")

    def failed(self, why: str) -> Failed:
        words = "\n".join(self.said[-30:])
        print(f"bench: {why}; exit codes {[process.poll() for process in self.processes]}\n{words}", file=sys.stderr)
        return Failed(f"{why}; last words: {self.said[-1] if self.said else 'none'}")

    def kill_node(self, node: int) -> float:
        """All of the node's processes at once, whose connections close so; when."""
        agent = self.processes[node].pid
        doomed = [agent, *descendants(agent)]
        when = time.monotonic()
        kill_all(doomed)
        return when

    def kill_worker(self, node: int, local_rank: int) -> float:
        doomed = [process for process in descendants(self.processes[node].pid)
                  if has_variable(process, f"LOCAL_RANK={local_rank}")]
        if not doomed:
            raise self.failed(f"no worker of local rank {local_rank} on node {node}")
        when = time.monotonic()
        kill_all(doomed)
        return when

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Launchers get time to end their workers."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + 3
        while any(process.poll() is None for process in self.processes) and time.monotonic() < until:
            if select.select([self.pipe], [], [], 0.05)[0] and not os.read(self.pipe, 1 << 16):
                time.sleep(0.02)  # nobody writes any more
        self.network.clear()
        os.close(self.pipe)
