"""Owns the small application that the tests of the command line look at, and the records that it has read."""

from __future__ import annotations

import json
from typing import Any

import headrace as hr

APP = """
import headrace as hr

app = hr.App("shop", system="log:./data")
sales = app.stream("sales", key=hr.String(), value=hr.Json("item string, price double"))
sales.group_by_key().count(store="per-shop").to_stream().to("per-shop-out")
by_item = sales.select_key(lambda sale: sale.value["item"], key=hr.String()).group_by_key()
by_item.windowed_by(hr.Tumbling("1 hour")).aggregate(n=hr.count(), mean=hr.mean("value.price"), store="per-item")
by_item.reduce(lambda old, new: max(old, new, key=lambda sale: sale["price"]), store="dearest")


class Last(hr.Processor):
    stores = [hr.KeyValueStore("last", value=hr.Json(), ttl="1 day"), hr.WindowStore("history", value=hr.Double())]

    def init(self, context):
        self.context = context

    def process(self, sale):
        self.context.store("last").put(sale.value["item"])
        self.context.store("last").put(sale.value["price"], sub=sale.value["item"])
        self.context.store("history").put(sale.value["price"], sale.timestamp_us)


sales.process(Last, name="last", key=hr.String(), value=hr.Json()).to("unused")

if __name__ == "__main__":
    raise SystemExit("the file was run, not imported")
"""
HOUR_US = 3_600_000_000
SHOPS, ITEMS, SALES = 3, 4, 60


def sale(number: int) -> tuple[str, str, float, int]:
    """Shop, item, price, time: the same for each number, so that tests can count for themselves."""
    return f"shop-{number % SHOPS}", f"item-{number % ITEMS}", float(number), number * HOUR_US // 20


def produce_sales(system: Any, stream: str = "sales") -> None:
    records = [hr.Record(shop, {"item": item, "price": price}, time) for shop, item, price, time in map(sale, range(SALES))]
    system.produce(stream, records, key=hr.String(), value=hr.Json())


def asked(namespace: str, application: str = "shop") -> list[Any]:
    """What commands have asked for in the log of the current folder."""
    with hr.open_system("log:./data") as system:
        return [json.loads(request) for request in system.metadata_store(application).requests(namespace).values()]
