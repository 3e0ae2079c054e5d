"""What the source of a file says about the application in it, without executing any of it.

A command that needs an application imports its file, and so executes all of its top level but the code under
`if __name__ == "__main__":`. A file that can hold no application, or that runs one at its top level under no condition, is
refused before. In doubt it is executed, and the run itself is refused: only what the source says for certain counts here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PACKAGE, _CLASS = "headrace", "App"
_RUNNERS = frozenset({"run", "start"})
_NAMES = (ast.Name, ast.Attribute)
_MAIN = {"__name__", "'__main__'"}
# Ways to a name, or to a module, that are not in the source as such.
_DYNAMIC = frozenset({"exec", "eval", "globals", "vars", "setattr", "__import__", "import_module", "run_path", "run_module"})
# What is no application whatever it holds.
_NO_APPS = (
    *(ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Lambda, ast.Compare, ast.BinOp, ast.UnaryOp),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp),
)


@dataclass(frozen=True, slots=True)
class Import:
    """A module that is imported: its dotted name, `level` dots before it, and whether names are taken out of it."""

    module: str
    level: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AppSource:
    """What a source says: `binds`: some name of its top level may be an application; `names_app`: it names `App`, and
    headrace, outside of the part for `__main__`; `names_app_in_main`: there; `runs_in_line`: where its top level runs an
    application that it makes; `is_dynamic`: no more can be said of it."""

    binds: bool
    names_app: bool
    names_app_in_main: bool
    runs_in_line: int | None
    is_dynamic: bool
    imports: tuple[Import, ...]


def app_source_of(text: str) -> AppSource:
    """
    >>> app_source_of("import shutil\\nshutil.rmtree('x')").binds
    False
    >>> app_source_of("import headrace as hr\\napp = hr.App('a')\\napp.run()").runs_in_line
    3
    """
    tree = ast.parse(text)
    main = [node for node in tree.body if _is_main(node)]
    rest = [node for node in tree.body if not _is_main(node)]
    statements = list(_executed(rest))
    inside, outside = [list(_walked(part)) for part in (main, rest)]
    names = _words(outside)
    return AppSource(
        binds=any(_may_bind_app(node) for node in statements) or any(isinstance(node, ast.Global) for node in outside),
        names_app=_names_app(outside),
        names_app_in_main=_names_app([*inside, *outside]),
        runs_in_line=_run_line(rest),
        is_dynamic=bool(names & _DYNAMIC),
        imports=tuple(_imports(outside)),
    )


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":` without an else."""
    if not (isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Compare)):
        return False
    return set(_sides(node.test)) == _MAIN and isinstance(node.test.ops[0], ast.Eq)


def _sides(test: ast.Compare) -> list[str]:
    return [ast.unparse(one) for one in (test.left, *test.comparators)]


def _executed(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of the top level, also those in its blocks; not what is in functions and classes."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _executed(getattr(node, part, []))
        for part in ("handlers", "cases"):
            for inner in getattr(node, part, []):
                yield from _executed(inner.body)


def _walked(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _words(nodes: Sequence[ast.AST]) -> set[str]:
    """All names and attributes, and what is imported under which name."""
    imported = {alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    named = {node.attr if isinstance(node, ast.Attribute) else node.id for node in nodes if isinstance(node, _NAMES)}
    return imported | named


def _names_app(nodes: Sequence[ast.AST]) -> bool:
    imported = [one for one in _imports(nodes) if one.module.partition(".")[0] == _PACKAGE]
    if any(one.names and ("*" in one.names or one.module != _PACKAGE) for one in imported):
        return True  # `*` has it, and a module of ours may hold one
    return bool(imported) and _CLASS in _words(nodes)


def _imports(nodes: Sequence[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", node.level, tuple(alias.name for alias in node.names))


def _may_bind_app(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith | ast.Match):
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        holds_several = isinstance(node, ast.Assign) and not all(isinstance(one, ast.Name) for one in node.targets)
        return node.value is not None and (holds_several or not isinstance(node.value, _NO_APPS))
    expressions = [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.expr)]
    return any(isinstance(inner, ast.NamedExpr) for inner in _walked(expressions))


def _run_line(body: Sequence[ast.stmt]) -> int | None:
    """Where the top level, under no condition, calls `run` or `start` on an `App(...)` of ours, or on a name that it gives to
    such ones and to nothing else."""
    certain = list(_certain(body))
    modules, classes = _names_of_ours(certain)
    made: dict[str, bool] = {}
    for statement in _executed(body):
        for name, value in _given(statement):
            made[name] = made.get(name, True) and value is not None and _makes_app(value, modules, classes)
    for node in certain:
        for one in _evaluated(node):
            if not (isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _RUNNERS):
                continue
            of = one.func.value
            if made.get(of.id, False) if isinstance(of, ast.Name) else _makes_app(of, modules, classes):
                return one.lineno
    return None


def _certain(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of the top level that are under no condition: those in its `with`, `try` and `if True` too."""
    for node in body:
        yield node
        if isinstance(node, ast.With | ast.AsyncWith):
            yield from _certain(node.body)
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from _certain([*node.body, *node.finalbody])
        elif isinstance(node, ast.If | ast.While):
            truth = _truth(node.test)
            if truth is not None:
                yield from _certain(node.body if truth else node.orelse)


def _truth(test: ast.expr) -> bool | None:
    """What a test comes to while the file is imported, so not as `__main__`; None where the source does not say."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = _truth(operand)
            return None if truth is None else not truth
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() as operator]) if set(_sides(test)) == _MAIN:
            return isinstance(operator, ast.NotEq)
    return None


def _evaluated(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a statement evaluates for certain, without those of the statements in it."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt | ast.match_case | ast.excepthandler):
            continue
        if isinstance(inner, ast.expr):
            yield inner
        match inner:
            case ast.Lambda():
                yield from _evaluated(inner.args)
            case ast.IfExp(test=first) | ast.BoolOp(values=[first, *_]):
                yield from _evaluated(ast.Expr(first))
            case ast.Compare(left=first, comparators=[second, *_]):
                yield from _evaluated(ast.Tuple([first, second]))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                yield from _evaluated(ast.Expr(inner.generators[0].iter))
            case _:
                yield from _evaluated(inner)


def _given(node: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a statement gives to something, and to what; None where it is no single value."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, None
            yield from ((one, None) for inner in ast.walk(node) if isinstance(inner, ast.Global) for one in inner.names)
            return
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name, None) for alias in names)
            return
    values: dict[int, ast.expr] = {}
    parts = [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.stmt | ast.excepthandler)]
    for one in [node, *_walked(parts)]:
        if isinstance(one, ast.Assign):
            values |= {id(target): one.value for target in one.targets}
        elif isinstance(one, ast.AnnAssign | ast.NamedExpr) and one.value is not None:
            values[id(one.target)] = one.value
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
            yield one.id, values.get(id(one))


def _names_of_ours(body: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """What the package, and what its class for applications, is called in the file."""
    modules, classes = set(), set()
    for node in body:
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == _PACKAGE}
        elif isinstance(node, ast.ImportFrom) and node.module == _PACKAGE:
            classes |= {alias.asname or alias.name for alias in node.names if alias.name == _CLASS}
    return modules, classes


def _makes_app(value: ast.expr, modules: set[str], classes: set[str]) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return called.attr == _CLASS and called.value.id in modules
    return isinstance(called, ast.Name) and called.id in classes
