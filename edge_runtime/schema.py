"""From plain dictionaries (TOML, JSON) to frozen dataclasses, and nothing unknown gets through.

One loader serves the configuration, the manifest of a bundle and the cards of the export toolchain, so that all of
them refuse a typo the same way: by naming the place, the key, and the key that was probably meant.

Supported field types: ``bool int float str Path``, ``Literal``, ``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]``,
``dict[str, X]``, nested dataclasses, `OneOf` several dataclasses, told apart by the table's ``type``, and `Deferred`
ones.
Integers are accepted where a float is expected, never the other way round, and a bool is never a number.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Deferred:
    """A dataclass whose module is imported only when the data has a table for it. Type checkers are given the class.

    Args:
        where: ``module:Class``.
    """

    def __init__(self, where: str) -> None:
        self._where = where

    def __call__(self) -> None:
        """Make it acceptable as a type argument (``tuple[X, ...]``); never called."""

    def __or__(self, other: Any) -> Any:
        """``Deferred(...) | None``, as for a class."""
        return Union[self, other]  # noqa: UP007 - that spelling is what this method defines

    def load(self) -> type:
        """Import the class."""
        cls = getattr(self.module(), self._where.partition(":")[2])
        assert isinstance(cls, type)
        return cls

    def module(self) -> types.ModuleType:
        """Import the module of the class."""
        return importlib.import_module(self._where.partition(":")[0])


class Packaged(Deferred):
    """A `Deferred` dataclass of another package, which may not be installed.

    Args:
        where: ``module:Class``.
        install: command that installs the package.
    """

    def __init__(self, where: str, install: str) -> None:
        super().__init__(where)
        self._install = install

    def module(self) -> types.ModuleType:
        """Import the module of the class.

        Raises:
            ValueError: the package is not installed, or fails; says how to mend it.
        """
        package = self._where.partition(".")[0].partition(":")[0]
        try:
            return super().module()
        except ModuleNotFoundError as error:
            if error.name == package:
                raise ValueError(f"needs the package {package}; run: {self._install}") from None
            raise ValueError(f"needs {error.name}; run: {self._install}") from None
        except Exception as error:
            raise ValueError(f"its package {package} cannot be loaded: {type(error).__name__}: {error}") from error


class OneOf:
    """One of several dataclasses, chosen by a key of the table; only the chosen one's module is imported.

    A board pays for every import with a few milliseconds at start-up, so an application that reads MQTT and writes
    MQTT does not import webhooks and Parquet. Type checkers are given the union of the classes instead.

    Other packages add dataclasses by entry points: ``NAME = "module:Class"`` in `group`. They are asked for only where
    a file names what is not listed here.

    Args:
        key: name of the key that tells the classes apart.
        default: its value where the table has none; empty: it must have one.
        group: group of entry points that add to the classes; empty: none.
        modules: ``module:Class`` by the value of `key`.
    """

    def __init__(self, key: str = "type", default: str = "", group: str = "", /, **modules: str | Deferred) -> None:
        self.key = key
        self.default = default
        self.group = group
        self.modules = {tag: Deferred(one) if isinstance(one, str) else one for tag, one in modules.items()}

    def __call__(self) -> None:
        """Make it acceptable as a type argument (``tuple[X, ...]``); never called."""

    def __or__(self, other: Any) -> Any:
        """``OneOf(...) | None``, as for a class."""
        return Union[self, other]  # noqa: UP007 - that spelling is what this method defines

    def load(self, tag: str) -> type:
        """Import the class for a value of the key."""
        return self.find(tag)[tag].load()

    def module(self, tag: str) -> types.ModuleType:
        """Import the module of the class for a value of the key."""
        return self.find(tag)[tag].module()

    def find(self, tag: str) -> Mapping[str, Deferred]:
        """Return the classes by the value of the key; with those of other packages where `tag` is none of ours."""
        if not self.group or tag in self.modules:
            return self.modules
        from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms, for a name that is not ours

        installed = entry_points(group=self.group)
        theirs = {one.name: Packaged(one.value, _reinstall(one)) for one in installed if one.name not in self.modules}
        return {**self.modules, **theirs}


def _reinstall(entry: EntryPoint) -> str:
    return f"pip install --force-reinstall {entry.dist.name}" if entry.dist is not None else "pip check"


READ_PATH: Final = "read_path"
"""Key of a `Path` field's metadata: the function that makes the path, of the text and of the folder that relative ones
are taken from, and raises ValueError where it cannot."""

PathOfKeys = tuple[str | int, ...]


class SchemaError(ValueError):
    """A value does not fit the dataclass it is loaded into.

    Attributes:
        where: keys and list positions that lead to the place, outermost first.
    """

    def __init__(self, message: str, where: PathOfKeys) -> None:
        super().__init__(message)
        self.where = where

    def dotted(self) -> str:
        """Render the place as people write it, for example ``sink[1].topic``."""
        text = ""
        for part in self.where:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def load(cls: type[T], data: Any, *, where: PathOfKeys = (), base: Path | None = None) -> T:
    """Build a dataclass from a mapping, refusing unknown keys, missing keys and wrong types.

    Args:
        cls: a dataclass type; its ``__post_init__`` may raise ValueError for values that do not make sense.
        data: what a TOML or JSON parser returned.
        where: prefix for the place named in errors.
        base: folder against which relative `Path` fields are resolved; None leaves them as written.

    Raises:
        SchemaError: the data does not fit; `where` leads to the offending value.
    """
    value = _convert(cls, data, where, base)
    assert isinstance(value, cls)
    return value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _dataclass(cls: Any, data: Any, where: PathOfKeys, base: Path | None) -> Any:
    if not isinstance(data, Mapping):
        raise SchemaError(f"expected a table of settings, got {_describe(data)}", where)
    hints = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in data:
        if key not in fields:
            raise SchemaError(_unknown(str(key), list(fields)), (*where, str(key)))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _field(field, hints[name], data[name], (*where, name), base)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaError(f"'{name}' is missing", where)
    try:
        return cls(**values)
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(str(error), where) from error


RENAMED: Final = {"journal": "reading_log"}
"""Keys of configurations before 0.1.0, by their new name; an old key is refused by a message that names the new one."""


def _unknown(key: str, known: list[str]) -> str:
    if (new := RENAMED.get(key)) in known:
        return f"'{key}' has a new name: write '{new}'"
    near = _nearest(key, known)
    if near:
        return f"unknown key '{key}'; did you mean '{near[0]}'?"
    return f"unknown key '{key}'; known here: {', '.join(sorted(known))}"


def _nearest(word: str, known: list[str]) -> list[str]:
    import difflib  # noqa: PLC0415 - only where something is wrong

    return difflib.get_close_matches(word, known, n=1, cutoff=0.5)


def _convert(hint: Any, data: Any, where: PathOfKeys, base: Path | None) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(get_args(hint), data, where, base)
    if origin is Literal:
        return _choice(get_args(hint), data, where)
    if origin is tuple:
        return _tuple(get_args(hint), data, where, base)
    if origin is dict:
        if not isinstance(data, Mapping):
            raise SchemaError(f"expected a table, got {_describe(data)}", where)
        (_key, item) = get_args(hint)
        return {str(key): _convert(item, value, (*where, str(key)), base) for key, value in data.items()}
    if isinstance(hint, OneOf):
        return _one_of(hint, data, where, base)
    if isinstance(hint, Deferred):
        return _dataclass(hint.load(), data, where, base)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, data, where, base)
    return _scalar(hint, data, where, base)


def _field(field: dataclasses.Field[Any], hint: Any, data: Any, where: PathOfKeys, base: Path | None) -> Any:
    read = field.metadata.get(READ_PATH)
    if read is None or not isinstance(data, str):
        return _convert(hint, data, where, base)
    try:
        return read(data, base)
    except ValueError as error:
        raise SchemaError(str(error), where) from error


def _tuple(items: tuple[Any, ...], data: Any, where: PathOfKeys, base: Path | None) -> Any:
    if not isinstance(data, list | tuple):
        raise SchemaError(f"expected a list, got {_describe(data)}", where)
    if items[-1] is Ellipsis:
        items = items[:1] * len(data)
    elif len(data) != len(items):
        raise SchemaError(f"expected a list of {len(items)}, got one of {len(data)}", where)
    pairs = zip(items, data, strict=True)
    return tuple(_convert(item, value, (*where, i), base) for i, (item, value) in enumerate(pairs))


def _union(members: tuple[Any, ...], data: Any, where: PathOfKeys, base: Path | None) -> Any:
    if data is None and type(None) in members:
        return None
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        return _convert(members[0], data, where, base)
    problems: list[SchemaError] = []
    for member in members:
        try:
            return _convert(member, data, where, base)
        except SchemaError as error:
            problems.append(error)
    raise problems[0]


def _one_of(choice: OneOf, data: Any, where: PathOfKeys, base: Path | None) -> Any:
    if not isinstance(data, Mapping):
        raise SchemaError(f"expected a table of settings, got {_describe(data)}", where)
    tag = data.get(choice.key, choice.default or None)
    if tag is None:
        raise SchemaError(f"'{choice.key}' is missing; one of: {', '.join(sorted(choice.modules))}", where)
    found = choice.find(str(tag))
    deferred = found[_choice(tuple(found), tag, (*where, choice.key))]
    try:
        cls = deferred.load()
    except ValueError as error:
        raise SchemaError(f"'{tag}' {error}", (*where, choice.key)) from None
    if not any(field.name == choice.key for field in dataclasses.fields(cls)):
        # A class that is at home elsewhere need not know what a file calls it.
        data = {key: value for key, value in data.items() if key != choice.key}
    return _dataclass(cls, data, where, base)


def _choice(choices: tuple[Any, ...], data: Any, where: PathOfKeys) -> Any:
    for choice in choices:
        if data == choice and type(data) is type(choice):
            return choice
    near = _nearest(str(data), [str(choice) for choice in choices])
    digits = ["".join(filter(str.isdigit, str(name))) for name in (data, *near[:1])]
    hint = f"; did you mean {near[0]!r}?" if near and digits[0] == digits[1] else ""  # int24 is no int32
    raise SchemaError(f"must be one of {', '.join(repr(c) for c in choices)}, got {data!r}{hint}", where)


def _scalar(hint: Any, data: Any, where: PathOfKeys, base: Path | None) -> Any:
    if hint is Any:
        return data
    if hint is float and isinstance(data, int | float) and not isinstance(data, bool):
        if not math.isfinite(data):
            raise SchemaError(f"expected a finite number, got {data}", where)
        return float(data)
    if hint is int and isinstance(data, int) and not isinstance(data, bool):
        return data
    if hint is Path and isinstance(data, str):
        path = Path(data).expanduser()
        return path if base is None else base / path
    if hint in (bool, str) and isinstance(data, hint):
        return data
    name = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
    raise SchemaError(f"expected {name.get(hint, str(hint))}, got {_describe(data)}", where)


def _describe(data: Any) -> str:
    names = {bool: "true/false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    kind = names.get(type(data), type(data).__name__)
    return f"{kind} ({data!r})" if isinstance(data, bool | int | float | str) and len(repr(data)) <= 40 else kind
