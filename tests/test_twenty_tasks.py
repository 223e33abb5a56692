"""A reader who knows what they want to do comes from the front page to the place that says how in two clicks.

Each task names the words of the links that the reader would pick, and the heading that they end at.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.site import CHECKOUT, headings, named_links, navigation

FRONT = CHECKOUT / "README.md"
HOW = "How do I ..."


class Task(NamedTuple):
    """A question, the links to pick, and the heading of the place that answers."""

    question: str
    clicks: tuple[str, ...]
    heading: str


TASKS = (
    Task("see it work without a sensor of mine?", (HOW, "the demo"), "The demo"),
    Task("get a first label from my phone?", ("my phone",), "From a phone to the first label"),
    Task("read the messages that my sensor sends?", ("my sensor",), "My sensor"),
    Task("read Zigbee2MQTT, Shelly or LoRaWAN?", ("payload cookbook",), "Payload cookbook"),
    Task("read a sensor on a serial port?", (HOW, "sensors without a broker"), "Sensors without a broker"),
    Task("join sensors of several rates?", (HOW, "sensors that send on their own"), "Sensors that send on their own"),
    Task("find out why no answer comes?", (HOW, "when nothing comes out"), "When nothing comes out"),
    Task("run the ONNX file that I have?", ("my model",), "My model"),
    Task("train a model from my recordings?", ("my recordings",), "My recordings"),
    Task("make a model smaller?", (HOW, "smaller files"), "A smaller, faster file of a model that you already have"),
    Task("record live data with labels?", (HOW, "record live traffic"), "Record live traffic"),
    Task("score answers against labels?", (HOW, "compare the answers with labels"), "Compare the answers with labels"),
    Task("get an event in place of answers?", (HOW, "events"), "Events"),
    Task("know what runs on my Raspberry Pi?", ("my board", "Raspberry Pi"), "Raspberry Pi"),
    Task("start it with the machine?", (HOW, "as a service"), "As a service"),
    Task("ask a larger model in the cloud?", ("my cloud",), "My cloud"),
    Task("bring a new model to my devices?", (HOW, "updates over the air"), "Updates over the air"),
    Task("get alarms in Prometheus?", (HOW, "with Prometheus"), "With Prometheus"),
    Task("see answers in Home Assistant?", ("Home Assistant",), "Home Assistant"),
    Task("use it in my Python program?", ("From Python",), "Use it from Python"),
    Task("look up a setting?", ("configuration",), "Configuration"),
    Task("look up an option of a command?", ("commands",), "Commands"),
    Task("keep a secure broker?", (HOW, "security"), "Security"),
)


def heading(page: Path, anchor: str) -> str:
    """The heading that an anchor of a page leads to; without one, the page's title."""
    found = headings(page)
    return found[anchor] if anchor else next(iter(found.values()))


def clicked(place: tuple[Path, str], words: str) -> tuple[Path, str]:
    """Where the link with these words on a page leads to; all links with these words lead to one place."""
    page, _ = place
    targets = {target for text, target in named_links(page) if text.strip("`*") == words}
    assert len(targets) == 1, f"{page.name}: {words!r} is {sorted(targets)}"
    path, _, anchor = targets.pop().partition("#")
    return (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.question)
def test_two_clicks_lead_from_the_front_page_to_the_answer(task: Task) -> None:
    """Mutation that this finds: a page moves or is renamed, and its link goes from the pages that lead there."""
    assert 1 <= len(task.clicks) <= 2
    place = (FRONT, "")
    for words in task.clicks:
        place = clicked(place, words)
    assert heading(*place).strip("`") == task.heading


def test_every_page_with_a_place_in_the_navigation_is_two_clicks_from_the_front_page() -> None:
    def linked(page: Path) -> set[Path]:
        paths = {target.partition("#")[0] for _, target in named_links(page)}
        return {(page.parent / path).resolve() for path in paths if path.endswith(".md")}

    near = linked(FRONT)
    reached = {FRONT} | near | {page for one in near if one.exists() for page in linked(one)}
    assert [str(place.page) for place in navigation() if place.page and place.page not in reached] == []


def test_there_are_twenty_tasks_and_each_ends_elsewhere() -> None:
    assert len(TASKS) >= 20
    assert len({task.heading for task in TASKS}) == len(TASKS)
