"""The lasting barrier: stored once every producer knows of the new partitions, and respected by whoever reads again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import wiring
from headrace.core.hashing import partition_of
from headrace.runtime.assignments import SystemStreamPartitionAssignmentManager
from headrace.runtime.inline_engine import InlineEngine
from headrace.wiring.worker import run_container

KEYS = [f"key-{number}" for number in range(24)]
WAIT_S = 30.0
