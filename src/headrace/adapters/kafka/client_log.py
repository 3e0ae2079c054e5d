"""Where librdkafka's own log lines go: to our log, as details. What a user must know, an error or warning of ours says."""

from __future__ import annotations

import logging
from typing import Any

LOG = logging.getLogger("headrace.kafka.client")


class ClientLog:
    """Takes the lines that librdkafka would print. A fenced producer, which is part of every take-over, is an alert to it."""

    def log(self, level: int, message: str, *arguments: Any) -> None:
        LOG.debug(message, *arguments)


CLIENT_LOG = ClientLog()
