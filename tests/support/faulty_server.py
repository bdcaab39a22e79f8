"""`python tests/faulty_server.py PORT FILE`: a server with a fault for each prompt.

It writes a line with its process id and port to FILE. It has OpenAI's chat API and simulates faults
that no real server shows on demand. The prompt is the name of the fault. Other prompts get a
correct answer if their schema consists of `const`s.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RIGHT = '{"k":"right"}'
CANARY = "FAULTY_SERVER_CANARY"
"""Environment variable with the address to which it redirects."""

TEXTS: dict[str, tuple[str | None, str]] = {
    "wrong": ('{"k":"wrong"}', "stop"),
    "lost": ("free text", "length"),
    "cut": ('{"k":"ri', "length"),
    "number_at_the_limit": ("123", "length"),
    "empty": ("", "stop"),
    "nothing": (None, "stop"),
    "half_a_character": ("\ud800", "stop"),
    "other_end": (RIGHT, "content_filter"),
    "eos": (RIGHT, "eos"),
    "eos_token": (RIGHT, "eos_token"),
    "upper_case": (RIGHT, "STOP"),
    "end_turn": (RIGHT, "end_turn"),
    "no_reason": (RIGHT, ""),
    "max_tokens": ('{"k":"ri', "max_tokens"),
}
"""Prompt → (text of the answer, `finish_reason`)."""

asked: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(200, b'{"data":[{"id":"faulty"}]}')

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt: str = body["messages"][0]["content"]
        asked[prompt] += 1
        fault = getattr(self, f"fault_{prompt}", None)
        if fault is not None:
            fault()
        elif prompt in TEXTS:
            if prompt == "lost":
                print("llg error: no such token", file=sys.stderr, flush=True)
            self._answer(*TEXTS[prompt])
        else:
            self._enforce(body["response_format"]["json_schema"]["schema"])

    def fault_die(self) -> None:
        os._exit(3)

    def fault_hang(self) -> None:
        time.sleep(60)

    def fault_trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        for _ in range(600):
            self.wfile.write(b" ")
            time.sleep(0.1)

    def fault_close(self) -> None:
        self.close_connection = True

    def fault_break_off(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"choices"')
        self.close_connection = True

    def fault_no_http(self) -> None:
        self.wfile.write(b"\x00\xff nothing like HTTP\r\n\r\n")
        self.close_connection = True

    def fault_refuse(self) -> None:
        self._send(400, b'{"error":{"code":400,"message":"cannot do this"}}')

    def fault_fail(self) -> None:
        self._send(500, b"<h1>broken</h1>")

    def fault_busy_once(self) -> None:
        if asked["busy_once"] == 1:
            self._send(503, b"{}", {"Retry-After": "0"})
        else:
            self._answer(RIGHT, "stop")

    def fault_not_json(self) -> None:
        self._send(200, b"<html>hello</html>")

    def fault_other_json(self) -> None:
        self._send(200, b'{"choices":[]}')

    def fault_deep(self) -> None:
        self._send(200, b"[" * 200_000)

    def fault_endless(self) -> None:
        self._send(200, b" " * (17 * 2**20))

    def fault_redirect(self) -> None:
        self._send(302, b"", {"Location": os.environ[CANARY]})

    def fault_parts(self) -> None:
        thinking = {"type": "thinking", "thinking": "let me see"}
        texts = [{"type": "text", "text": part} for part in (RIGHT[:3], RIGHT[3:])]
        self._answer([thinking, *texts], None)

    def fault_declines(self) -> None:
        self._answer(None, "stop", refusal="I cannot help with that")

    def fault_tool(self) -> None:
        call = {"type": "function", "function": {"name": "f", "arguments": RIGHT}}
        self._answer(None, "tool_calls", tool_calls=[call])

    def fault_infinite_usage(self) -> None:
        self._answer(RIGHT, "stop", usage='{"completion_tokens": 1e999}')

    def fault_huge_usage(self) -> None:
        self._answer(RIGHT, "stop", usage='{"completion_tokens": 1' + "0" * 400 + "}")

    def fault_surrogate_in_the_message(self) -> None:
        self._send(400, b'{"error":{"message":"half \\ud800"}}')

    def fault_busy_for_an_hour(self) -> None:
        self._send(429, b'{"error":{"message":"slow down"}}', {"Retry-After": "3600"})

    def fault_busy_in_ms(self) -> None:
        if asked["busy_in_ms"] == 1:
            self._send(429, b"{}", {"retry-after-ms": "20"})
        else:
            self._answer(RIGHT, "stop")

    def fault_busy_until_a_date(self) -> None:
        if asked["busy_until_a_date"] == 1:
            self._send(503, b"{}", {"Retry-After": formatdate(time.time() - 5, usegmt=True)})
        else:
            self._answer(RIGHT, "stop")

    def fault_busy_for_ever(self) -> None:
        self._send(429, b'{"error":{"message":"slow down"}}', {"Retry-After": "0.01"})

    def fault_denied(self) -> None:
        self._send(401, b'{"error":{"message":"no such key"}}')

    def fault_reasoning(self) -> None:
        self._answer("", "stop", reasoning_content=RIGHT)

    def _enforce(self, schema: dict[str, Any]) -> None:
        """Answer like a correct server: with an object of constants, or a refusal."""
        if not all("const" in part for part in schema.get("properties", {"": {}}).values()):
            self.fault_refuse()
            return
        value = {name: part["const"] for name, part in schema["properties"].items()}
        self._answer(json.dumps(value, separators=(",", ":")), "stop")

    def _answer(
        self, text: object, reason: str | None, *, usage: str = "null", **beside: object
    ) -> None:
        """`usage` is JSON, which may have numbers that Python does not write."""
        message = {"role": "assistant", "content": text, **beside}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self._send(200, f'{{"choices": {json.dumps([choice])}, "usage": {usage}}}'.encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        file.write(f"{os.getpid()} {sys.argv[1]}\n")
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
