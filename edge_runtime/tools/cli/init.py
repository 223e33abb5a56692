"""``edge-runtime init``: an application of one's own, and its service, from five questions."""

from __future__ import annotations

import sys

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.init_options import InitOptions
from edge_runtime.tools.cli.program import CommandAnswer, aside, command


@command(
    "init",
    "ask five questions, and write an application and its service",
    "Ask for broker, topic, bundle, cloud and Home Assistant; check the application as `run --check` "
    "does; then write it, and a systemd unit for it. An option that is given is not asked for. Without a terminal "
    "the answers are lines of standard input, in that order; where they end, there is no cloud and no Home "
    "Assistant. Nothing is overwritten, and nothing is left of a run that fails or is interrupted. A password "
    "that is typed goes into a file of its own, with mode 0600.",
    "init",
    "init app.toml --broker localhost --topic 'watch/+/imu' --bundle exercise-watch",
    "$ printf '%s\\n' localhost 'watch/+/imu' exercise-watch | edge-runtime init",
    "$ sudo edge-runtime init /etc/watch/app.toml --name watch --broker hub --topic listen --bundle watch.edge",
)
def run(options: InitOptions) -> CommandAnswer:
    """Ask, listen, check and write."""
    from edge_runtime.tools.cli import init_questions, setting_up  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        place = setting_up.place_of(options)
        with aside(options):
            return setting_up.write(place, init_questions.answers_of(options), options)
    except EOFError:
        raise ConfigError("init: the answers ended before the questions did; nothing was written") from None
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was written", file=sys.stderr)
        raise
