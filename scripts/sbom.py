"""Software bills of materials: CycloneDX 1.6 as JSON, beside each wheel and each Debian package.

Parts, versions and who needs whom are those of locks/; licences are those of installed metadata. Neither the serial
number nor the time is drawn: the number follows from the file's bytes, the time is that of the commit. The same file
has the same bill.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from scripts.locks import PROJECT, Pin

VERSION = SchemaVersion.V1_6
_SPACE = uuid.UUID("5d0fbb4c-7f0b-5f5e-9c4e-2f3a7d0c9b11")
"""Serial numbers of our bills are made in it."""


@dataclass(frozen=True, slots=True)
class Product:
    """File that a bill is of.

    Attributes:
        path: the file.
        kind: of package, as a package URL names it: ``pypi`` or ``deb``.
        name: of the package.
        version: of the package.
        qualifiers: of the package URL, as ``{"arch": "arm64"}``.
    """

    path: Path
    kind: str
    name: str
    version: str
    qualifiers: Mapping[str, str]


def licences(folders: Sequence[Path] | None = None) -> dict[tuple[str, str], str]:
    """Return the licence by name and version of what is installed in folders; None: in the running environment."""
    found = distributions() if folders is None else distributions(path=[str(folder) for folder in folders])
    return {(canonicalize_name(one.name), one.version): text for one in found if (text := _licence(one))}


def _licence(distribution: Distribution) -> str:
    """Return the licence as the package states it: SPDX expression, a line, else classifiers; empty: none."""
    metadata = distribution.metadata
    assert isinstance(metadata, Message)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [str(one) for one in metadata.get_all("Classifier", [])]
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    line = str(metadata.get("License", "")).strip()
    return line if line and "\n" not in line and len(line) < 80 else " OR ".join(named)


def write(product: Product, parts: Iterable[Pin], stated: Mapping[tuple[str, str], str], when: int) -> Path:
    """Write the bill beside the file, under its name with ``.cdx.json``.

    Args:
        product: what it is of.
        parts: what comes with it, or is installed with it.
        stated: licences by name and version.
        when: seconds since 1970 of the commit.
    """
    digest = hashlib.sha256(product.path.read_bytes()).hexdigest()
    purl = PackageURL(product.kind, None, product.name, product.version, dict(product.qualifiers))
    ours = Component(
        name=product.name,
        version=product.version,
        type=ComponentType.APPLICATION,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    time = dt.datetime.fromtimestamp(when, dt.timezone.utc)
    bill = Bom(
        serial_number=uuid.uuid5(_SPACE, digest),
        metadata=BomMetaData(component=ours, timestamp=time, tools=[]),
    )
    by_name: dict[str, list[Component]] = {}
    needed: dict[str, set[str]] = {}
    for part in _merged(parts):
        component = _component(part, stated.get((part.name, part.version)))
        bill.components.add(component)
        by_name.setdefault(part.name, []).append(component)
        for one in part.wanted_by:
            needed.setdefault(product.name if one == PROJECT else one, set()).add(part.name)
    by_name[product.name] = [ours]
    for name, components in by_name.items():
        for component in components:
            needs = (one for need in sorted(needed.get(name, ())) for one in by_name[need])
            bill.register_dependency(component, needs)
    text = make_outputter(bill, OutputFormat.JSON, VERSION).output_as_string(indent=2)
    path = product.path.with_name(product.path.name + ".cdx.json")
    path.write_text(text + "\n", "utf-8")
    return path


def _merged(parts: Iterable[Pin]) -> list[Pin]:
    """Return one part for each name and version: several locks may name it, wanted by others in each."""
    found: dict[tuple[str, str], list[Pin]] = {}
    for part in parts:
        found.setdefault((part.name, part.version), []).append(part)
    merged = []
    for (name, version), same in sorted(found.items()):
        markers = {part.marker for part in same}
        wanted_by = tuple(sorted({one for part in same for one in part.wanted_by}))
        marker = None if None in markers else " or ".join(sorted(f"({one})" for one in markers if one))
        merged.append(Pin(name, version, marker, same[0].hashes, wanted_by))
    return merged


def _component(part: Pin, licence: str | None) -> Component:
    purl = PackageURL("pypi", None, part.name, part.version)
    return Component(
        name=part.name,
        version=part.version,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[_stated(licence)] if licence else [],
        # Of several wheels, one is installed, and which one depends on the machine: locks/ has their hashes.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in part.hashes if len(part.hashes) == 1],
        properties=[Property(name="edge-runtime:marker", value=part.marker)] if part.marker else [],
    )


def _stated(text: str) -> License:
    """Return the licence as SPDX where the text is that, else as a name."""
    spdx = {"MIT License": "MIT", "Apache Software License": "Apache-2.0", "Apache 2.0": "Apache-2.0"}
    return LicenseFactory().make_from_string(spdx.get(re.sub(r"\s+", " ", text), text))
