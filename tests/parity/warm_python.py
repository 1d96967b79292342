"""`python -m torch.distributed.run` without the two seconds of CPU that it imports torch for.

A server has imported it and forks for each start. Session, streams, folder, environment and arguments are set before
the module runs, as `python -m` runs it. /proc/PID/environ and cmdline stay the server's, and so does what torch reads
from the environment while it is imported: clean_environment() of launchers.py has none of that.
"""
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import warnings

MODULES = ("torch.distributed.run", "torch.distributed.launch")
PR_SET_PDEATHSIG = 1


class Server:
    """It ends with this process, whose end of the socket is then closed."""

    def __init__(self, environment: dict):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:  # no terminal is its stdout: Python buffers as it does before a file
            self.process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            pass_fds=[theirs.fileno()])

    def end(self):
        self.socket.close()
        self.process.wait()


class Process:
    """What the tests use of subprocess.Popen; a session of its own."""

    def __init__(self, server: Server, command: list[str], environment: dict, cwd, stdout):
        self.args, self.returncode, self.texts = command, None, None
        self.files = [tempfile.TemporaryFile() if stdout == subprocess.PIPE else None, tempfile.TemporaryFile()]
        self.status, reply = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"command": command[1:], "environment": environment, "cwd": str(cwd or os.getcwd())}
        with reply:
            socket.send_fds(server.socket, [json.dumps(request).encode()],
                            [(self.files[0] or stdout).fileno(), self.files[1].fileno(), reply.fileno()])
        self.pid = int(self.status.recv(100))

    def communicate(self, timeout: float | None = None) -> list[str | None]:
        if self.returncode is None:
            self.status.settimeout(timeout)
            try:
                self.returncode = int(self.status.recv(100))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            self.status.close()
            self.texts = [file and text_of(file) for file in self.files]
        return self.texts


def text_of(file) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="backslashreplace")


def next_start(requests: socket.socket) -> tuple[dict, list[int]]:
    """Returns in a new child, once for each start; the server itself stays in here and reports how the children end."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not requests:
                    pid, reply = key.data
                    os.write(reply, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    waiting.unregister(key.fileobj)
                    os.close(key.fileobj)
                    os.close(reply)
                    continue
                message, files, *_ = socket.recv_fds(requests, 1 << 20, 3, socket.MSG_CMSG_CLOEXEC)
                if not message:
                    sys.exit()
                server, pid = os.getpid(), os.fork()
                if pid == 0:
                    die_with(server)
                    return json.loads(message), files
                *streams, reply = files
                os.write(reply, b"%d" % pid)
                for stream in streams:
                    os.close(stream)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))


def die_with(parent: int):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def become(request: dict, files: list[int]):
    os.setsid()
    for stream, file in enumerate(files[:2], 1):
        os.dup2(file, stream)
    for file in files:
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    at = request["command"].index("-m")
    if request["command"][:at] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
    module, *arguments = request["command"][at + 1:]
    sys.path[0], sys.argv = request["cwd"], [module, *arguments]
    for name in MODULES:  # runpy warns of a module that is there before it runs
        del sys.modules[name]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # else a child that ends looks through all that was imported, and so copies it
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        start = next_start(connection)
    become(*start)
