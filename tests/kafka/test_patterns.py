"""Topics that match a pattern join while a job runs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from support.matching import joins_while_it_runs


def test_a_topic_that_is_created_while_the_job_runs_joins(kafka_server: Any, tmp_path: Path) -> None:
    joins_while_it_runs(f"kafka://{kafka_server.bootstrap}", tmp_path, f"orders{uuid.uuid4().hex[:6]}")
