"""The application that runs on a cluster: windowed count, join and Processor behind Spark expressions; and a model of it."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from headrace.driver.rounds import retries

WINDOW_MS = 10_000
ORDER, PAYMENT = hr.Json("id int, amount int"), hr.Json("id int, paid int")


class Streak(hr.Processor[str, dict, str, dict]):
    """Forwards every third order of a key."""

    stores: ClassVar = [hr.KeyValueStore("orders-of-key", value=hr.Long())]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        store = self.context.store("orders-of-key")
        count = store.get(default=0) + 1
        store.put(count)
        if count % 3 == 0:
            self.context.forward(value={"id": record.value["id"], "count": count})


def matched(order: dict[str, Any], payment: dict[str, Any]) -> dict[str, Any]:
    return {"order": order["id"], "payment": payment["id"]}


def expressions(name: str, system: str, **keys: Any) -> hr.App:
    """Two streams through Spark expressions of their own: rows are routed from where they are read to their tasks."""
    app = hr.App(name, system, **keys)
    orders = app.stream(f"{name}-orders", key=hr.String(), value=ORDER).filter("value.amount > 0")
    payments = app.stream(f"{name}-payments", key=hr.String(), value=PAYMENT).filter("value.paid > 0")
    windows = orders.group_by_key().windowed_by(hr.Tumbling("10 seconds"))
    windows.count(store="windows").to_stream().to(f"{name}-windows", value=hr.Long())
    orders.join(payments, matched, within="1 hour", value=hr.Json()).to(f"{name}-matched")
    orders.process(Streak, name="streak", value=hr.Json()).to(f"{name}-streaks")
    return app


def one_expression(name: str, system: str, **keys: Any) -> hr.App:
    """One stream through a Spark expression: a reader and its container are in one Spark task."""
    app = hr.App(name, system, **keys)
    orders = app.stream(f"{name}-orders", key=hr.String(), value=ORDER).filter("value.amount > 0")
    orders.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=hr.Long())
    return app


def without_state(name: str, system: str, **keys: Any) -> hr.App:
    app = hr.App(name, system, **keys)
    app.stream(f"{name}-orders", key=hr.String(), value=ORDER).filter("value.amount > 0").to(f"{name}-filtered")
    return app


def casting(name: str, system: str, **keys: Any) -> hr.App:
    """An expression raises on a record whose amount is no number; such records are dead letters."""
    app = hr.App(name, system, dead_letter_stream=f"{name}-dead", **keys)
    orders = app.stream(f"{name}-orders", key=hr.String(), value=hr.Json("id int, amount string"))
    orders.filter("cast(value.amount as int) > 0").to(f"{name}-filtered")
    return app


def slow(name: str, system: str, log: str = "", pause_s: float = 0.0, **keys: Any) -> hr.App:
    """Every record takes `pause_s`, and leaves a line in the file `log`: its id, and when."""
    app = hr.App(name, system, **keys)

    def worked(record: Any) -> dict[str, Any]:
        time.sleep(pause_s)
        with Path(log).open("a") as file:
            file.write(f"{record.value['id']} {time.time()}\n")
        return dict(record.value)

    orders = app.stream(f"{name}-orders", key=hr.String(), value=hr.Json())
    payments = app.stream(f"{name}-payments", key=hr.String(), value=hr.Json())
    both = orders.merge(payments).map_values(worked, value=hr.Json())
    both.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=hr.Long())
    return app


def deadly(name: str, system: str, **keys: Any) -> hr.App:
    """A record that has no amount ends the worker process, or its executor."""
    app = hr.App(name, system, **keys)

    def worked(record: Any) -> dict[str, Any]:
        if record.value.get("ends") == "executor":
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # the parent of workers is a process that the executor started
            time.sleep(60.0)
        if "amount" not in record.value:
            os._exit(1)
        return dict(record.value)

    orders = app.stream(f"{name}-orders", key=hr.String(), value=hr.Json()).map_values(worked, value=hr.Json())
    orders.group_by_key().count(store="counts").to_stream().to(f"{name}-counts", value=hr.Long())
    return app


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


APPLICATIONS = {
    "expressions": expressions,
    "one_expression": one_expression,
    "without_state": without_state,
    "casting": casting,
    "slow": slow,
    "deadly": deadly,
}


def with_failures_max(spark: Any, most: int) -> int:
    """Have a round fail so many times before its job ends; how many it was before."""
    before, retries.FAILURES_MAX = retries.FAILURES_MAX, most
    return before


Sent = list[tuple[str, dict[str, Any] | bytes, int]]  # key, value or bytes that are no JSON, time in ms


def windows_of(orders: Sent) -> dict[tuple[str, int], int]:
    """(key, start of the window in ms) to how many orders it has."""
    return dict(Counter((key, at // WINDOW_MS * WINDOW_MS) for key, value, at in orders if _is_over(value, "amount")))


def matched_of(orders: Sent, payments: Sent) -> list[tuple[str, int, int]]:
    return sorted(
        (key, order["id"], payment["id"])
        for key, order, _ in orders
        if _is_over(order, "amount")
        for other, payment, _ in payments
        if other == key and _is_over(payment, "paid")
    )


def streaks_of(orders: Sent) -> list[tuple[str, int]]:
    """(key, count) of every third order of a key."""
    counts = Counter(key for key, value, _ in orders if _is_over(value, "amount"))
    return sorted((key, count) for key, total in counts.items() for count in range(3, total + 1, 3))


def _is_over(value: Any, field: str) -> bool:
    return isinstance(value, dict) and value[field] > 0
