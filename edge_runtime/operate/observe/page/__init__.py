"""Page of a running application: plain HTML, CSS and JavaScript, read from the package; no build, no other host."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "ask.js": ("ask.js", "text/javascript; charset=utf-8"),
    "draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return content type and bytes of each file, by its path."""
    folder = files(__name__)
    return {path: (kind, folder.joinpath(name).read_bytes()) for path, (name, kind) in _FILES.items()}
