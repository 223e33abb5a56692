"""Unsigned bundles written again: with another filling rule, or with float ONNX files in a faster form.

::

    python -m edge_export.package.repack examples/exercise-watch/teacher.edge --fill first
    python -m edge_export.package.repack examples/exercise-watch/watch.edge examples/exercise-watch/teacher.edge
    --conv2d

The same bundle gives the same bytes on every run; one that says so already is left as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx

from edge_export.onnx_graph.canonicalise import clean
from edge_export.onnx_graph.conv2d import as_conv2d
from edge_export.package.pack import VariantSource, golden_outputs
from edge_export.package.put_in_place import put_in_place
from edge_runtime import manifest
from edge_runtime.bundle import archive, npy
from edge_runtime.bundle.bundle import MANIFEST, SIGNATURE, open_bundle
from edge_runtime.engines.base import EngineOptions
from edge_runtime.errors import BundleError, EdgeError
from edge_runtime.manifest import File, Manifest


def repack(path: Path, fill: Literal["", "first"]) -> bool:
    """Set how a server fills the missing beginning of a window (`InputContract.fill`).

    Args:
        path: the ``.edge`` file; replaced in one step.
        fill: the rule that its model was trained with.

    Returns:
        Whether the file was changed.

    Raises:
        BundleError: it is no bundle, is signed, or cannot be written.
    """
    before, files = _unsigned(path)
    return _write(path, before, replace(before, input=replace(before.input, fill=fill)), files)


def repack_conv2d(paths: Sequence[Path]) -> list[bool]:
    """Write the Conv1d of float ONNX files as Conv2d, and compute their golden outputs again.

    Args:
        paths: ``.edge`` files; each is replaced in one step. Give a device's bundle and its teacher's together: the
            former names the latter's model by digest.

    Returns:
        Whether each file was changed.

    Raises:
        BundleError: one is no bundle, is signed, or cannot be written.
        EngineError: onnxruntime refuses a model.
    """
    bundles = [(path, *_unsigned(path)) for path in paths]
    renewed: dict[str, str] = {}
    for _, before, files in bundles:
        for variant in before.variants:
            if variant.format == "onnx" and variant.precision == "fp32":
                given = onnx.load_model_from_string(files[variant.file])
                if (changed := as_conv2d(given)) is not given:
                    files[variant.file] = clean(changed).SerializeToString()
                    renewed[variant.sha256] = _sha256(files[variant.file])
    return [_write(path, before, _renewed(before, files, renewed), files) for path, before, files in bundles]


def _renewed(before: Manifest, files: dict[str, bytes], renewed: dict[str, str]) -> Manifest:
    """The manifest of changed models; their golden outputs are changed in `files`."""
    variants = []
    for variant in before.variants:
        model = files[variant.file]
        if _sha256(model) != variant.sha256:
            source = VariantSource(
                name=variant.name,
                model=model,
                format=variant.format,
                precision=variant.precision,
                layout=variant.layout,
            )
            inputs = npy.parse(files[before.golden_inputs])
            files[variant.golden] = npy.dump(golden_outputs(source, inputs, before.output, EngineOptions()))
        variants.append(replace(variant, size=len(model), sha256=_sha256(model)))
    return replace(
        before,
        variants=tuple(variants),
        files=tuple(
            File(file=each.file, size=len(files[each.file]), sha256=_sha256(files[each.file])) for each in before.files
        ),
        provenance={
            name: renewed.get(value, value) if isinstance(value, str) else value
            for name, value in before.provenance.items()
        },
    )


def _unsigned(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Manifest and files of a bundle that no signature holds together."""
    with open_bundle(path) as bundle:
        if SIGNATURE in bundle.names:
            raise BundleError(
                f"{path.name} is signed, and a changed manifest breaks the signature; repack the unsigned bundle"
            )
        return bundle.manifest, {name: bundle.file(name) for name in bundle.names if name != MANIFEST}


def _write(path: Path, before: Manifest, after: Manifest, files: dict[str, bytes]) -> bool:
    if after == before:
        return False
    put_in_place(path, archive.pack({MANIFEST: manifest.dump(after), **files}))
    return True


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m edge_export.package.repack",
        description="Write unsigned bundles again: with another filling rule, or with faster float ONNX files.",
        epilog="example: python -m edge_export.package.repack examples/exercise-watch/teacher.edge --fill first",
    )
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="unsigned .edge file; replaced")
    parser.add_argument("--fill", choices=["", "first"], help="how a window's beginning is filled, as in training")
    parser.add_argument(
        "--conv2d", action="store_true", help="write float Conv1d as Conv2d, which onnxruntime has faster"
    )
    options = parser.parse_args(arguments)
    if options.fill is None and not options.conv2d:
        parser.error("say what to change: --fill or --conv2d")
    try:
        changed = [options.fill is not None and repack(path, options.fill) for path in options.bundles]
        if options.conv2d:
            changed = [a or b for a, b in zip(changed, repack_conv2d(options.bundles), strict=True)]
    except EdgeError as error:
        print(f"edge_export.package.repack: {error}", file=sys.stderr)
        return 2
    for path, written in zip(options.bundles, changed, strict=True):
        print(f"{path}: {'written' if written else 'says so already'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
