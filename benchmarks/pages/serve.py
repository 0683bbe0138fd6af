"""The web process: `python -m benchmarks.pages.serve PORT`. One request at a time, over one connection to the database."""

from __future__ import annotations

import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

from django.core.wsgi import get_wsgi_application


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    with make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application(), handler_class=Quiet) as server:
        server.serve_forever()
