"""A model hub on 127.0.0.1, with the requests that huggingface_hub makes to download one file."""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serve_hub(files: dict[str, Path], asked: list[str] | None = None) -> Generator[str, None, None]:
    """Serve `{"owner/name/file": path}` at every revision; gives the URL for HF_ENDPOINT.

    Every request, its method and path, is added to `asked`.

    Files are read anew at each request, so a test may change them; ETag and commit follow.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            if asked is not None:
                asked.append(f"{self.command} {self.path}")
            repo, _, rest = self.path.lstrip("/").partition("/resolve/")
            path = files.get(f"{repo}/{rest.partition('/')[2]}")
            content = path.read_bytes() if path else b"Entry not found"
            digest = hashlib.sha256(content).hexdigest()
            self.send_response(200 if path else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", digest[:40])
            if path:
                self.send_header("ETag", f'"{digest}"')
                self.send_header("Accept-Ranges", "bytes")
            else:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if with_body:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
