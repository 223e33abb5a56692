"""Habits of the house: names, docstrings and sizes that review asks for, and that ruff has no rule for.

    python -m scripts.habits [--write]

Each entry of scripts/baselines/habits.txt is ``rule:where`` and how often. The rules:

1. ``noun``: an entry of ``Args:`` begins with its noun: ``flow: the model's ...``, not ``flow: of the model``.
2. ``class``: a public class has a name of its own among all of the product's.
3. ``arguments``: a constructor takes eight arguments at most.
4. ``popitem``: the oldest of bounded things leaves by `edge_runtime.key_table`, not by ``popitem`` in each table.
5. ``verb``: a method that handles a batch, a reading or an answer is not called `VAGUE`.
6. ``rules``: a function above the bound of ``scripts.complexity`` has numbered rules in its code (``# rule 3``).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.baselines import CHECKOUT, check, product_files
from scripts.complexity import complex_functions

MOST_ARGUMENTS = 8
KEY_TABLE = "edge_runtime/key_table.py"
VAGUE = frozenset(("follow", "take", "look", "say", "tell"))
_NO_NOUN = re.compile(
    "of|as|in|by|to|for|from|that|which|with|on|at|into|where|who|whose|likewise|when|until|because|is|are|and"
)
_ENTRY = re.compile(r"^    (\w+): +(\w+)", re.MULTILINE)


def entries_without_noun(docstring: str) -> int:
    """Count entries of ``Args:`` whose first word is no noun (rule 1)."""
    _, _, rest = docstring.partition("\nArgs:\n")
    section = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return sum(bool(_NO_NOUN.fullmatch(word.lower())) for _, word in _ENTRY.findall(section))


def _arguments(function: ast.FunctionDef) -> int:
    given = function.args
    return len(given.posonlyargs + given.args + given.kwonlyargs) - 1


def of_tree(tree: ast.Module) -> Iterator[str]:
    """Yield a rule, or a rule and a name, for each fault of one file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ["noun"] * entries_without_noun(ast.get_docstring(node) or "")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "popitem":
            yield "popitem"
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name in VAGUE:
                    yield "verb"
                if isinstance(one, ast.FunctionDef) and one.name == "__init__" and _arguments(one) > MOST_ARGUMENTS:
                    yield f"arguments::{node.name}"


def public_classes(tree: ast.Module) -> Iterator[str]:
    """Yield the names of public classes of one file."""
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def numbered(text: str, function: str) -> bool:
    """Tell whether a function's code names its rules (rule 6)."""
    lines = text.splitlines()
    return any(
        re.search(r"# rules? \w", "\n".join(lines[node.lineno - 1 : node.end_lineno]))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.rsplit("::", 1)[-1]
    )


def faults(files: Iterable[Path], root: Path = CHECKOUT) -> Counter[str]:
    """Count the faults of all files, as ``rule:path`` and ``class:name``."""
    found: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    files = list(files)
    for path in files:
        tree, where = ast.parse(path.read_text("utf-8")), path.relative_to(root).as_posix()
        classes.update(public_classes(tree))
        for fault in of_tree(tree):
            rule, _, name = fault.partition("::")
            if (rule, where) != ("popitem", KEY_TABLE):
                found[f"{rule}:{where}" + (f"::{name}" if name else "")] += 1
    found.update({f"class:{name}": times for name, times in classes.items() if times > 1})
    for entry in complex_functions(files, root):
        where, _, function = entry.partition("::")
        if not numbered((root / where).read_text("utf-8"), function):
            found[f"rules:{entry}"] = 1
    return found


def main() -> int:
    """Compare with the list."""
    return check("habits", faults(product_files()), advice="see scripts/habits.py", arguments=sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
