"""Containerfiles, read by what a builder would refuse."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


@dataclass
class Read:
    """What a builder would have to say."""

    problems: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    user: str = "root"


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and argument of each, continuation lines joined; comments are left out, also between continuations."""
    joined: list[str] = []
    open_line = False
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not open_line):
            continue
        part = line.rstrip()
        continues = part.endswith("\\")
        part = part[:-1] if continues else part
        if open_line:
            joined[-1] += part
        else:
            joined.append(part)
        open_line = continues
    found = []
    for line in joined:
        name, _, argument = line.strip().partition(" ")
        found.append((name, argument.strip()))
    return found


def read(text: str, root: Path = ROOT) -> Read:
    """Everything that can be known to be wrong without building."""
    found = Read()
    say = found.problems.append
    arguments: dict[str, str] = {}
    stages: list[str] = []
    contexts = set(re.findall(r"--build-context (\w+)=", text))
    begun = False

    def filled(word: str) -> str:
        for name in re.findall(r"\$\{(\w+)\}", word):
            if name not in arguments:
                say(f"${{{name}}} is not declared")
        return re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), word)

    def vector(name: str, argument: str) -> list[str]:
        try:
            words = json.loads(argument)
        except ValueError:
            words = None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            say(f"{name} is no list of words, so a shell would stand between the signals and the program")
            return []
        return words

    for name, argument in instructions(text):
        if name not in INSTRUCTIONS:
            say(f"unknown instruction {name}")
            continue
        if not argument:
            say(f"{name} says nothing")
            continue
        if not begun and name not in {"ARG", "FROM"}:
            say(f"{name} before FROM")
        match name:
            case "ARG":
                key, _, value = argument.partition("=")
                arguments[key] = value
            case "FROM":
                begun = True
                found.user = "root"
                image, *rest = shlex.split(filled(argument))
                if image not in stages:
                    found.images.append(image)
                    _, colon, tag = image.rpartition("/")[2].partition(":")
                    if not colon or not tag or tag == "latest":
                        say(f"{image} has no tag of its own")
                if rest:
                    if len(rest) != 2 or rest[0].upper() != "AS":
                        say(f"FROM {argument}: what is {' '.join(rest)}?")
                    else:
                        stages.append(rest[1])
            case "COPY" | "ADD":
                words = shlex.split(filled(argument))
                flags = [word for word in words if word.startswith("--")]
                *sources, target = [word for word in words if not word.startswith("--")]
                origin = next((flag.partition("=")[2] for flag in flags if flag.startswith("--from=")), None)
                if origin is not None and origin not in {*stages, *contexts}:
                    say(f"{name} --from={origin}: no such stage or context")
                if not sources:
                    say(f"{name} {argument}: from where?")
                for source in sources if origin is None else []:
                    if not any(root.glob(source.lstrip("/"))):
                        say(f"{name}: {source} does not exist")
                if len(sources) > 1 and not target.endswith("/"):
                    say(f"{name} of several files to {target}, which must end with a slash")
            case "RUN":
                done = subprocess.run(["sh", "-n", "-c", argument], capture_output=True, text=True, check=False)
                if done.returncode:
                    say(f"RUN: {done.stderr.strip()}")
                for used in re.findall(r"\$\{(\w+)\}", argument):
                    filled(f"${{{used}}}")
            case "ENTRYPOINT" | "CMD":
                found.command += vector(name, argument)
            case "VOLUME":
                vector(name, argument)
            case "USER":
                found.user = argument
    if not begun:
        say("no FROM")
    if found.user in {"root", "0"}:
        say("it runs as root")
    return found
