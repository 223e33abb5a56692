"""Command lines made of dataclasses: a field is an option, a dataclass in a field is a group of options.

1. Field ``a_b`` is ``--a-b``; an `operand` has no dashes. Without a default it must be given.
2. ``Annotated[T, parse]`` is read by `parse`, which raises `argparse.ArgumentTypeError`; any other type reads itself.
3. ``bool`` is a flag, ``bool | None`` is ``--x`` and ``--no-x``, ``Literal`` has choices.
4. ``tuple[T, ...]`` is an option that may be repeated, or an operand of several words; ``tuple[T, T]`` takes two words.
5. The default ends the help, unless it is empty or the help tells it.
6. A `ValueError` of ``__post_init__`` is wrong use: options that contradict each other.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, Union

T = TypeVar("T")

_SHORT: Final = {"out": "-o", "verbose": "-v"}


@dataclasses.dataclass(frozen=True, slots=True)
class _Said:
    """Words about a field.

    Attributes:
        help: its meaning; None keeps it out of the help.
        metavar: placeholders of its value.
        operand: it has no dashes.
        words: number of words after one mention, as argparse's ``nargs``.
        one_of: name of the group of which one field at most is given.
    """

    help: str | None
    metavar: str | tuple[str, ...] | None
    operand: bool = False
    words: str | None = None
    one_of: str = ""


def option(
    text: str | None,
    default: Any = dataclasses.MISSING,
    metavar: str | tuple[str, ...] | None = None,
    *,
    words: str | None = None,
    one_of: str = "",
) -> Any:
    """Return the field of an option.

    Args:
        text: meaning for the help; None hides the option, which another program gives.
        default: value where it is not given; without one it must be.
        metavar: placeholder of its value.
        words: ``+`` takes several words after one mention, in place of several mentions.
        one_of: name of a group of fields that exclude each other; one that ends in ``!`` must be given.
    """
    said = _Said(text, metavar, words=words, one_of=one_of)
    return dataclasses.field(default=default, metadata={"said": said})


def operand(text: str, metavar: str, default: Any = dataclasses.MISSING) -> Any:
    """Return the field of an operand, which stands on the command line without dashes."""
    return dataclasses.field(default=default, metadata={"said": _Said(text, metavar, operand=True)})


def add_options(parser: argparse._ActionsContainer, kind: type[Any]) -> None:
    """Declare the fields of a dataclass, and those of its groups."""
    hints = typing.get_type_hints(kind, include_extras=True)
    exclusive: dict[str, argparse._ActionsContainer] = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            title = (hint.__doc__ or "").partition("\n")[0].rstrip(".")
            add_options(parser.add_argument_group(title[:1].lower() + title[1:]), typing.cast("type[Any]", hint))
            continue
        said: _Said = field.metadata["said"]
        if said.one_of and said.one_of not in exclusive:
            exclusive[said.one_of] = parser.add_mutually_exclusive_group(required=said.one_of.endswith("!"))
        names, settings = _argument(field, hint, said)
        exclusive.get(said.one_of, parser).add_argument(*names, **settings)


def build(kind: type[T], found: argparse.Namespace) -> T:
    """Make the dataclass of what the command line says.

    Raises:
        ValueError: its options contradict each other (rule 6).
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            values[field.name] = build(typing.cast("type[Any]", hint), found)
            continue
        given = getattr(found, field.name, None)
        if given is not None and given != []:
            values[field.name] = tuple(given) if isinstance(given, list) else given
    return kind(**values)


class Renamed(argparse.Action):
    """Option of an earlier version: refused by a message that tells its new name, which is its metavar."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        """Refuse it."""
        parser.error(f"{self.option_strings[0]} is now {self.metavar}")


def _argument(field: dataclasses.Field[Any], hint: Any, said: _Said) -> tuple[list[str], dict[str, Any]]:
    """Return the names and the settings with which argparse declares a field."""
    needed = field.default is dataclasses.MISSING
    settings: dict[str, Any] = {"help": _help(field, said), "default": None}
    names = [field.name]
    if not said.operand:  # rule 1
        names = [*filter(None, [_SHORT.get(field.name)]), f"--{field.name.replace('_', '-')}"]
        settings |= {"dest": field.name, "default": argparse.SUPPRESS, "required": needed and not said.one_of}
    if hint is bool:  # rule 3
        return names, settings | {"action": "store_const", "const": True}
    hint = _without_none(hint)
    if hint is bool:
        return names, settings | {"action": argparse.BooleanOptionalAction}
    if said.metavar is not None:
        settings["metavar"] = said.metavar
    if typing.get_origin(hint) is tuple:  # rule 4
        hint, *more = typing.get_args(hint)
        several = (
            {"nargs": "+" if needed or said.words else "*"} if said.operand or said.words else {"action": "append"}
        )
        return names, settings | (several if more == [...] else {"nargs": 1 + len(more)}) | _read(hint)
    if said.operand and not needed:
        settings["nargs"] = "?"
    return names, settings | _read(hint)


def _read(hint: Any) -> dict[str, Any]:
    """Return the settings by which argparse reads a word (rules 2 and 3)."""
    if typing.get_origin(hint) is Annotated:
        return {"type": hint.__metadata__[0]}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint), "type": type(typing.get_args(hint)[0])}
    return {"type": hint}


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) not in (Union, types.UnionType):
        return hint
    return next(one for one in typing.get_args(hint) if one is not type(None))


def _help(field: dataclasses.Field[Any], said: _Said) -> str:
    if said.help is None:
        return argparse.SUPPRESS
    default = field.default
    text = said.help.replace("%", "%%")
    if default in (dataclasses.MISSING, None, False, "", ()) or "(default" in text:  # rule 5
        return text
    return f"{text} (default: {f'{default:g}' if isinstance(default, float) else default})"
