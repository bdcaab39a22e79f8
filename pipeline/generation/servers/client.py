"""Send many cases to a server: several at once, with retries, always with a time limit.

The log of a server does not say which of several concurrent requests caused an engine error, and a
crash fails all of them. So a case with an unclear answer is sent again alone, if the server was
started for the run and can be restarted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from ...model.errors import PipelineError
from ...model.verdicts import End
from ..request import Request
from ..settings import TargetSettings
from .answer import Answer, Interface, answer
from .http import Address, exchange
from .launch import Launched
from .provide import Provided

_AGAIN = (429, 500, 502, 503, 504)
"""Statuses after which a request is retried."""
_BACK_OFF = 0.25
"""Seconds before the first retry; each next retry waits twice as long."""
_LONGEST_WAIT = 10.0
"""Longest wait that a server may ask for, in seconds; beyond that a case is `busy`."""
_DENIED = (401, 403, 404)
"""Statuses that say nothing about a grammar: the key or the address is wrong."""
_ENOUGH = 8
"""Consecutive hanging requests, or restarts, after which no more requests are sent."""


class Remote:
    """Sends many cases to one server and collects the answers."""

    def __init__(
        self,
        server: Provided,
        interface: Interface,
        encode: Callable[[str], Sequence[int]],
        settings: TargetSettings,
        on_answer: Callable[[], None],
    ) -> None:
        """`encode` returns a prompt's ids; `on_answer` is called at each answer."""
        self._server = server
        self._interface = interface
        self._encode = encode
        self._settings = settings
        self._on_answer = on_answer
        self._hung = 0
        self._restarts = 0

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Answer]]:
        """Send all requests; yield each with its answer, in any order.

        A case with an unclear answer is sent again alone (see the module).
        """
        own = self._server.own
        if own is None:
            yield from self._send_together(requests)
            return
        if self._settings.slots == 1:
            yield from ((request, self._send_alone(own, request)) for request in requests)
            return
        since = own.log.end()
        first = list(self._send_together(requests))
        n_texts = sum(found.text is not None for _, found in first)
        noisy = bool(own.log.errors(since, n_texts))
        for request, found in first:
            unclear = noisy if found.text is not None else found.end in {End.CLOSED, End.TIMEOUT}
            if unclear:
                yield request, self._send_alone(own, request, found)
            else:
                yield request, replace(found, errors=None if found.text is None else ())

    def _send_together(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Answer]]:
        with ThreadPoolExecutor(self._settings.slots, thread_name_prefix="ask") as pool:
            asked = {pool.submit(self._send_unless_down, request): request for request in requests}
            for done in as_completed(asked):
                self._on_answer()
                yield asked[done], done.result()

    def _send_unless_down(self, request: Request) -> Answer:
        """Send a request, unless the server has hung too often or has ended."""
        if self._hung >= _ENOUGH:
            return Answer(End.TIMEOUT, said=f"not sent: the last {_ENOUGH} requests timed out")
        if self._server.own is not None and not self._server.own.alive:
            return Answer(End.CLOSED, said="not sent: the server had exited")
        found = self._send(request)
        self._hung = self._hung + 1 if found.end is End.TIMEOUT else 0
        return found

    def _send(self, request: Request) -> Answer:
        """Send one case, with retries."""
        prompt = self._encode(request.case.prompt)
        body = self._interface.body(request.case, prompt, request.max_tokens)
        data = json.dumps(body).encode()
        attempt = 0
        while True:
            reply = exchange(
                self._server.address,
                "POST",
                self._interface.path,
                data,
                timeout=self._settings.timeout,
            )
            found = answer(reply, self._interface)
            dead = self._server.own is not None and not self._server.own.alive
            again = found.end is End.CLOSED or found.status in _AGAIN
            if found.status in _DENIED:
                raise PipelineError(_denied(self._server.address, self._interface.path, found))
            if dead or not again or attempt == self._settings.retries:
                return found
            wait = reply.retry_after
            if wait is not None and wait > _LONGEST_WAIT:
                said = f"the server asks to wait {wait:.0f} s; {found.said}"
                return Answer(End.BUSY, found.status, said=said)
            time.sleep(_BACK_OFF * 2**attempt if wait is None else wait)
            attempt += 1

    def _send_alone(self, own: Launched, request: Request, first: Answer | None = None) -> Answer:
        """Send one case alone, to a healthy server; `first` is its answer among other requests."""
        self._on_answer()
        try:
            if not own.alive or self._hung:
                self._restart(own)
        except PipelineError as error:
            return Answer(End.CLOSED, said=str(error))
        since = own.log.end()
        found = self._send(request)
        self._hung = int(found.end is End.TIMEOUT)
        if found.text is None:
            if found.end is End.CLOSED and not own.alive:
                said = f"the server died. The end of its log: {own.log.last_words()}"
                return Answer(End.CRASHED, said=said)
            return found
        unlike = first is not None and first.text not in {None, found.text}
        return replace(found, errors=own.log.errors(since), unlike=unlike)

    def _restart(self, own: Launched) -> None:
        if self._restarts >= _ENOUGH:
            raise PipelineError(f"not sent: the server had died or hung {_ENOUGH} times")
        self._restarts += 1
        own.restart()


def _denied(address: Address, path: str, found: Answer) -> str:
    what = (
        f"target.url does not offer {path} there: correct target.url"
        if found.status == 404
        else "set BYTE_EXACT_API_KEY to a key that the server accepts"
    )
    return f"The server at {address} denied the request ({found.said}); {what}."
