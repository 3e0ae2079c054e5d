"""The documentation as a site: built strictly, each page in its navigation, no link of it is dead, and a reader fetches nothing
from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

from project.page_blocks import ROOT

_FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]+src=\"(https?:)?//"
    r"|<link[^>]+rel=\"(?:stylesheet|preconnect)\"[^>]+href=\"(https?:)?//"
)


class Page(HTMLParser):
    """What a page refers to, and what in it can be referred to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.targets += [target for target in (named.get("href"), named.get("src")) if target]
        self.anchors |= {str(named["id"])} if "id" in named else set()


def dead_links(site: Path) -> list[str]:
    """Each link, picture, script and style of a site's pages that leads to nothing in it."""
    pages = {path: Page(path) for path in site.glob("*.html")}
    found = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            is_dead = not there.is_file() or (there in pages and unquote(parts.fragment) not in pages[there].anchors)
            if not parts.scheme and is_dead and path.name != "404.html":  # whose links are those of a server's root
                found.append(f"{path.name}: {target}")
    return found


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    first = '<a href="b.html#here">b</a> <a href="#no">c</a> <img src="../d.svg">'
    second = '<h1 id="here">b</h1> <a href=".">a</a> <a href="https://a.example/x">x</a>'
    (tmp_path / "index.html").write_text(first, encoding="utf-8")
    (tmp_path / "b.html").write_text(second, encoding="utf-8")
    assert dead_links(tmp_path) == ["index.html: #no", "index.html: ../d.svg"]


def test_every_kind_of_dead_link_fails_the_build() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = yaml.safe_load(settings[settings.index("validation:") : settings.index("nav:\n")])["validation"]
    assert {level for kinds in validation.values() for level in kinds.values()} == {"warn"}
    assert len(validation["links"]) == 4


def test_the_site_is_built_whole_and_stands_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in tmp_path.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} <= pages and "index" in pages
    fetched = [path.name for path in tmp_path.glob("*.html") if _FETCHED.search(path.read_text(encoding="utf-8"))]
    assert fetched == []
    assert dead_links(tmp_path) == []
