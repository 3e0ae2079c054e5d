"""What is said where a package of an optional dependency is missing: which extra to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import SetupError


@contextmanager
def of_extra(extra: str, purpose: str) -> Iterator[None]:
    """Around the imports that an extra brings; `SetupError` naming the missing package and the extra."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise SetupError(
            f"{purpose} needs the package {missing}, which is not installed", f"pip install 'headrace[{extra}]'"
        ) from None
