"""Clients that are kept: each once, the ones used last, and never more than a process can have."""

from __future__ import annotations

import gc
import weakref

from headrace.adapters.kafka.clients import KEPT_MAX, ClientPool


class Client:
    pass


def test_a_client_that_is_taken_is_not_given_again() -> None:
    pool, client = ClientPool[Client](), Client()
    pool.keep("a", client)
    assert pool.take("a") is client
    assert pool.take("a") is None


def test_a_shared_one_is_made_once() -> None:
    pool = ClientPool[Client]()
    assert pool.shared("a", Client) is pool.shared("a", Client) is not pool.shared("b", Client)


def test_the_ones_used_longest_ago_are_dropped_and_closed() -> None:
    pool = ClientPool[Client]()
    first = weakref.ref(pool.shared("first", Client))
    second = weakref.ref(pool.shared("second", Client))
    for number in range(KEPT_MAX - 2):
        pool.shared(str(number), Client)
    pool.shared("first", Client)  # used again: now the second is the oldest
    pool.shared("one more", Client)
    gc.collect()
    assert (first() is None, second() is None) == (False, True)
    for number in range(KEPT_MAX):
        pool.keep(f"other {number}", Client())
    gc.collect()
    assert first() is None
