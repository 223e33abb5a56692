"""Reachability: modules of the product that no command, entry point or public name leads to.

    python -m scripts.reachability [--write]

The roots are the ``[project.scripts]`` and entry points of all pyproject.toml files, ``edge_runtime`` itself and
``python -m edge_runtime``. From a module lead

1. its imports, those inside functions too, but not those that only types need;
2. strings that are a module, ``module:Name``, or a file ``name.py`` in its folder: engines, settings, child programs;
3. f-strings that begin with a package (``f"edge_runtime.tools.cli.{name}"``): to each module that a string of the same
   file completes them to;
4. the package of each module so found.

Nothing is imported, so no library needs to be installed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from edge_runtime.base.system import toml
from scripts.baselines import CHECKOUT, check, product_files

ROOTS = ("edge_runtime", "edge_runtime.__main__", "edge_export._version")  # the last is read by its build backend
_MODULE = re.compile(r"(edge_(?:runtime|devices|export)(?:\.\w+)*)(?::\w+)?")
_FILE = re.compile(r"(\w+)\.py")


def modules(checkout: Path = CHECKOUT) -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for path in product_files(checkout):
        parts = path.relative_to(checkout).with_suffix("").parts
        if parts[0] != "edge_runtime":
            parts = parts[1:]  # devices/ and export/ are on the path
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def entry_points(checkout: Path = CHECKOUT) -> set[str]:
    """Modules that an installed command or entry point starts with."""
    targets: list[str] = []
    for path in (checkout / "pyproject.toml", *checkout.glob("*/pyproject.toml")):
        project = toml.loads(path.read_text("utf-8"))["project"]
        for group in (project.get("scripts", {}), *project.get("entry-points", {}).values()):
            targets += group.values()
    return {target.partition(":")[0] for target in targets}


def reachable(paths: Mapping[str, Path], roots: set[str]) -> set[str]:
    """Names of `paths` that the roots lead to."""
    seen: set[str] = set()
    waiting = [root for root in roots if root in paths]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0])  # rule 4
        waiting += leads_to(name, paths)
        waiting = [one for one in waiting if one in paths]
    return seen


def leads_to(name: str, paths: Mapping[str, Path]) -> Iterator[str]:
    """Names that a module leads to, some of which may be no modules."""
    path = paths[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    strings: list[str] = []
    prefixes: list[str] = []
    for node in _nodes(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import():  # rule 1
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), *_]):
                prefixes.append(prefix)
            case ast.Constant(value=str(text)):
                strings.append(text)
    for text in strings:
        if named := _MODULE.fullmatch(text):  # rule 2
            yield named[1]
        elif file := _FILE.fullmatch(text):
            yield f"{package}.{file[1]}"
        yield from (prefix + text.replace("-", "_") for prefix in prefixes)  # rule 3


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but docstrings and what stands under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for other in child.orelse:
                    yield from _nodes(other)
            case ast.Expr(value=ast.Constant()):
                continue
            case _:
                yield child
                yield from _nodes(child)


def main() -> int:
    """Compare the modules that nothing leads to with the baseline."""
    paths = modules()
    found = paths.keys() - reachable(paths, entry_points() | set(ROOTS))
    advice = "no command, entry point or public name leads to it; connect it or delete it"
    return check("reachability", dict.fromkeys(found, 1), advice=advice, arguments=sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
