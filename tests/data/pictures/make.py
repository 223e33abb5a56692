"""Writes resized.npz: small pictures, and what Pillow makes of them. Run: python tests/data/pictures/make.py

Made with Pillow 12.3.0. Pillow 13 takes the cheaper of the two passes first, which may differ by 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZES = [
    ((9, 16), (4, 5)),
    ((9, 16), (20, 31)),
    ((40, 11), (7, 24)),
    ((37, 53), (20, 91)),
    ((8, 8), (8, 3)),
    ((1, 2), (3, 3)),
]


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(7)
    arrays: dict[str, Any] = {}
    for i, ((h, w), (height, width)) in enumerate(SIZES):
        picture = rng.integers(0, 256, (h, w, 3), dtype=np.uint8)
        image = Image.fromarray(picture)
        arrays[f"from_{i}"] = picture
        arrays[f"to_{i}"] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        arrays[f"grey_{i}"] = np.asarray(image.convert("L"))
    np.savez_compressed(Path(__file__).parent / "resized.npz", **arrays)


if __name__ == "__main__":
    main()
