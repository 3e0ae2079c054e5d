"""Every Python, shell and TOML block of the README and of docs/ runs, and no block is left out unseen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from project.page_blocks import ROOT, blocks_of, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Their blocks run in test_api_page.py, in examples/test_both_codes.py, and below.
ELSEWHERE = {"docs/api.md", "docs/from-faust.md", "docs/from-quix.md", "docs/quickstart.md"}
# Blocks that no test can run, each with its reason.
NOT_RUN = {
    "README.md": 1,
    "docs/benchmarks.md": 15,
    "docs/deploy.md": 5,
    "docs/from-kafka-streams.md": 1,
    "docs/groups.md": 7,
    "docs/kafka.md": 2,
    "docs/operations.md": 7,
    "docs/quickstart.md": 1,
}
BLOCKS = {page: blocks_of(page) for page in PAGES}
RUN = [page for page in PAGES if BLOCKS[page] and str(page.relative_to(ROOT)) not in ELSEWHERE]
SOAKING = {"docs/growing-streams.md", "docs/rewinding.md"}  # a minute and more each
_SHOWN = re.compile(r"^```sh\n[^`]*```\n\n^```text\n([^`]*)^```$", re.MULTILINE)
_VARYING = re.compile(r'"timestamp":"[^"]*"|\d+ +\d+% +\d+% +\S+$', re.MULTILINE)  # times, and what was measured
_LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _marked(page: Path) -> Any:
    return pytest.param(page, id=named(page), marks=[pytest.mark.soak] if named(page) in SOAKING else [])


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_quickstart_prints_what_it_shows(tmp_path: Path) -> None:
    """A block of text is what the commands above it print last; but times and rates are those of the run."""
    page = ROOT / "docs" / "quickstart.md"
    text = page.read_text(encoding="utf-8")
    shown = {text.count("\n", 0, found.start()) + 1: found[1] for found in _SHOWN.finditer(text)}
    for block in BLOCKS[page]:
        if block.not_run is None:
            printed = run(block, tmp_path)
            assert _steady(printed).endswith(_steady(shown.pop(block.line, ""))), f"{block}:\n{printed}"
    assert shown == {} and len(_SHOWN.findall(text)) == text.count("```text\n") > 3


def _steady(text: str) -> str:
    return _VARYING.sub("", text)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [_marked(page) for page in RUN])
def test_the_blocks_of_a_page_run_in_its_order(page: Path, tmp_path: Path) -> None:
    for block in BLOCKS[page]:
        if block.not_run is None:
            run(block, tmp_path)


def test_a_block_that_is_not_run_is_known_here() -> None:
    counts = {named(page): sum(block.not_run is not None for block in blocks) for page, blocks in BLOCKS.items()}
    assert {page: count for page, count in counts.items() if count} == NOT_RUN


def test_each_page_of_the_guide_has_code_that_runs() -> None:
    for name in ("README", "docs/concepts", "docs/kafka", "docs/growing-streams", "docs/elasticity", "docs/rewinding",
                 "docs/state", "docs/testing", "docs/failures", "docs/deploy", "docs/configuration"):  # fmt: skip
        assert any(block.not_run is None for block in BLOCKS[ROOT / f"{name}.md"]), name


def test_every_link_between_the_pages_resolves() -> None:
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
            there = (page.parent / target) if target else page
            if not there.exists() or (anchor and anchor not in anchors_of(there)):
                broken.append(f"{named(page)}: {target}#{anchor}" if anchor else f"{named(page)}: {target}")
    assert not broken


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_links_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {target for target, _ in _LINK.findall(index)}
    assert {page.name for page in PAGES if page.parent.name == "docs" and page.name != "README.md"} <= linked
