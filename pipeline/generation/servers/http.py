"""One HTTP exchange with one address, with limits on time and size.

It uses no proxy and follows no redirect, so no answer can cause a request to another host.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import math
import os
import socket
import time
from dataclasses import dataclass
from email.message import Message
from enum import StrEnum
from urllib.parse import urlsplit

from ...model.errors import ConfigError

_API_KEY = "BYTE_EXACT_API_KEY"
"""Environment variable whose value is sent to the address as a bearer token, if it is set."""

_MOST = 16 * 2**20
"""Largest answer that is read, in bytes."""
_CHUNK = 1 << 16


class Fault(StrEnum):
    """Why there is no complete answer."""

    UNREACHED = "unreached"
    """No connection."""
    CLOSED = "closed"
    """The connection broke off before the answer was complete, or did not carry HTTP."""
    TIMEOUT = "timeout"
    TOO_LONG = "too_long"


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    path: str = ""
    """Prefix of every path, without a slash at its end."""
    tls: bool = False

    @staticmethod
    def of(url: str) -> Address:
        """Parse a URL. Raises ConfigError if it is not a valid HTTP or HTTPS address."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = parts = None
        if parts is None or parts.scheme not in {"http", "https"} or not host:
            raise ConfigError(
                f"target.url={url} is not a valid address; use one like http://127.0.0.1:8080."
            )
        tls = parts.scheme == "https"
        return Address(host, port or (443 if tls else 80), parts.path.rstrip("/"), tls)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{self.path}"


@dataclass(frozen=True)
class Reply:
    """The reply, or the part of it that arrived."""

    status: int | None = None
    """None if there was no status line."""
    body: bytes = b""
    server: str = ""
    """The server's name in its reply."""
    retry_after: float | None = None
    """Seconds after which the server allows a retry."""
    fault: Fault | None = None
    said: str = ""
    """The system's message about a fault."""


def exchange(
    address: Address, method: str, path: str, body: bytes | None = None, *, timeout: float
) -> Reply:
    """Send one request; `timeout` is in seconds, for the whole exchange.

    Failures do not raise: `fault` and `said` of the reply describe them. Raises ConfigError for a
    key that cannot be sent.
    """
    until = time.monotonic() + timeout
    kind = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=timeout)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if key := _key():
        headers["Authorization"] = f"Bearer {key}"
    reached = False
    try:
        connection.connect()
        reached = True
        sock = connection.sock
        connection.request(method, address.path + path, body, headers)
        _wait(sock, until)
        response = connection.getresponse()
        data = _read(sock, response, until)
        return Reply(
            status=response.status,
            body=data,
            server=response.getheader("Server") or "",
            retry_after=_seconds(response.headers),
            fault=Fault.TOO_LONG if len(data) > _MOST else None,
        )
    except TimeoutError:
        return Reply(fault=Fault.TIMEOUT, said=f"no answer within {timeout:g} s")
    except (OSError, http.client.HTTPException) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return Reply(fault=Fault.CLOSED if reached else Fault.UNREACHED, said=said)
    finally:
        connection.close()


def _key() -> str:
    """The key without white space around it; empty if there is none.

    Raises ConfigError, without the key, if a header cannot carry it.
    """
    key = os.environ.get(_API_KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{_API_KEY} has a character that an HTTP header cannot carry.")
    return key


def _read(sock: socket.socket, response: http.client.HTTPResponse, until: float) -> bytes:
    """The body, or slightly more than `_MOST` bytes of it. Raises TimeoutError at `until`."""
    data = bytearray()
    while len(data) <= _MOST:
        _wait(sock, until)
        chunk = response.read1(_CHUNK)
        if not chunk:
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            break
        data += chunk
    return bytes(data)


def _wait(sock: socket.socket, until: float) -> None:
    """Limit the next read to the time that is left."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def _seconds(headers: Message) -> float | None:
    """The wait that the server asks for, in seconds; None if it asks for none.

    `retry-after-ms` in milliseconds, `Retry-After` in seconds or as a date (RFC 9110, 10.2.3).
    """
    ms, after = headers.get("retry-after-ms"), headers.get("Retry-After")
    for value, unit in ((ms, 0.001), (after, 1.0)):
        with contextlib.suppress(TypeError, ValueError):
            wait = float(value or "") * unit
            if math.isfinite(wait):
                return max(wait, 0.0)
    try:
        at = email.utils.parsedate_to_datetime(after or "")
    except (TypeError, ValueError):
        return None
    return max(at.timestamp() - time.time(), 0.0)
