"""`dspark explore`: the rule explorer's page, served to this machine alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dspark.compiled import Table
from dspark.output import flush, write
from dspark.verb import OK, Usage, add_rules_option, open_table

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

HOST = "127.0.0.1"
PORT = 8347

_DESCRIPTION = (
    "Serves one page that draws the decision graph, decides configs that are pasted or dropped on "
    "it, and lists the rules. It is made anew for each visit: reload it after an edit. A page to "
    "keep or to send is written by `dspark graph --html OUT`."
)


def add_explore(verbs: Any) -> None:
    """Adds the verb to the command line's verbs."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "explore", help="look at the rules in a browser", description=_DESCRIPTION
    )
    parser.add_argument(
        "--port", type=_port, default=PORT, metavar="N", help=f"default: {PORT}; 0 takes a free one"
    )
    add_old(parser)
    add_rules_option(parser)
    parser.set_defaults(run=_run)


def add_old(parser: argparse.ArgumentParser) -> None:
    """Adds the option for a second table to a verb that shows the explorer."""
    parser.add_argument(
        "--old", metavar="FILE", help="an older table: also show what is decided differently"
    )


def open_old(arguments: argparse.Namespace) -> Table | None:
    """The table that `--old` names, if it does."""
    return None if arguments.old is None else open_table(arguments.old)


def _run(arguments: argparse.Namespace) -> int:
    old = open_old(arguments)
    open_table(arguments.rules)  # an unreadable file is reported as every verb reports it
    try:
        serve(arguments.rules, old, arguments.port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Usage(f"cannot serve on port {arguments.port}: {reason}") from error
    return OK


def serve(rules: str | None, old: Table | None, port: int) -> None:
    """Serves the page of a rules file until Ctrl-C. Raises OSError if the port is not to be had."""
    with page_server(rules, old, port) as server:
        write([[f"http://{HOST}:{server.server_port}/  (Ctrl-C ends it)"]])
        flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def page_server(rules: str | None, old: Table | None, port: int) -> ThreadingHTTPServer:
    """A server of that page, which does not serve yet."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from dspark.explorer import explorer_page
    from dspark.reload import ReloadingTable

    # Whoever looks at a table may be about to find out why its tests fail.
    live = ReloadingTable(rules, tested=False)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            # Another site's name that leads here must not read the page in its visitor's browser.
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            if host not in (HOST, "localhost"):
                self.send_error(403, "open it as localhost")
                return
            if self.path.partition("?")[0] != "/":
                self.send_error(404, "the page is at /")
                return
            live.reload()
            problem = "" if live.problem is None else str(live.problem)
            body = explorer_page(live.table, old, problem).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing: one reader, one page."""

    return ThreadingHTTPServer((HOST, port), Page)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"`{text}` is not a port of 0 to 65535")
    return int(text)
