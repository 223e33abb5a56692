"""``edge-runtime listen``: what a broker's traffic holds, and the ``[[source]]`` table that reads it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.base.system.printing import escaped
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import bundle_path, existing_file, factor, output_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_runtime.io.mqtt.config import BrokerConfig
    from edge_runtime.manifest import InputContract
    from edge_runtime.tools.listen.capture import Capture
    from edge_runtime.tools.listen.fields import Observation
    from edge_runtime.tools.listen.propose import Proposal
    from edge_runtime.tools.listen.trial import Trial


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "listen",
        help="watch a broker's traffic, and write the [[source]] table for it",
        description=(
            "Watch live MQTT traffic for some seconds, or read a file of captured messages. Show what is understood: "
            "topics, fields, rates, ranges, stamps, and what is no sensor. With a bundle, print the [[source]] table "
            "that feeds it, with a comment at each guess, and try it on the messages. Without one, propose channels "
            "for training. In a terminal, ask about units that nothing tells. Exit code 1: no table was found, or "
            "the model got no window from it."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime listen localhost 'hall/#' --bundle watch.edge --write app.toml\n"
            "  edge-runtime listen mqtts://broker.example:8883 'zigbee2mqtt/+' --seconds 60\n"
            "  mosquitto_sub -v -t 'hall/#' > heard.txt; edge-runtime listen heard.txt --bundle watch.edge"
        ),
    )
    parser.add_argument("broker", metavar="BROKER", help="host, host:port or URL of a broker; or a file of messages")
    parser.add_argument(
        "topics", nargs="*", default=(), metavar="TOPIC", help="topic filters (default: '#', all topics)"
    )
    parser.add_argument("--bundle", type=bundle_path, metavar="FILE.edge", help="the model that is to be fed")
    parser.add_argument("--seconds", type=factor, default=10.0, help="how long to listen (default: 10)")
    parser.add_argument(
        "--write", type=output_file, metavar="APP.toml", help="write an application with this table; never overwrites"
    )
    parser.add_argument("--username", default="", help="for the broker")
    parser.add_argument("--password-file", type=existing_file, metavar="FILE", help="for the broker")
    parser.add_argument("--no-ask", action="store_true", help="ask nothing, in a terminal either")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Listen, report, propose, try, print and write."""
    from edge_runtime.tools.listen.propose import observations_of, propose  # noqa: PLC0415
    from edge_runtime.tools.listen.report import describe  # noqa: PLC0415
    from edge_runtime.tools.listen.training import propose_contract  # noqa: PLC0415

    if options.write is not None and options.write.exists():
        raise ConfigError(f"--write {options.write}: exists already; name another file, or move it away")
    contract, signed = _contract(options.bundle)
    broker, capture, filters = _heard(options)
    if not capture.count:
        raise ConfigError(_silence(options, filters))
    seen = observations_of(capture)
    print("\n".join(describe(capture, seen)))
    wanted = contract or propose_contract(capture, seen)
    proposals = [] if wanted is None else propose(capture, seen, wanted, filters)
    if wanted is None or not proposals:
        print("\n" + _nothing(seen, contract))
        return 1
    proposal = proposals[0] if options.no_ask else asked(proposals[0])
    print("\n" + "\n".join(table.text() for table in proposal.tables))
    if contract is None:
        print(f"# channels proposed for training, at {wanted.rate_hz:g} Hz: edge-runtime record takes this table\n")
    tried = _tried(proposal, capture, seen, wanted)
    if options.write is not None and not tried.problem:
        _write(options, proposal, broker, signed=signed)
    return 0 if _is_ready(proposal, tried, capture, contract) else 1


def _nothing(seen: Mapping[str, Observation], contract: InputContract | None) -> str:
    from edge_runtime.tools.listen.report import describe_unused  # noqa: PLC0415

    if contract is None:
        return "no sensor was heard"
    return "\n".join(filter(None, ["nothing here fits the model", describe_unused(seen, contract)]))


