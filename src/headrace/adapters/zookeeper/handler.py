"""kazoo's threads and sockets: bounded, quiet, and with TLS as we check it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from headrace.adapters.zookeeper.tls import Tls, context_of, failure_of, words_of
from headrace.errors import ConfigError, UnavailableError

LOG = logging.getLogger("headrace.zookeeper")
CLOSE_S_MAX = 5.0


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """`has_ended`: the thread that keeps the connection. `failure`: why a server that took the last connection ended it before
    it was of use. `finals`: how many in a row ended for a reason that does not pass with time. `unreached`: servers that took
    none at the last try, and why."""

    has_ended = False

    def __init__(self, tls: Tls | None, connect_s_max: Callable[[], float]) -> None:
        super().__init__()
        self._tls, self._connect_s_max = tls, connect_s_max
        if tls is not None:
            context_of(tls)  # what is wrong with the files is said at once
        self._server, self._left = "", ""
        self.connection: socket.socket | None = None
        self.failure: ConfigError | UnavailableError | None = None
        self.finals = 0
        self.unreached: Mapping[str, str] = {}  # replaced, never changed: others read it

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A thread without a stack on the terminal where it ends."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:
                LOG.debug("the thread of the ZooKeeper client ended: %s", type(error).__name__)
            finally:
                self.has_ended = True

        return super().spawn(run)

    def create_connection(
        self, address: Any, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Bounded: kazoo would try a host without power for as long as the session lives. And kazoo's own TLS trusts what the
        machine trusts, too."""
        self._server = f"{hostname or address[0]}:{address[1]}"
        if self._left == self._server:
            self._left = ""
            raise OSError("it was left for another server")  # where there is none, it is tried again
        bound_s = self._connect_s_max() if timeout is None else min(timeout, self._connect_s_max())
        try:
            made = socket.create_connection(address, bound_s)
        except OSError as error:
            self.failure = None
            why = "it did not take the connection in time" if isinstance(error, TimeoutError) else words_of(error).lower()
            self.unreached = {**self.unreached, self._server: why}
            raise
        self.unreached = {server: why for server, why in self.unreached.items() if server != self._server}
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            made = self._secured(made, self._tls, hostname or address[0])
        self.connection, self._left = made, ""
        return made

    def _secured(self, made: socket.socket, tls: Tls, host: str) -> socket.socket:
        """The files are read for each connection: certificates are renewed while processes run."""
        try:
            return context_of(tls).wrap_socket(made, server_hostname=host)
        except ConfigError as error:
            self.failure, failed = error, "its files cannot be used"
        except (OSError, ValueError) as error:
            self.hear_of_failure(error)
            failed = type(error).__name__
        made.close()
        raise ConnectionAbortedError(failed)

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """What TLS has decrypted is not at the socket any more, where kazoo would wait for it."""
        pending = [one for one in rlist if getattr(one, "pending", int)() > 0]
        readable, *others = super().select(rlist, wlist, xlist, 0 if pending else timeout)
        return ([*readable, *(one for one in pending if one not in readable)], *others)

    def cut(self, connection: socket.socket | None) -> None:
        """End this one, if it is the present one still: kazoo connects to another server. It would keep one for hours that says
        nothing, as long as it has requests to send."""
        if connection is not None and connection is self.connection:
            self._left = self._server
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's: kazoo's thread may be reading

    def hear_of_failure(self, error: BaseException | None) -> None:
        """A connection ended with this before it was of use."""
        self.failure = failure_of(error, self._server, self._tls)
        self.finals = self.finals + 1 if isinstance(self.failure, ConfigError) else 0

    def hear_of_hosts(self, named: Iterable[tuple[str, int]], found: Collection[str]) -> None:
        """`found`: those that have an address, of the servers that are to be tried."""
        unknown = {f"{host}:{port}": "its name cannot be resolved" for host, port in named if host not in found}
        known = {server: why for server, why in self.unreached.items() if server.rpartition(":")[0] in found}
        self.unreached = known | unknown

    def hear_of_success(self) -> None:
        self.failure, self.finals = None, 0


def end(client: KazooClient) -> None:
    """End its session, in a thread: kazoo may wait for long for a server that does not answer."""

    def stop() -> None:
        with suppress(Exception):  # what it says matters no more
            client.stop()
        with suppress(Exception):
            client.close()

    thread = threading.Thread(target=stop, name="zookeeper-close", daemon=True)
    thread.start()
    thread.join(CLOSE_S_MAX)
