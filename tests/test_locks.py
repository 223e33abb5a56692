"""What stands in locks/ is what pyproject.toml asks for. Changed requirements and forgotten locks end here.

Mutations that were seen to fail: a requirement added to an extra; a pin raised in pyproject.toml alone; a hash deleted.
"""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts import locks

ROOT = Path(__file__).resolve().parents[1]
PROJECT, WORKSTATION = locks.projects()
FILES = {path.stem: path.read_text("utf-8") for path in sorted(locks.FOLDER.glob("*.txt"))}

MACHINES = list(itertools.product(locks.PYTHONS, ("x86_64", "aarch64", "armv7l")))


def environment(python: str, processor: str) -> dict[str, str]:
    """What markers ask about on a board."""
    return {
        "python_version": python, "python_full_version": f"{python}.4", "platform_machine": processor,
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": "",
        "platform_python_implementation": "CPython", "implementation_name": "cpython",
    }  # fmt: skip


def logical_lines(text: str) -> Iterator[str]:
    """A requirement each, with its options; comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            yield line.strip()


@functools.cache
def installed(text: str, python: str, processor: str) -> dict[str, list[Version]]:
    """What a lock puts onto a machine."""
    found: dict[str, list[Version]] = {}
    for name, version, marker in locks.pins(text):
        if marker is None or Marker(marker).evaluate(environment(python, processor)):
            found.setdefault(name, []).append(Version(version))
    return found


def disagreements(project: Mapping[str, Any], files: dict[str, str]) -> list[str]:
    """Everything that a lock does not say of what the project wants; nothing if all is well."""
    wanted = locks.wanted(project, WORKSTATION)
    said = [f"locks/{name}.txt is missing" for name in wanted if name not in files]
    said += [f"locks/{name}.txt is nobody's" for name in files if name not in wanted]
    for name, text in files.items():
        for python, processor in MACHINES:
            there = installed(text, python, processor)
            said += [f"{name}: {package} twice" for package, versions in there.items() if len(versions) > 1]
            for need in map(Requirement, wanted.get(name, [])):
                package = canonicalize_name(need.name)
                by_the_system = locks.SYSTEM.get(name) == package and processor == "armv7l"
                elsewhere = need.marker and not need.marker.evaluate(environment(python, processor))
                if package == locks.TORCH or by_the_system or elsewhere:
                    continue
                for version in there.get(package, [None]):
                    if version is None or version not in need.specifier:
                        said.append(f"{name}: {need} is {version}")
    return sorted(set(said))


def malformed(text: str) -> list[str]:
    """Lines of a lock that pip would not check, or that say where from."""
    options = r"://|(?<!\S)-[eifrc]\b|index-url|find-links|trusted-host"
    wrong = [line for line in text.splitlines() if re.search(options, line)]
    for line in logical_lines(text):
        if not (locks.pins(re.sub(r" --hash=\S+", "", line)) and re.search(r" --hash=sha256:[0-9a-f]{64}(?!\S)", line)):
            wrong.append(line)
    return wrong


def test_the_locks_agree_with_what_the_project_asks_for() -> None:
    assert disagreements(PROJECT, FILES) == []


@pytest.mark.parametrize("name", FILES)
def test_every_package_has_a_version_and_hashes_and_no_address(name: str) -> None:
    assert malformed(FILES[name]) == []
    assert len(list(logical_lines(FILES[name]))) == len(locks.pins(FILES[name]))


def test_what_is_installed_together_has_one_version() -> None:
    for python, processor in MACHINES:
        seen: dict[str, tuple[str, Version]] = {}
        for name, text in FILES.items():
            if name in locks.APART:
                continue
            for package, (version,) in installed(text, python, processor).items():
                other, known = seen.setdefault(package, (name, version))
                assert version == known, f"{package}: {known} in {other}, {version} in {name}"


def test_both_distributions_have_one_version() -> None:
    device, workstation = (ROOT / place / "_version.py" for place in ("edge_runtime", "export/edge_export"))
    assert device.read_text("utf-8") == workstation.read_text("utf-8")


def test_no_lock_brings_torch_or_what_its_gpu_build_needs() -> None:
    names = {package for text in FILES.values() for package, _, _ in locks.pins(text)}
    assert not [name for name in names if re.match(r"torch$|nvidia-|cuda-|triton$", name)]


CHANGES: dict[str, tuple[str, Callable[[list[str]], list[str] | None], str]] = {
    "a new requirement": ("optional-dependencies.serial", lambda needs: [*needs, "tomlkit"], "serial: tomlkit is None"),
    "a raised bound": ("dependencies", lambda needs: [*needs, "orjson>=99"], "onnx: orjson>=99 is 3"),
    "a lowered bound": ("dependencies", lambda needs: [*needs, "numpy<1.25"], "tflite: numpy<1.25 is 2"),
    "a new extra": ("optional-dependencies.lora", lambda _: ["pyserial"], "locks/lora.txt is missing"),
    "a dropped extra": ("optional-dependencies.codecs", lambda _: None, "locks/codecs.txt is nobody's"),
    "another test tool": ("dependency-groups.test", lambda needs: [*needs[1:], "pytest==9.0.0"], "pytest==9.0.0 is"),
    "another build tool": ("build-system.requires", lambda _: ["flit-core"], "build: flit-core is None"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_requirement_without_new_locks_is_found(change: str) -> None:
    where, edit, problem = CHANGES[change]
    project: dict[str, Any] = copy.deepcopy(dict(PROJECT))
    *path, last = where.split(".")
    table = project["project"] if path[:1] not in (["dependency-groups"], ["build-system"]) else project
    for key in path:
        table = table[key]
    table[last] = edit(table.get(last, []))
    if table[last] is None:
        del table[last]
    assert problem in " | ".join(disagreements(project, FILES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r" \\\n +--hash=\S+", ""),
        (r"sha256:\w+", "sha256:abc"),
        (r"sha256:", "md5:"),
        (r"==\S+", ">=1"),
        (r"\A", "--extra-index-url https://example.org/simple\n"),
        (r"\A", "--find-links wheels\n"),
        (r"\A", "-e .\n"),
        (r"==\S+", " @ https://example.org/a-1-py3-none-any.whl"),
    ],
)
def test_a_line_that_pip_could_not_check_is_found(old: str, new: str) -> None:
    text = FILES["serial"]
    assert malformed(text) == []
    assert malformed(re.sub(old, new, text))


def test_the_audit_asks_about_every_version_of_every_lock() -> None:
    first = "numpy==1.26.4 ; python_version < '3.12' \\\n    --hash=sha256:1\nnumpy==2.4.6 ; python_version >= '3.12'\n"
    second = "# said by a person\norjson==3.13.0 \\\n    --hash=sha256:2\nnumpy==2.4.6\n    # via a==1\n"
    assert locks.rounds([first, second, "torch==2.13.0"]) == [
        ["numpy==1.26.4", "orjson==3.13.0", "torch==2.13.0"],
        ["numpy==2.4.6"],
    ]
    asked = {line for lines in locks.rounds(FILES.values()) for line in lines}
    assert asked == {f"{name}=={version}" for text in FILES.values() for name, version, _ in locks.pins(text)}


@pytest.mark.parametrize("worst", [0, 1])
def test_the_audit_asks_strictly_and_ends_as_the_worst_answer(
    worst: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stands for pip-audit: writes down what it is asked, and is unhappy about one version, which is in the second turn.
    fake = """
import pathlib, sys
wanted = pathlib.Path(sys.argv[sys.argv.index("-r") + 1]).read_text()
with open("asked", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n" + wanted)
sys.exit(WORST if "a==2" in wanted.split() else 0)
"""
    (tmp_path / "pip_audit.py").write_text(fake.replace("WORST", str(worst)), "utf-8")
    (tmp_path / "one.txt").write_text("a==1\nb==1\n", "utf-8")
    (tmp_path / "two.txt").write_text("a==2\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(locks, "FOLDER", tmp_path)
    assert locks.audit(["torch==2.13.0", "--vulnerability-service", "osv"]) == worst
    asked = (tmp_path / "asked").read_text("utf-8")
    assert asked.count("--strict") == asked.count("--vulnerability-service osv\n") == 2
    assert [line for line in asked.splitlines() if "==" in line] == ["a==1", "b==1", "torch==2.13.0", "a==2"]


def test_an_audit_of_nothing_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "FOLDER", tmp_path)
    assert locks.audit([]) != 0
