"""The inputs of a job have to be there."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.core.job_plan.streams import check_inputs
from headrace.errors import StreamNotFoundError


def test_all_inputs_that_are_missing_are_named() -> None:
    app = hr.App("many")
    for name in ("clicks", "ads", "views"):
        app.stream(name).to("out")
    with pytest.raises(StreamNotFoundError) as refused:
        check_inputs(app.topology(), ["view", "out"], "log:./data")
    assert refused.value.message == "input stream 'ads', 'clicks', 'views' does not exist on log:./data"
    assert "headrace stream create ads --system log:./data" in (refused.value.hint or "")
    check_inputs(app.topology(), ["ads", "clicks", "views"], "log:./data")
