"""The tree of `headrace.coordination` on a ZooKeeper server, through kazoo.

kazoo keeps the session, and takes another one when it has ended. What it reports of the connection is a hint here: it reports
no loss while it reaches no server, and may be connected with another session before a caller has heard of the loss. Nothing of
its own errors and log lines reaches a user: they may hold credentials.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Permissions

from headrace.adapters.zookeeper.connection import Connection
from headrace.adapters.zookeeper.handler import LOG, Handler, end
from headrace.coordination import (
    COMMIT_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    Reason,
    TreeConflictError,
    TreeNode,
    Write,
    commit_bytes,
)
from headrace.errors import DEFECT, ConfigError, NotSupportedError, StorageError, UnavailableError

HANDSHAKES_MAX = 5  # closed by the server, one after the other
ANSWER_SHARE = 1 / 4  # of the session's time: an answer that never comes leaves time to ask another server
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}
_REASONS: dict[type[Exception], Reason] = {
    exceptions.NodeExistsError: "exists",
    exceptions.NoNodeError: "missing",
    exceptions.BadVersionError: "version",
    exceptions.NotEmptyError: "children",
}
_DENIED = (exceptions.NoAuthError, exceptions.InvalidACLError, exceptions.SessionClosedRequireSaslError)
_NOT_DONE = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
_LOST = (  # no answer, or none that says whether it was done
    exceptions.ConnectionLoss, exceptions.SessionExpiredError, exceptions.ConnectionClosedError, exceptions.ConnectionDropped,
    exceptions.OperationTimeoutError, exceptions.RequestTimeoutError, exceptions.SessionMovedError, exceptions.ThrottledOpError,
    exceptions.AuthFailedError, KazooTimeoutError,
)  # fmt: skip
_SILENT = logging.getLogger("headrace.zookeeper.client")  # kazoo would log credentials, and stacks of lost connections
_SILENT.disabled = True


class KazooTree:
    """See `headrace.coordination.Tree`."""

    def __init__(self, connection: Connection) -> None:
        self.name = f"ZooKeeper at {connection.servers}"
        self._connection = connection
        self._timeout_s = connection.session_timeout_s
        self._session: int | None = None
        self._closed = self._was_open = False
        self._lock = threading.Lock()
        self._connected = threading.Condition()
        self._changed = threading.Event()
        self._on_watch = self._hear  # one object: kazoo keeps it once per node, however often it is given
        self._connect()

    @property
    def session_id(self) -> int | None:
        return self._session

    @property
    def session_timeout_s(self) -> float:
        return self._timeout_s

    @property
    def _answer_s(self) -> float:
        return self._timeout_s * ANSWER_SHARE

    def open(self) -> None:
        """Connect. `UnavailableError` if no server answers, `ConfigError` if the credentials are refused, or a certificate."""
        bound_s, root = self._connection.connect_timeout_s, self._connection.root
        try:
            self._answer(lambda client: client.exists_async(root), bound_s, path=root)
        except UnavailableError as error:
            if isinstance(error.__cause__, exceptions.AuthFailedError):
                raise ConfigError(
                    f"{self.name} refuses the credentials",
                    "check zookeeper.sasl.mechanism, .username and .password, and that the server has this user",
                ) from None
            raise
        self._was_open = True
        if not self._connection.is_protected:
            LOG.warning(
                "%s: nodes can be read and written by anyone who reaches it; to protect them set zookeeper.digest.username and "
                "zookeeper.digest.password, or zookeeper.sasl.*",
                self.name,
            )

    def read(self, path: str, *, watch: bool = False) -> TreeNode | None:
        return self.read_all([path], watch=watch)[0]

    def read_all(self, paths: Sequence[str], *, watch: bool = False) -> tuple[TreeNode | None, ...]:
        on_watch = self._on_watch if watch else None

        def requested(client: KazooClient) -> _Fresh:
            return _Fresh(client, (client.get_async(path, watch=on_watch) for path in paths))

        found = self._answer(requested, self._connection.operation_timeout_s, path=paths[0]) if paths else ()
        return tuple(
            None if one is None else TreeNode(one[0], one[1].version, one[1].ephemeralOwner, one[1].czxid) for one in found
        )

    def children(self, path: str, *, watch: bool = False) -> tuple[str, ...]:
        on_watch = self._on_watch if watch else None

        def requested(client: KazooClient) -> _Fresh:
            return _Fresh(client, (client.get_children_async(path, watch=on_watch) for _ in range(1)))

        (found,) = self._answer(requested, self._connection.operation_timeout_s, path=path)
        return tuple(sorted(found or ()))

    def commit(self, operations: Sequence[Operation], session_id: int | None = None) -> tuple[str, ...]:
        size = commit_bytes(operations)
        if size > COMMIT_BYTES_MAX:
            raise NotSupportedError(
                f"{self.name}: {size:,} bytes at once, for {operations[0].path}: it takes {COMMIT_BYTES_MAX:,} at most",
                DEFECT,
            )
        first = operations[0].path

        def requested(client: KazooClient) -> Any:
            if session_id is not None and session_id != self._session:
                raise TreeConflictError(first, "session")
            transaction = client.transaction()
            for operation in operations:
                _add(transaction, operation)
            return transaction.commit_async()

        results = self._answer(requested, self._connection.operation_timeout_s, path=first, is_commit=True)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _NOT_DONE):
                if type(result) in _REASONS:
                    raise TreeConflictError(operation.path, _REASONS[type(result)])
                raise self._error_of(result, operation.path)
        made = zip(operations, results, strict=True)
        return tuple(result for operation, result in made if isinstance(operation, Create))

    def wait_for_change(self, timeout_s: float) -> bool:
        found = self._changed.wait(timeout_s)
        self._changed.clear()
        return found

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._session = None
        end(self._client)

    def refuse_open_nodes(self, paths: Sequence[str]) -> None:
        """`ConfigError` for one that is there and may be changed by anyone, though credentials are given: another process could
        take part in the group without them."""
        if not self._connection.is_protected:
            return

        def requested(client: KazooClient) -> _Fresh:
            return _Fresh(client, (client.get_acls_async(path) for path in paths))

        for path, found in zip(
            paths, self._answer(requested, self._connection.operation_timeout_s, path=paths[0]), strict=True
        ):
            acls = found[0] if found else ()
            if any(one.id == OPEN_ACL_UNSAFE[0].id and one.perms & ~Permissions.READ for one in acls):
                raise ConfigError(
                    f"{self.name}: {path} can be changed by anyone; it was made without credentials, and now some are given",
                    "stop all processors of the group and delete the node (its truth is in Kafka), or set its ACL",
                )

    # --- the client ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Have a new client, which connects in the background from now on."""
        given = self._connection
        client = KazooClient(
            hosts=given.servers,
            timeout=given.session_timeout_s,
            handler=Handler(given.tls, lambda: self._answer_s),
            default_acl=CREATOR_ALL_ACL if given.is_protected else OPEN_ACL_UNSAFE,
            auth_data=[("digest", given.digest)] if given.digest is not None else None,
            sasl_options=dict(given.sasl) if given.sasl is not None else None,
            connection_retry=dict(_RECONNECT),
            logger=_SILENT,
        )
        self._watch_handshakes(client)
        client.add_listener(lambda state: self._hear_of_connection(client, state))
        self._client = client  # before it connects: of others nothing is heard
        client.start_async()

    def _watch_handshakes(self, client: KazooClient) -> None:
        """Learn the timeout that is granted, which kazoo keeps to itself. And a server that has come back empty closes each
        connection of who has seen more than it has, for ever: after some of these be one who has seen nothing. And one that
        has just started may take a connection and never answer it; kazoo would wait until the session has ended."""
        handshake, refused, handler = client._connection._invoke, 0, client.handler

        def invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
            nonlocal refused
            timeout = min(timeout, self._answer_s)
            if not isinstance(request, Connect):
                return handshake(timeout, request, xid)
            refused += 1
            try:
                answer = handshake(timeout, request, xid)
            except exceptions.ConnectionDropped as error:
                handler.hear_of_failure(error.__context__)
                raise
            refused = 0
            handler.hear_of_success()
            if answer[0].time_out > 0:
                self._timeout_s = answer[0].time_out / 1000
            return answer

        connect, expand = client._connection._connect, client._connection._expand_client_hosts

        def expand_and_tell() -> Any:
            found = expand()
            handler.hear_of_hosts(client.hosts, {host for host, *_ in found})
            return found

        def connect_as_new(*server: Any) -> Any:
            if refused >= HANDSHAKES_MAX:
                client.last_zxid = 0
            return connect(*server)

        client._connection._invoke, client._connection._connect = invoke, connect_as_new
        client._connection._expand_client_hosts = expand_and_tell

    def _hear(self, _event: Any) -> None:
        self._changed.set()

    def _hear_of_connection(self, client: KazooClient, state: str) -> None:
        """From kazoo's thread. SUSPENDED says nothing of the session."""
        if client is not self._client or self._closed:
            return
        with self._connected:
            if state == KazooState.CONNECTED and client.client_id is not None:
                self._session = client.client_id[0]
            elif state == KazooState.LOST:
                self._session = None
            self._connected.notify_all()
        self._changed.set()

    def _connected_client(self, end_s: float) -> KazooClient:
        """Only who is connected is given requests: kazoo would keep them, and send them when they are long outdated."""
        with self._lock:
            if self._closed:
                raise UnavailableError(
                    f"{self.name}: the connection was closed by this process",
                    "the processor is stopping: nothing is to be done",
                )
            if self._client.handler.has_ended:  # kazoo has given up
                former = self._client
                self._connect()
                end(former)
            client = self._client
        with self._connected:
            while not (client.connected and self._session is not None):
                left_s = end_s - time.monotonic()
                if left_s <= 0 or self._closed:
                    raise KazooTimeoutError
                if client.handler.has_ended:  # it tries for ever, but where the login has failed
                    raise exceptions.AuthFailedError
                self._refuse_at_start(client.handler)
                self._connected.wait(min(left_s, 0.1))
        return client

    def _refuse_at_start(self, handler: Handler) -> None:
        """Where TLS has failed with as many servers as there are, for a reason that stays. One that was open waits."""
        servers = self._connection.servers.count(",") + 1
        if not self._was_open and handler.finals >= servers and (failure := handler.failure) is not None:
            raise failure

    def _answer(
        self, requested: Callable[[KazooClient], Any], bound_s: float, *, path: str = "", is_commit: bool = False
    ) -> Any:
        """What the server answers, within the bound. Requests that were cut off are made again, but for commits: these may have
        been done."""
        end_s = time.monotonic() + bound_s
        while True:
            try:
                return self._asked(requested, end_s, bound_s if is_commit else self._answer_s)
            except _LOST as error:
                has_ended = isinstance(error, exceptions.AuthFailedError)
                if is_commit or has_ended or time.monotonic() >= end_s or self._closed:
                    raise self._unavailable(bound_s, has_ended) from error
                time.sleep(0.02)
            except exceptions.KazooException as error:
                raise self._error_of(error, path) from None

    def _asked(self, requested: Callable[[KazooClient], Any], end_s: float, patience_s: float) -> Any:
        """A server that is connected and says nothing for `patience_s` is left for another one."""
        client = self._connected_client(end_s)
        connection = client.handler.connection
        try:
            return requested(client).get(timeout=max(0.01, min(end_s - time.monotonic(), patience_s)))
        except KazooTimeoutError:
            client.handler.cut(connection)
            raise

    def _unavailable(self, bound_s: float, has_ended: bool) -> UnavailableError:
        usual = "check that it runs, that its address and port are right, and the network between"
        if has_ended:
            return UnavailableError(f"{self.name} ended the connection at the login", usual)
        failure = self._client.handler.failure
        if failure is None:
            why = "; ".join(f"{server}: {cause}" for server, cause in sorted(self._client.handler.unreached.items()))
            return UnavailableError(f"{self.name} gave no answer within {bound_s:g} s{why and f' ({why})'}", usual)
        return UnavailableError(f"{self.name} gave no answer within {bound_s:g} s: {failure.message}", failure.hint)

    def _error_of(self, error: Exception, path: str) -> Exception:
        if isinstance(error, _DENIED):
            is_protected = self._connection.is_protected
            who = "the user of zookeeper.digest.* or zookeeper.sasl.*" if is_protected else "anyone without a user"
            return ConfigError(
                f"{self.name}: {path} may not be read or written by {who}",
                "set the credentials of the user who made it, or choose another ROOT",
            )
        return StorageError(
            f"{self.name}: {path}: {type(error).__name__.removesuffix('Error')}", "look at the log of the ZooKeeper server"
        )


class _Fresh:
    """The answers to several requests; None for a node that is not there. A server may be behind the others, and not know it:
    it first syncs with the one that leads, and answers no request of this client before."""

    def __init__(self, client: KazooClient, requests: Iterable[Any]) -> None:
        """`requests` are sent as they are taken: behind the first."""
        self._sync = client.sync_async("/")
        self._requests = list(requests)

    def get(self, timeout: float) -> list[Any]:
        end_s = time.monotonic() + timeout
        self._sync.get(timeout=timeout)
        found = []
        for request in self._requests:
            try:
                found.append(request.get(timeout=max(0.0, end_s - time.monotonic())))
            except exceptions.NoNodeError:
                found.append(None)
        return found


def _add(transaction: TransactionRequest, operation: Operation) -> None:
    if isinstance(operation, Create):
        transaction.create(operation.path, operation.data, ephemeral=operation.ephemeral, sequence=operation.sequential)
    elif isinstance(operation, Write):
        transaction.set_data(operation.path, operation.data, version=operation.version)
    elif isinstance(operation, Delete):
        transaction.delete(operation.path, version=operation.version)
    elif isinstance(operation, Check):
        transaction.check(operation.path, version=operation.version)

