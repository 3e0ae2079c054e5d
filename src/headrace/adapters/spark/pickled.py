"""A program as bytes for Spark's Python workers."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle


def program_bytes(program: Any) -> bytes:
    """A `exchange.messages.Program` without what stays in the driver. Workers cannot import the file that an application was
    loaded from: its functions travel by value."""
    for node in program.nodes:
        for name in node.__dataclass_fields__:
            body = getattr(node, name)
            body = getattr(body, "body", body)
            module = sys.modules.get(getattr(body, "__module__", None) or "")
            if module is None or module.__name__ == "__main__" or module.__name__.split(".")[0] == "headrace":
                continue
            file = getattr(module, "__file__", None) or ""
            if "site-packages" not in file and "dist-packages" not in file and not file.startswith(sys.base_prefix):
                cloudpickle.register_pickle_by_value(module)
    made: bytes = cloudpickle.dumps(program.without_columns())
    return made
