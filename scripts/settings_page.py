"""Page of every setting of an application, docs/configuration.md, from the dataclasses that read the file.

python -m scripts.settings_page            prints it
python -m scripts.settings_page --write    writes it; a test holds the page against the code

The meaning of a setting is its docstring in the dataclass, or else its comment in the template that
``edge-runtime run --print-default`` prints.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from edge_runtime import schema
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system import toml
from scripts.generated_page import print_or_write

CHECKOUT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = CHECKOUT / "docs" / "configuration.md"
TEMPLATE: Final = CHECKOUT / "edge_runtime" / "tools/cli" / "default.toml"
INLINE: Final = frozenset({"retry", "mqtt"})
"""Tables that the template writes on one line."""

_HEADER = re.compile(r"^(?:# )?\[\[?([\w.\"]+)\]\]?")
_SETTING = re.compile(r"^(?:# )?(\w+) = ")
_COMMENT = re.compile(r"\s# (.*)$")
_CHOICES = re.compile(r'^or (?:\d|"\w+")(?:, "\w+")*:? ?')
_UNITS = {
    "s": "seconds", "ms": "milliseconds", "bytes": "bytes", "mb": "MB", "hz": "Hz", "days": "days", "degc": "°C",
    "w": "watts", "percent": "%",
}  # fmt: skip
_KINDS = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", Any: "any value"}
SHARED: Final = "## Settings of several tables"
_INTRODUCTION = """# Configuration

Every setting of the file that `edge-runtime run APP.toml` reads. `edge-runtime run --print-default > app.toml` writes
the same as a file to start from, and `edge-runtime run --check app.toml` names the line of a mistake. Relative paths
are taken from the file's own folder. Secrets stand in files of their own and are named here.
Certificates are always verified.

The value of a setting is its default; of several values the first one is. `5.0` is any number, `5` a whole one. A
setting with a kind in place of a value (a path, a list of texts) is left out or empty by default, or *needed*. A name
ends with its unit: UNITS.

This page is written by `python -m scripts.settings_page --write`.

"""


class Row(NamedTuple):
    """Entry of the page for a setting, but for its name."""

    value: str
    meaning: str


class Setting(NamedTuple):
    """A key of the file.

    Attributes:
        section: its table, and which kind of it: ``source mqtt``.
        name: of the key.
        default: `dataclasses.MISSING` where it must be given.
        hint: its type.
        meaning: docstring of the field; may be empty.
    """

    section: str
    name: str
    default: Any
    hint: Any
    meaning: str


class Section(NamedTuple):
    """Settings of one table as the template has them, commented out or not: values, and the comment of each."""

    table: str
    values: dict[str, Any]
    comments: dict[str, str]

    @property
    def name(self) -> str:
        """The table, and which kind of it."""
        return f"{self.table} {self.values['type']}" if "type" in self.values else self.table


def sections(template: str) -> dict[str, Section]:
    """Tables of the template by their names."""
    found = [Section("", {}, {})]
    for line in template.splitlines():
        if header := _HEADER.match(line):
            found.append(Section(header[1].replace("broker.local", "broker"), {}, {}))
        elif setting := _SETTING.match(line):
            name = setting[1]
            found[-1].values[name] = toml.loads(line.removeprefix("# "))[name]
            comment = _COMMENT.search(line[setting.end() :])
            found[-1].comments[name] = comment[1] if comment else ""
    return {section.name: section for section in found}


def settings(cls: Any = AppConfig, table: str = "", tag: str = "") -> Iterator[Setting]:
    """Every setting that the dataclasses read."""
    hints = get_type_hints(cls)
    meanings = _meanings(cls)
    here = _documented_as(table, tag)
    for field in dataclasses.fields(cls):
        inner = list(_tables_in(hints[field.name]))
        if inner and field.name not in INLINE:
            for sub, made in inner:
                yield from settings(made, f"{table}.{field.name}".lstrip("."), sub)
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING and not inner:
            default = field.default_factory()
        yield Setting(here, field.name, default, hints[field.name], meanings.get(field.name, ""))


def page() -> str:
    """Return the page.

    Raises:
        ValueError: a setting that neither its dataclass nor the template explains.
    """
    template = sections(TEMPLATE.read_text("utf-8"))
    rows: dict[str, dict[str, Row]] = {}
    for one in settings():
        section = template.get(one.section, Section("", {}, {}))
        if one.name == "type" and one.section.endswith(f" {section.values.get('type')}"):
            rows.setdefault(one.section, {})
            continue
        meaning = one.meaning or section.comments.get(one.name, "")
        if not meaning:
            raise ValueError(f"[{one.section}] {one.name}: say in its docstring or in {TEMPLATE.name} what it does")
        rows.setdefault(one.section, {}).setdefault(one.name, Row(_value_and_default(one), _prose(meaning)))
    shared = shared_settings(rows)
    units = ", ".join(f"`_{ending}` {unit}" for ending, unit in _UNITS.items() if ending != unit)
    parts = [_INTRODUCTION.replace("UNITS", units)]
    order = list(template)
    for table, lines in sorted(rows.items(), key=lambda row: order.index(row[0])):
        own = {name: row for name, row in lines.items() if name not in shared or shared[name].meaning != row.meaning}
        others = [_named(name, row.value) for name, row in lines.items() if name not in own]
        parts += [heading(table), "\n", _lines(own)]
        parts.append(f"\nOf [several tables](#settings-of-several-tables): {', '.join(others)}.\n" if others else "")
        parts.append("\n")
    return "".join([*parts, SHARED, "\n\n", _lines(dict(sorted(shared.items())))]).rstrip() + "\n"


def shared_settings(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, Row]:
    """Find settings that mean the same in several tables: for each name the meaning that most of these give it."""
    counted = Counter((name, row.meaning) for lines in rows.values() for name, row in lines.items())
    found: dict[str, Row] = {}
    for (name, meaning), times in counted.most_common():
        if times > 1 and name not in found:
            found[name] = Row("", meaning)
    return found


def _lines(rows: Mapping[str, Row]) -> str:
    """Lay out settings, a line each: tables are too narrow to read on a telephone."""
    return "".join(f"- {_named(name, row.value)}: {row.meaning}\n" for name, row in rows.items())


def _named(name: str, value: str) -> str:
    """Return a setting with its value as TOML has it, or with its kind."""
    if value.startswith("`"):
        return f"`{name} = {value[1:]}"
    return f"`{name}` ({value})" if value else f"`{name}`"


def heading(section: str) -> str:
    """Return the heading of a table's settings."""
    table, _, tag = section.partition(" ")
    if not table:
        return "## At the top of the file\n"
    brackets = "[[{}]]" if table in {"source", "sink", "events"} else "[{}]"
    table = "broker.NAME" if table == "broker" else table
    others = ', `"msgpack"` or `"cbor"`' if tag == "json" else ""
    return f"## `{brackets.format(table)}`" + (f' with `type = "{tag}"`{others}' if tag else "") + "\n"


