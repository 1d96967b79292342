"""Bytes both ways at once through one plain socket: what a link carries where nothing else is done.

  python3 plain.py ADDRESS PORT   listens there, says "ready", and answers one connection after the other

Who connects says in 8 bytes how many go each way, and gets one more when all of its own have come.
"""
import contextlib
import socket
import sys
import threading
import time

BLOCK = memoryview(bytes(1 << 20))
PATIENCE_SECONDS = 60  # for a peer that has gone silent


def send(connection: socket.socket, count: int):
    with contextlib.suppress(OSError):  # whoever receives on the same connection notices, too, and says so
        while count > 0:
            count -= connection.send(BLOCK[:min(count, len(BLOCK))])


def receive(connection: socket.socket, count: int):
    into = memoryview(bytearray(1 << 20))
    while count > 0:
        came = connection.recv_into(into[:min(count, len(into))])
        if came == 0:
            raise ConnectionError("the plain connection ended early")
        count -= came


def both_ways(connection: socket.socket, count: int):
    sender = threading.Thread(target=send, args=(connection, count))
    sender.start()
    receive(connection, count)
    sender.join()


def answer(connection: socket.socket):
    with connection:
        connection.settimeout(PATIENCE_SECONDS)
        header = connection.recv(8, socket.MSG_WAITALL)
        both_ways(connection, int.from_bytes(header, "big"))
        connection.sendall(b"x")


def seconds(address: str, port: int, count: int) -> float:
    """Until `count` bytes have gone to the process that listens there, and as many have come from it."""
    with socket.create_connection((address, port), PATIENCE_SECONDS) as connection:
        began = time.monotonic()
        connection.sendall(count.to_bytes(8, "big"))
        both_ways(connection, count)
        receive(connection, 1)
        return time.monotonic() - began


def main():
    address, port = sys.argv[1:]
    with socket.create_server((address, int(port))) as listener:
        print("ready", flush=True)
        while True:
            answer(listener.accept()[0])


if __name__ == "__main__":
    main()
