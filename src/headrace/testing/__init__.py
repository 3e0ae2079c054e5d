"""The test kit: `Driver` runs an application on records that a test sends, without a server and mostly without a JVM.

>>> import headrace as hr
>>> from headrace.testing import Driver
>>> app = hr.App("shout")
>>> app.stream("words", key=hr.String(), value=hr.String()).map_values(lambda r: r.value.upper(), value=hr.String()).to("LOUD")
>>> with Driver(app) as d:
...     d.send("words", "a", "hello")
...     rounds = d.run()
...     [record.value for record in d.read("LOUD")]
['HELLO']
"""

from __future__ import annotations

from headrace.testing.driver import Driver
from headrace.testing.stores import StoredView
from headrace.wiring.kafka_server import KafkaServer

__all__ = ["Driver", "KafkaServer", "StoredView"]