def _tried(proposal: Proposal, capture: Capture, seen: Mapping[str, Observation], wanted: InputContract) -> Trial:
    """Try the table on what was heard, and print what came of it."""
    from edge_runtime.tools.listen.report import describe_trial, describe_unused  # noqa: PLC0415
    from edge_runtime.tools.listen.trial import try_table  # noqa: PLC0415

    tried = try_table([table.data() for table in proposal.tables], capture, wanted)
    print("\n".join(describe_trial(tried, wanted.window / wanted.rate_hz)))
    if proposal.missing:
        print(f"nothing was found for {', '.join(proposal.missing)}: the model gets no window without")
        if line := describe_unused(seen, wanted, proposal):
            print(line)
    return tried


def _is_ready(proposal: Proposal, tried: Trial, capture: Capture, contract: InputContract | None) -> bool:
    """Tell whether the table gives the model windows; print why it gives none."""
    from edge_runtime.tools.listen.report import no_window  # noqa: PLC0415

    if contract is not None and not tried.windows and not tried.problem:
        print(no_window(tried, capture, contract))
    return bool(tried.samples and not proposal.missing and (contract is None or tried.windows))


def _contract(bundle: Path | None) -> tuple[InputContract | None, bool]:
    """Return what a bundle wants, and whether it carries a signature."""
    if bundle is None:
        return None, False
    from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle  # noqa: PLC0415

    with open_bundle(bundle) as opened:
        return opened.manifest.input, SIGNATURE in opened.names


def _heard(options: argparse.Namespace) -> tuple[BrokerConfig, Capture, tuple[str, ...]]:
    """Listen to a broker, or read a file."""
    from edge_runtime.io.recordings.capture import iter_messages  # noqa: PLC0415
    from edge_runtime.tools.listen.broker import broker_config, watch  # noqa: PLC0415
    from edge_runtime.tools.listen.capture import Capture  # noqa: PLC0415

    path = Path(options.broker)
    if path.is_file():
        messages = (message for _, message in iter_messages(path, lambda _error: None))
        return broker_config("localhost"), Capture(messages), tuple(options.topics)
    config = broker_config(options.broker, options.username, options.password_file)
    filters = tuple(options.topics) or ("#",)
    print(f"listening to {', '.join(filters)} for {options.seconds:g} s; Ctrl-C ends it early", file=sys.stderr)
    return config, watch(config, filters, options.seconds), filters


def _silence(options: argparse.Namespace, filters: tuple[str, ...]) -> str:
    if Path(options.broker).is_file():
        return f"{options.broker}: holds no messages as mosquitto_sub -v or mosquitto_sub -F %j writes them"
    others = "" if "#" in filters else "; '#' shows all topics"
    return f"nothing was heard on {', '.join(filters)} in {options.seconds:g} s{others}; --seconds listens longer"


def asked(proposal: Proposal) -> Proposal:
    """Ask for the units that nothing tells, where there is a person to answer."""
    from edge_runtime import units  # noqa: PLC0415
    from edge_runtime.tools.listen.propose import answered, unknown_units  # noqa: PLC0415

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return proposal
    for one in unknown_units(proposal):
        reason = proposal.units[one.channel.name].reason
        question = f"{one.channel.name}, from {one.candidate.shown}: in which unit? {reason} [{one.channel.unit}] "
        while True:
            unit = input(escaped(question)).strip() or one.channel.unit
            try:
                units.convert(unit, one.channel.unit)
            except units.UnitError as error:
                print(f"  {error}")
                continue
            proposal = answered(proposal, one, unit)
            break
    return proposal


def _write(options: argparse.Namespace, proposal: Proposal, broker: BrokerConfig, *, signed: bool) -> None:
    from edge_runtime.tools.listen.application import application  # noqa: PLC0415

    path: Path = options.write
    text = application(proposal.tables, broker, options.bundle, path.parent, signed=signed)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"--write {path}: cannot be written: {error.strerror or error}") from None
    step = f"edge-runtime run --check {path}" if options.bundle else f"edge-runtime record {path} --out FILE.csv"
    if proposal.missing:
        step = f"name a field for {', '.join(proposal.missing)} in it"
    print(f"wrote {path}; next: {step}")
