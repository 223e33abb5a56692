"""Unused code: functions, classes and methods of the product that no line of the product uses, found by vulture.

    python -m scripts.unused [--write]

What only a test uses counts as unused; what a template beside the code reads (``known.ranked()``) is used, and so is
what a string of the product or an entry point names (``edge_devices.npu:npu_coral``). Fields, attributes and variables
are left out: vulture cannot see that a dataclass is written as JSON, nor that a library reads an attribute.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from vulture import Vulture
from vulture.core import Item

from scripts.baselines import CHECKOUT, check, product_files

CALLED_BY_LIBRARIES = ("requires", "ensures", "get_next")
"""Methods of onnx-ir's passes, and of ONNX Runtime's calibration reader."""
_NAMED = re.compile(r"\"edge_[\w.]+:(\w+)\"")
_TEMPLATE_CODE = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)


def unused(files: list[Path], root: Path = CHECKOUT) -> set[str]:
    """Return ``path::name`` of all that no file uses, and of arguments and statements that cannot be reached."""
    vulture = Vulture(ignore_names=list(CALLED_BY_LIBRARIES), ignore_decorators=["@command"])
    vulture.scavenge(list(map(str, files)))
    for path in (*files, *root.glob("pyproject.toml"), *root.glob("*/pyproject.toml")):
        vulture.used_names.update(_NAMED.findall(path.read_text("utf-8")))
    for template in {path for file in files for path in file.parent.glob("templates/*.html")}:
        code = " ".join(_TEMPLATE_CODE.findall(template.read_text("utf-8")))
        vulture.used_names.update(re.findall(r"\.(\w+)", code))
    items: list[Item] = [
        *vulture.unused_funcs,
        *vulture.unused_classes,
        *vulture.unused_methods,
        *vulture.unused_props,
        *vulture.unused_imports,
        *vulture.unreachable_code,
    ]
    return {f"{Path(item.filename).relative_to(root)}::{item.name}" for item in items if not item.name.startswith("__")}


def main() -> int:
    """Compare what is unused with the baseline."""
    found = dict.fromkeys(unused(product_files()), 1)
    return check("unused", found, advice="nothing of the product uses it; delete it", arguments=sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
