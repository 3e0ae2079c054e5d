"""The fetch: one run of the Ivy that is among PySpark's own jars, into a folder, without any build tool.

Which repository it asks is the machine's business: Ivy's default, or what a settings file in Ivy's own format says.
What came is not looked at here; `cache` checks it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.adapters.artifacts.pins import Pin
from headrace.config.keys import handed_on
from headrace.environment import checked_java
from headrace.errors import ArtifactError

FETCH_S_MAX = 600  # 40 MB over a slow line; a repository that does not answer ends it long before
_LINES_SHOWN = 3
_CAUSES = ("unknownhost", "refused", "timed out", "unreachable", "handshake", "certificat", "forbidden", "error")
_TELLING = ("not found", "failed", "exception")


def fetch(pins: Sequence[Pin], folder: Path, *, settings_file: Path | None = None) -> None:
    """Bring the jars of `pins` into `folder` (which exists and is empty), named `Pin.file_name`. `ArtifactError` if not all
    of them came: offline, a repository that does not have them, or no end within `FETCH_S_MAX`. `SetupError` without Java.
    What did come then is left in the folder."""
    java = checked_java(os.environ).path
    ivy_file = folder / "ivy.xml"
    ivy_file.write_text(_ivy_text(pins), encoding="utf-8")
    command = [
        *(str(java), "-Xmx256m", "-cp", str(pyspark_folder() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-settings", str(settings_file)) * (settings_file is not None),
        *("-ivy", str(ivy_file), "-confs", "default", "-types", "jar", "bundle"),
        # a cache of its own: one of another tool may hold half a download, or descriptions of another repository
        *("-cache", str(folder / "ivy-cache")),
        *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=handed_on(os.environ),
            text=True,
            errors="replace",
            timeout=FETCH_S_MAX,
            check=False,
        )
        said = done.stdout
    except subprocess.TimeoutExpired:
        said = f"no end in {FETCH_S_MAX} seconds"
    absent = [pin for pin in pins if not (folder / pin.file_name).is_file()]
    if absent:
        raise ArtifactError(
            f"{len(absent)} of {len(pins)} jars could not be fetched, among them {absent[0]}: {_reason(said)}",
            "connect this machine, or copy the jars from one that is connected (`headrace doctor` names the folder); "
            "behind a repository of your own set spark.jars.ivySettings to an Ivy settings file",
        )


def pyspark_folder() -> Path:
    """Where PySpark is installed, found without importing it. `ArtifactError` if it is not installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ArtifactError("PySpark is not installed", "install it: python -m pip install 'pyspark>=4.2,<4.3'")
    return Path(found.submodule_search_locations[0])


def _ivy_text(pins: Sequence[Pin]) -> str:
    """A module that depends on exactly these jars: `transitive` is off, so that the pins alone decide. `master` is the jar
    alone; a repository that has a jar without its description knows only `default`."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(pin.group)} name={quoteattr(pin.name)} rev={quoteattr(pin.version)} "
        'conf="default->master(default)" transitive="false"/>'
        for pin in pins
    )
    return f"""<ivy-module version="2.0">
  <info organisation="headrace" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>"""


def _reason(said: str) -> str:
    """The lines of Ivy's report that tell the cause, else its last ones."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip(" :")]
    for words in (_CAUSES, _TELLING):
        telling = dict.fromkeys(line for line in lines if any(word in line.lower() for word in words) and line != ":::: ERRORS")
        if telling:
            return " | ".join(line[:200] for line in list(telling)[:_LINES_SHOWN])
    shown = lines[-_LINES_SHOWN:]
    return " | ".join(line[:200] for line in shown) or "Ivy said nothing"