def _value_and_default(one: Setting) -> str:
    """Cell of a setting's values: the default first, and its kind only where the default does not show it."""
    kind = _value(one.hint)
    if one.default is dataclasses.MISSING:
        return f"{kind}, *needed*"
    if one.default is None or one.default in ((), {}):
        return kind
    default = f"`{toml_value(one.default)}`"
    choices = [] if get_origin(one.hint) is tuple else re.findall(r"`[^`]*`", kind)
    return ", ".join([default, *(choice for choice in choices if choice != default)])


def _value(hint: Any) -> str:
    """Words for a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_value(part) for part in parts if part is not type(None))
    if origin is Literal:
        return ", ".join(f"`{toml_value(part)}`" for part in parts)
    if origin is tuple:
        return f"list of {_values(parts[0])}" if parts[-1] is Ellipsis else f"list of {len(parts)} {_values(parts[0])}"
    if origin is dict:
        return f"table of {_values(parts[1])}"
    return _KINDS.get(hint, "table")


def _values(hint: Any) -> str:
    """Words for several of a type."""
    return re.sub(r"^(text|path|number|whole number|table)\b", r"\1s", _value(hint))


def toml_value(value: Any) -> str:
    """Write a value as TOML does, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(one)}" for key, one in value.items()) + "}"
    if dataclasses.is_dataclass(value):
        return toml_value({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return repr(value) if isinstance(value, int | float) else f'"{value}"'


def _prose(meaning: str) -> str:
    """Text of a docstring for people who write TOML."""
    text = " ".join(_CHOICES.sub("", meaning).split()).replace("``", "`")
    text = re.sub(r" \(`edge_runtime[\w.]*`\)", "", text)
    text = re.sub(r"(^|\. )None\b", r"\1Left out", text).replace("None", "left out")
    text = re.sub(r"\bdocs/((?:decisions/)?([\w-]+)\.md)", r"[\2](\1)", text)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "`", ")")) else ".")


def _meanings(cls: type) -> dict[str, str]:
    """Docstring of each field that has one; those of a base class count, too."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if dataclasses.is_dataclass(one):
            (made,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
            assert isinstance(made, ast.ClassDef)
            for field, said in zip(made.body, made.body[1:], strict=False):
                match field, said:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = inspect.cleandoc(text)
    return found


def _tables_in(hint: Any) -> Iterator[tuple[str, type]]:
    """Dataclasses that a field takes, with their tag."""
    if get_origin(hint) in (Union, types.UnionType, tuple, dict):
        for part in get_args(hint):
            yield from _tables_in(part)
    elif isinstance(hint, schema.OneOf):
        yield from ((tag, where.load()) for tag, where in hint.modules.items())
    elif isinstance(hint, schema.Deferred):
        yield "", hint.load()
    elif dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        yield "", hint


def _documented_as(table: str, tag: str) -> str:
    """Place of a table in the template; the codecs of documents share one, and each source's codec is the same."""
    if table.endswith(".codec"):
        return f"source.codec {'json' if tag in {'msgpack', 'cbor'} else tag}"
    return f"{table} {tag}" if tag else table


if __name__ == "__main__":
    print_or_write(PAGE, page())
