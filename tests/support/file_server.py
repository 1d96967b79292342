#!/usr/bin/env python3
"""Serves FOLDER on 127.0.0.1, well and badly: GET /HOW/NAME. Usage: file_server.py FOLDER

Prints its port, then a line for each request: "HOW NAME RANGE". HOW:
  plain     as it should be, ranges too      no-range  all of it, whatever range is asked for
  drop      the connection is closed in the middle when the request is for the beginning
  halve     the connection is closed in the middle of every answer
  stall     as drop, but the connection is left open       silent    nothing comes at all
  slow      16 KiB every 5 ms                     longer    one byte too many
  redirect  to plain                              circle    to itself, for ever
  shifted   a range is answered with one that begins a byte later
  page      200 and a page of HTML, whatever is asked for
  chunked   as no-range, without saying how much
"""
import http.server
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
FOR_EVER = 60  # seconds; no test waits that long
spoken = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        how, name = self.path.strip("/").split("/", 1)
        asked = self.headers.get("Range", "-").removeprefix("bytes=")
        with spoken:
            print(how, name, asked, flush=True)
        self.close_connection = True
        if how in ("redirect", "circle"):
            return self.redirect("/plain/" + name if how == "redirect" else self.path)
        if how == "silent":
            return time.sleep(FOR_EVER)
        if how == "page":
            return self.answer("no-range", b"<html>Please log in</html>", 0)
        file = FOLDER / name
        if not file.is_file():
            return self.send_error(404)
        self.answer(how, file.read_bytes() + b"x" * (how == "longer"), 0 if asked == "-" else int(asked.rstrip("-")))

    def redirect(self, place):
        self.send_response(302)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, how, content, start):
        ranged = start > 0 and how not in ("no-range", "chunked")
        if ranged and start >= len(content):
            return self.send_error(416)
        rest = content[start:] if ranged else content
        self.send_response(206 if ranged else 200)
        if ranged:
            shift = how == "shifted"
            self.send_header("Content-Range", f"bytes {start + shift}-{len(content) - 1}/{len(content)}")
        if how != "chunked":  # then the end of the connection is the end
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.send(how, rest, start)

    def send(self, how, rest, start):
        if how == "slow":
            for at in range(0, len(rest), 16384):
                self.wfile.write(rest[at:at + 16384])
                time.sleep(0.005)
        elif how == "halve" or (how in ("drop", "stall") and start == 0):
            self.wfile.write(rest[:len(rest) // 2])
            self.wfile.flush()
            if how == "stall":
                time.sleep(FOR_EVER)
        else:
            self.wfile.write(rest)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):  # a client that goes away is no news
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
