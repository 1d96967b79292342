"""Jobs that take turns: processes that stay alive and train only when it is their turn.

A job's ranks read commands from the named pipe to.RANK of the job's folder and answer on from.RANK, a line of JSON each.
While it is not their turn they sleep in read().
"""
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable

DEADLINE_SECONDS = 900  # for an answer; torch.compile of a deep net takes longest


def in_order(everyone: list, number: int) -> list:
    """Who has a turn when, in round `number`: each begins once before anybody begins again."""
    first = number % len(everyone)
    return everyone[first:] + everyone[:first]


def take_turns(contenders: dict[str, Callable], rounds: int, warm_up: bool = True) -> dict[str, list]:
    """What each call returned in each round, after one round for everybody to warm up the caches."""
    found = {name: [] for name in contenders}
    for number in range(-warm_up, rounds):
        for name in in_order(list(contenders), number):
            value = contenders[name]()
            if number >= 0:
                found[name].append(value)
    return found


class Job:
    """`command` with {turns} for the folder of the pipes."""

    def __init__(self, command: list[str], environment: dict[str, str], ranks: int = 2):
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-turns-")
        self.log = open(pathlib.Path(self.folder.name) / "log", "w+")
        self.to, self.answers = [], []
        for rank in range(ranks):
            for way, pipes in (("to", self.to), ("from", self.answers)):
                path = f"{self.folder.name}/{way}.{rank}"
                os.mkfifo(path)
                pipes.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))  # both ends: opening does not wait for the job
        self.unread = [b""] * ranks
        self.command = [word.format(turns=self.folder.name) for word in command]
        self.process = subprocess.Popen(self.command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)

    def tell(self, command: dict):
        for pipe in self.to:
            os.write(pipe, (json.dumps(command) + "\n").encode())

    def ask(self, command: dict) -> list[dict]:
        """Every rank's answer."""
        self.tell(command)
        return [self._answer(rank) for rank in range(len(self.to))]

    def _answer(self, rank: int) -> dict:
        until = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self.unread[rank]:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"bench: no answer from {' '.join(self.command)}\n{self._last_words()}")
            if select.select([self.answers[rank]], [], [], 1)[0]:
                self.unread[rank] += os.read(self.answers[rank], 1 << 16)
        line, self.unread[rank] = self.unread[rank].split(b"\n", 1)
        return json.loads(line)

    def _last_words(self) -> str:
        self.log.seek(0)
        return self.log.read()[-4000:]

    def end(self):
        self.tell({"end": True})
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)  # launchers end their workers
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for pipe in self.to + self.answers:
            os.close(pipe)
        self.log.close()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def step_times(answers: list[dict], cold: int = 1) -> list[float]:
    """Seconds of each step of the job: from the end of the step before, on the last rank, to its own end on the last
    rank. The first `cold` steps bring caches back and do not count. The monotonic clock is one for all processes."""
    ends = [max(times) for times in zip(*(answer["times"] for answer in answers))]
    return [after - before for before, after in zip(ends[cold:], ends[cold + 1:])]
