"""A server of one private repository over HTTP, with git's own program for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.actions.job_run import environment


def _programs() -> str | None:
    """Where git keeps what it is made of."""
    git = shutil.which("git")
    return git and subprocess.run([git, "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()


BACKEND = Path(shutil.which("git-http-backend", path=_programs()) or "git-http-backend")


@contextmanager
def private_server(root: Path, authorization: str) -> Iterator[str]:
    """Serve the repositories below a directory to whoever sends a header; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != authorization:
                self.send_error(401)
                return
            path, _, query = self.path.partition("?")
            variables = environment(
                GIT_PROJECT_ROOT=os.fspath(root),
                GIT_HTTP_EXPORT_ALL="1",
                GIT_PROTOCOL=self.headers.get("Git-Protocol", ""),
                REQUEST_METHOD=self.command,
                PATH_INFO=path,
                QUERY_STRING=query,
                CONTENT_TYPE=self.headers.get("Content-Type", ""),
                HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
            )
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run([BACKEND], input=body, env=variables, capture_output=True, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
            self.send_response(int(dict(fields).get("Status", "200").split()[0]))
            for name, value in fields:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
