"""``edge-runtime listen``: what a broker's traffic holds, and the ``[[source]]`` table that reads it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.base.system.printing import escaped
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile, Factor, OutputFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_runtime.io.mqtt.config import BrokerConfig
    from edge_runtime.manifest import InputContract
    from edge_runtime.tools.listen.capture import Capture
    from edge_runtime.tools.listen.fields import TopicFields
    from edge_runtime.tools.listen.propose import Proposal
    from edge_runtime.tools.listen.trial import DraftTrial


@dataclass(frozen=True, kw_only=True)
class ListenOptions(CommandOptions):
    broker: str = operand("host, USER@host:port or URL of a broker; or a file of messages", "BROKER")
    topics: tuple[str, ...] = operand("topic filters (default: '#', all topics)", "TOPIC", ())
    bundle: BundlePath | None = option("the model that is to be fed", None, "FILE.edge")
    seconds: Factor = option("how long to listen", 10.0)
    out: OutputFile | None = option("write an application with this table; never overwrites", None, "APP.toml")
    password_file: ExistingFile | None = option("for the broker's user", None, "FILE")
    no_ask: bool = option("ask nothing, in a terminal either", default=False)


@command(
    "listen",
    "watch a broker's traffic, and write the [[source]] table for it",
    "Watch live MQTT traffic for some seconds, or read a file of captured messages. Show what is "
    "understood: topics, fields, rates, ranges, stamps, and what is no sensor. With a bundle, print the [[source]] "
    "table that feeds it, with a comment at each guess, and try it on the messages. Without one, propose channels "
    "for training. In a terminal, ask about units that nothing tells. Exit code 1: no table was found, or "
    "the model got no window from it.",
    "listen localhost 'hall/#' --bundle watch.edge --out app.toml",
    "listen mqtts://broker.example:8883 'zigbee2mqtt/+' --seconds 60",
    "$ mosquitto_sub -v -t 'hall/#' > heard.txt; edge-runtime listen heard.txt --bundle watch.edge",
    renamed={"--write": "--out", "--username": "USER@ before the host of BROKER"},
)
def run(options: ListenOptions) -> CommandAnswer:
    """Listen, report, propose, try and write."""
    if options.out is not None and options.out.exists():
        raise ConfigError(f"--out {options.out}: exists already; name another file, or move it away")
    with aside(options):  # told as it goes: a person is asked meanwhile
        return _listened(options)


def _listened(options: ListenOptions) -> CommandAnswer:
    from edge_runtime.tools.listen.propose import observations_of, propose  # noqa: PLC0415
    from edge_runtime.tools.listen.report import describe  # noqa: PLC0415
    from edge_runtime.tools.listen.training import propose_contract  # noqa: PLC0415

    contract, signed = _contract(options.bundle)
    broker, capture, filters = _heard(options)
    if not capture.count:
        raise ConfigError(_silence(options, filters))
    seen = observations_of(capture)
    heard = describe(capture, seen)
    print("\n".join(heard))
    document: dict[str, Any] = {"messages": capture.count, "topics": sorted(seen), "heard": heard, "table": None}
    wanted = contract or propose_contract(capture, seen)
    proposals = [] if wanted is None else propose(capture, seen, wanted, filters)
    if wanted is None or not proposals:
        print("\n" + _nothing(seen, contract))
        return CommandAnswer(document, code=1)
    proposal = proposals[0] if options.no_ask else asked(proposals[0])
    table = "\n".join(table.text() for table in proposal.tables)
    print("\n" + table)
    if contract is None:
        print(f"# channels proposed for training, at {wanted.rate_hz:g} Hz: edge-runtime record takes this table\n")
    tried = _tried(proposal, capture, seen, wanted)
    written = options.out if not tried.problem else None
    if written is not None:
        _write(options, written, proposal, broker, signed=signed)
    document |= {"table": table, "missing": proposal.missing, "trial": asdict(tried), "wrote": written}
    return CommandAnswer(document, code=0 if _is_ready(proposal, tried, capture, contract) else 1)


def _nothing(seen: Mapping[str, TopicFields], contract: InputContract | None) -> str:
    from edge_runtime.tools.listen.report import describe_unused  # noqa: PLC0415

    if contract is None:
        return "no sensor was heard"
    return "\n".join(filter(None, ["nothing here fits the model", describe_unused(seen, contract)]))


def _tried(proposal: Proposal, capture: Capture, seen: Mapping[str, TopicFields], wanted: InputContract) -> DraftTrial:
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


def _is_ready(proposal: Proposal, tried: DraftTrial, capture: Capture, contract: InputContract | None) -> bool:
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


def _heard(options: ListenOptions) -> tuple[BrokerConfig, Capture, tuple[str, ...]]:
    """Listen to a broker, or read a file."""
    from edge_runtime.io.recordings.capture import iter_messages  # noqa: PLC0415
    from edge_runtime.tools.listen.broker import broker_config, watch  # noqa: PLC0415
    from edge_runtime.tools.listen.capture import Capture  # noqa: PLC0415

    path = Path(options.broker)
    if path.is_file():
        messages = (message for _, message in iter_messages(path, lambda _error: None))
        return broker_config("localhost"), Capture(messages), options.topics
    config = broker_config(options.broker, options.password_file)
    filters = options.topics or ("#",)
    print(f"listening to {', '.join(filters)} for {options.seconds:g} s; Ctrl-C ends it early", file=sys.stderr)
    return config, watch(config, filters, options.seconds), filters


def _silence(options: ListenOptions, filters: tuple[str, ...]) -> str:
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


def _write(options: ListenOptions, path: Path, proposal: Proposal, broker: BrokerConfig, *, signed: bool) -> None:
    from edge_runtime.tools.listen.application import application  # noqa: PLC0415

    text = application(proposal.tables, broker, options.bundle, path.parent, signed=signed)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror or error}") from None
    step = f"edge-runtime run --check {path}" if options.bundle else f"edge-runtime record {path} --out FILE.csv"
    if proposal.missing:
        step = f"name a field for {', '.join(proposal.missing)} in it"
    print(f"wrote {path}; next: {step}")
