"""Options of a command as its function gets them."""

from __future__ import annotations

import argparse
from typing import TypeVar

from edge_runtime.tools.cli.options import add_options, build

T = TypeVar("T")


def parsed(kind: type[T], *words: object) -> T:
    parser = argparse.ArgumentParser()
    add_options(parser, kind)
    return build(kind, parser.parse_args([str(word) for word in words]))
