"""Says at once which test failed and why: a run that is stopped before its end would keep it to itself."""

from __future__ import annotations

import pytest
from _pytest.terminal import TerminalReporter


class FailuresAtOnce:
    """Writes each failure when it comes, between the dots; the summary at the end has them once more."""

    def __init__(self, terminal: TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_sep("_", f"{report.nodeid} ({report.when})", red=True)
            self._terminal.write_line(report.longreprtext)


def say_failures_at_once(config: pytest.Config) -> None:
    """Of several processes it is the one that writes to the terminal that says it."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal))
