"""Commands to type next, with the names of this build's files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from edge_export.report.figures import BuildMetrics
from edge_export.report.verdict import verdict


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command and what it does."""

    does: str
    command: str


def next_steps(known: BuildMetrics) -> list[NextStep]:
    """Return commands in the order of use, to be typed in the folder of the page; none where no bundle is known."""
    device, cloud = (name and shlex.quote(name) for name in known.bundle_names())
    if not device:
        return []
    alone = any(finding.rule == "cloud" and not finding.good for finding in verdict(known))
    signed = " ".join(name for name in (device, "" if alone else cloud) if name)
    init = f"edge-runtime init app.toml --bundle {device} --trusted-key release.pub.pem"
    init += " --cloud none" if alone else ""
    steps = [
        NextStep("Let it answer the test recordings", f"edge-runtime replay {device} test.npz --out answers.jsonl"),
        NextStep("Measure it on this machine", f"edge-runtime bench {device}"),
        NextStep("Make a key, once", "edge-export keys new release.pem"),
        NextStep("Sign what devices will run", f"edge-export sign {signed} --key release.pem"),
        NextStep(
            "Make an application of your broker and topic",
            init,
        ),
        NextStep("Run it", "edge-runtime run app.toml"),
    ]
    if cloud and not alone:
        serve = NextStep(
            "Serve the cloud's model", f"edge-runtime serve {cloud} --trusted-key release.pub.pem --port 8000"
        )
        steps.insert(4, serve)
    return steps
