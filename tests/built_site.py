"""The documentation's site, built for a test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scripts import site

MKDOCS = site.CHECKOUT / ".venvs" / "docs" / "bin" / "mkdocs"


def build(folder: Path) -> Path:
    """Build the site as `make docs` does, below a folder; return the folder of its pages."""
    site.write(folder / "pages")
    (folder / "mkdocs.yml").write_text(f"INHERIT: {site.CHECKOUT}/mkdocs.yml\ndocs_dir: pages\nsite_dir: site\n")
    done = subprocess.run(
        [MKDOCS, "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"
