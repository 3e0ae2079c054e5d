"""`headrace ui`."""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from headrace.cli.output import say
from headrace.cli.targets import Target, about_an_application, whole_number
from headrace.errors import SetupError
from headrace.wiring.job_endpoint import LOOPBACK, names_of

EXAMPLES = """\
headrace ui flights.py
headrace ui flights.py --port 8900 --allow-changes
headrace ui --application flight-delays --system kafka://localhost:9092"""
PORT = 8088
_OBJECTS_PER_COLLECTION, _LOADED_S = 20_000, 10.0
HostOption = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Where to answer; another than loopback asks for a token.")
]
PortOption = Annotated[int, typer.Option("--port", parser=whole_number(0, 65_535), metavar="N", help="0: any that is free.")]
AllowChangesOption = Annotated[
    bool, typer.Option("--allow-changes", help="Let the page set startpoints and scales, each after a preview.")
]


@about_an_application
def ui(
    target: Target, host: HostOption = "127.0.0.1", port: PortOption = PORT, allow_changes: AllowChangesOption = False
) -> None:
    """Show an application in a browser: topology, tasks, rounds, history, startpoints, state. Until Ctrl-C.

    It reads the system, not the process of the job: it works while the job runs, here or on another host, and while it is
    stopped. It answers on this machine only; with another --host it prints a token, which each request must show.
    """
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 20)  # an answer of 1,000 tasks makes many objects, none in circles
    with pages(target, host, port, allow_changes):
        time.sleep(_LOADED_S)
        gc.freeze()  # what is loaded by now stays: no collection looks through it again
        while True:
            time.sleep(3_600)


@contextmanager
def pages(
    target: Target, host: str, port: int, allow_changes: bool, stop: Callable[[], None] | None = None
) -> Iterator[str]:
    """Answer while the context is open; gives the address."""
    try:
        from headrace.adapters.http.guard import Guard
        from headrace.adapters.http.operator_pages import operator_pages
        from headrace.adapters.http.server import HttpServer
    except ModuleNotFoundError as error:
        raise SetupError(f"headrace ui needs {error.name}", "pip install 'headrace[http]'") from None
    from headrace.cli.operator_view import OperatorView

    token = None if host in LOOPBACK else secrets.token_urlsafe(24)
    view = OperatorView(target, allow_changes=allow_changes, stop=stop)
    answered, end_events = operator_pages(view)
    server = HttpServer(Guard(answered, names_of(host), token), host, port, "headrace ui").start()
    view.keep_fresh()
    try:
        say(f"{target.application} is shown at {server.url}" + (f"/?token={token}" if token else ""))
        yield server.url
    finally:
        end_events()
        server.close()
        view.close()
