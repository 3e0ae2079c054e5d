"""Writes the page of error messages from the source: `errors_page.py docs/errors.md`.

A message is found where an error is made: `SomeError(message, hint)`, or in a command `fail(message, hint)` or
`typer.BadParameter(message)`. What is filled in is shown as a word in capitals, or as `…`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import headrace
from headrace import errors

SOURCE = Path(headrace.__file__).parent
COMMANDS, USAGE = "Commands", "Usage"
MADE_BY = {"fail": COMMANDS, "BadParameter": USAGE}
AS_IT_SAYS, CAUSE, BY_CASE = "as the message says", "its cause is in the message", "its hint says it, by the case"
_HEAD = f"""\
# Error messages

<!-- Made by `make docs` from the source: edit the messages there, not this page. -->

Each error says what is wrong, what was expected and found, and mostly what to do. Here is every message, by the class of its
error, with the hint that comes with it; words in capitals and `…` are filled in. `hr.NAME` catches a class; all are an
`hr.HeadraceError`. [failures.md](failures.md) has what happens to the job and its records, and
[what a report of a defect needs](failures.md#a-defect-of-headrace).

- "{AS_IT_SAYS}": the message names what was expected, or what to give. Give that.
- "{CAUSE}": what went wrong below it follows the last colon.
- "{BY_CASE}": the error comes with a hint, which depends on what was found.
"""
_SAYS = re.compile(
    r"\bexpected\b|\bgive (?:either |--)|\bgoes with\b|; use a|\bstart this with\b|\badd --|\bsay which\b|name it by|: give "
)
_GLUED = re.compile(r"[A-Z]{3}[a-z]{3}")  # a word that is filled in, at once before another
_CAUSED = re.compile(r": (?:…|[A-Z_]+)(?:;.*)?$")
# What is to be done about an error of a class that has no hint of its own.
NOTHING_TO_DO = {
    "StoreDamagedError": "nothing: the store is rebuilt from its state files; if it happens again on one host, check its disk",
    "FencedError": "nothing: the driver or the plan that took over continues",
}
OF_CLASS = {  # where the message does not say it either
    "SchemaError": "correct the schema where the message says",
    "SerdeError": "correct the record, or name the serde that it was written with",
}
ABOUT = {
    COMMANDS: "What commands refuse.",
    USAGE: "Options that do not go together, or a value that an option does not take: exit code 2, and nothing was done.\n"
    "`headrace COMMAND --help` lists the options. What the parser says of unknown options and missing arguments is not here.",
}
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.HeadraceError) and kind.__module__ == errors.__name__
}
Row = tuple[str, str]
Known = dict[str, list[ast.expr]]


def texts(node: ast.expr | None, known: Known) -> list[str]:
    """What an expression may say; nothing where the source does not tell. `known`: what names of its function are set to, and
    under `name()` what a function of its module returns."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return joined([texts(part, known) for part in parts])
        case ast.FormattedValue(value=ast.Name(id=name) as value) if name.isupper() and name in known:
            plain = [one for one in known[name] if isinstance(one, ast.Constant | ast.JoinedStr)]
            return [text for one in plain for text in texts(one, {})] or [placeholder(value)]
        case ast.FormattedValue(value=value):
            return texts(value, known) if isinstance(value, ast.IfExp) else [placeholder(value)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return joined([texts(left, known) or [placeholder(left)], texts(right, known) or [placeholder(right)]])
        case ast.IfExp(body=first, orelse=second):
            return [*(texts(first, known) or [placeholder(first)]), *(texts(second, known) or [placeholder(second)])]
        case ast.Name(id=name) if name in known:
            return [text for one in known[name] for text in texts(one, without(name, known))]
        case ast.Call(func=ast.Name(id="hint_of_missing"), args=[*_, create]):
            return joined([["did you mean …? Or "], texts(create, known) or ["…"]])
        case ast.Call(func=ast.Name(id=name)) if f"{name}()" in known:
            return [text for one in known[f"{name}()"] for text in texts(one, without(f"{name}()", known))]
        case _:
            return []


def without(name: str, known: Known) -> Known:
    """What is known but for `name`: a name that is set to something with itself in it ends there."""
    return {other: values for other, values in known.items() if other != name}


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


def assigned(nodes: Iterable[ast.AST]) -> Known:
    """What the names of a scope are set to, each time."""
    found: Known = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def of_module(tree: ast.Module) -> Known:
    """What a module's own constants are, and under `name()` what its functions return."""
    found = assigned(tree.body)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
            found[f"{node.name}()"] = returned
    return found


def made(tree: ast.Module, shared: Known) -> Iterator[tuple[str, Row]]:
    """The class of each error that is made in a module, with its message and hint. `shared`: constants of other modules."""
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [*scopes, tree]:
        known = shared | of_module(tree) | (assigned(ast.walk(scope)) if scope is not tree else {})
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            name = MADE_BY.get(called, called)
            if name in CLASSES or name in ABOUT:
                named = next((one.value for one in node.keywords if one.arg == "hint"), None)
                hint = node.args[1] if len(node.args) > 1 else named
                for message in texts(node.args[0], known):
                    yield name, (message, hint_text(hint, known))


def hint_text(hint: ast.expr | None, known: Known) -> str:
    """The first hint that the source tells, or that there is one; empty where there is none."""
    told = [text for text in texts(hint, known) if is_told(text) and not _GLUED.search(text)]
    match hint:
        case None | ast.Constant(value=None) | ast.Attribute():  # the last hands on that of another error
            return ""
        case _:
            return told[0] if told else BY_CASE


def is_told(text: str) -> bool:
    """Whether it says anything: else all of it is filled in."""
    return any(character.islower() for character in text)


def explained(name: str, row: Row) -> Row:
    """The row with what to do: its hint, else what the message says itself, else what holds for its class."""
    message, hint = row
    says = AS_IT_SAYS if name == USAGE or _SAYS.search(message) else ""
    caused = CAUSE if _CAUSED.search(message) else ""
    return message, hint or NOTHING_TO_DO.get(name) or says or OF_CLASS.get(name) or caused


def cell(text: str) -> str:
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def rows() -> dict[str, list[Row]]:
    """All messages by the class of their error, each with what to do."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    constants = [(name, values) for tree in trees for name, values in assigned(tree.body).items()]
    shared = {name: values for name, values in constants if name.isupper() and not name.startswith("_")}
    found: dict[str, set[Row]] = {}
    for tree in trees:
        for name, row in made(tree, shared):
            if is_told(row[0]):
                found.setdefault(name, set()).add(row)
    return {name: chosen(name, found[name]) for name in [*CLASSES, *ABOUT] if name in found}


def chosen(name: str, found: set[Row]) -> list[Row]:
    """Of each message the rows whose hint the source shows, where there is one."""
    told = {message for message, hint in found if hint not in ("", BY_CASE)}
    return [explained(name, row) for row in sorted(found) if row[1] not in ("", BY_CASE) or row[0] not in told]


def page() -> str:
    parts = [_HEAD]
    for name, found in rows().items():
        about = ABOUT.get(name) or inspect.cleandoc(CLASSES[name].__doc__ or "")
        table = [f"| {cell(message)} | {cell(hint)} |" for message, hint in found]
        parts.append("\n".join([f"## {name}\n", about, "", "| message | what to do |", "|---|---|", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
