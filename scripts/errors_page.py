"""Writes the page of error messages from the source: `errors_page.py docs/errors.md`.

A message is found where an error is made: `SomeError(message, hint)`, or `fail(message, hint)` of a command. What is filled in
is shown as a word in capitals, or as `…`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import headrace
from headrace import errors

SOURCE = Path(headrace.__file__).parent
COMMANDS = "Commands"
_HEAD = """\
# Error messages

<!-- Made by `make docs` from the source: edit the messages there, not this page. -->

Each error says what is wrong, what was expected and found, and mostly what to do. Here is every message, by the class of its
error, with the hint that comes with it; words in capitals and `…` are filled in. `hr.NAME` catches a class; all are an
`hr.HeadraceError`. [failures.md](failures.md) has what happens to the job and its records.
"""
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.HeadraceError) and kind.__module__ == errors.__name__
}
Row = tuple[str, str]


def texts(node: ast.expr | None, known: dict[str, list[ast.expr]]) -> list[str]:
    """What an expression may say; nothing where the source does not tell. `known`: what names of its function are set to."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return joined([texts(part, known) for part in parts])
        case ast.FormattedValue(value=value):
            return texts(value, known) if isinstance(value, ast.IfExp) else [placeholder(value)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return joined([texts(left, known) or [placeholder(left)], texts(right, known) or [placeholder(right)]])
        case ast.IfExp(body=first, orelse=second):
            return [*(texts(first, known) or [placeholder(first)]), *(texts(second, known) or [placeholder(second)])]
        case ast.Name(id=name) if name in known:
            return [text for one in known[name] for text in texts(one, {})]
        case _:
            return []


def joined(parts: list[list[str]]) -> list[str]:
    """All that these parts, one after the other, may say; of many variants the first."""
    found = [""]
    for variants in parts:
        found = [before + one for before in found for one in (variants if len(found) * len(variants) <= 4 else variants[:1])]
    return found


def placeholder(value: ast.expr) -> str:
    """A word for what is filled in."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").upper() or "…"
        case _:
            return "…"


def made(tree: ast.AST) -> Iterator[tuple[str, Row]]:
    """The class of each error that is made in a module, with its message and hint."""
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [*scopes, tree]:
        known: dict[str, list[ast.expr]] = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                known.setdefault(node.targets[0].id, []).append(node.value)
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            name = COMMANDS if node.func.id == "fail" else node.func.id
            if name == COMMANDS or name in CLASSES:
                hint = next((one.value for one in node.keywords if one.arg == "hint"), None)
                hints = texts(node.args[1] if len(node.args) > 1 else hint, known) or [""]
                for message in texts(node.args[0], known):
                    yield name, (message, hints[0])


def cell(text: str) -> str:
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def page() -> str:
    rows: dict[str, set[Row]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for name, row in made(ast.parse(path.read_text(encoding="utf-8"))):
            if any(character.islower() for character in row[0]):  # else all of it is filled in
                rows.setdefault(name, set()).add(row)
    parts = [_HEAD]
    for name in [*CLASSES, COMMANDS]:
        if found := rows.get(name):
            about = "What commands refuse." if name == COMMANDS else inspect.cleandoc(CLASSES[name].__doc__ or "")
            with_hints = {message for message, hint in found if hint}
            shown = sorted(row for row in found if row[1] or row[0] not in with_hints)
            table = [f"| {cell(message)} | {cell(hint)} |" for message, hint in shown]
            parts.append("\n".join([f"## {name}\n", about, "", "| message | what to do |", "|---|---|", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
