"""``edge-runtime examples``: labels of an embedding that a user adds on the device, without training."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.errors import ConfigError, StoreError
from edge_runtime.tools.cli.arguments import existing_file, output_file, recording, seconds
from edge_runtime.tools.cli.replay_options import add_layout, layout_of

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.model.serving.example_requests import Asked, Done
    from edge_runtime.model.tasks.learnt_examples import Example
    from edge_runtime.types import Float32

_ACTIONS = {
    "add": "add windows of a recording, or of the running application, as examples of a label",
    "list": "examples by label, those of the bundle and those that were added",
    "remove": "remove examples that were added",
    "export": "write all examples in use as an .npy file, for the card of the next bundle",
}


def add(commands: Any) -> None:
    """Declare the command and its own subcommands."""
    parser = commands.add_parser(
        "examples",
        help="teach an embedding labels on the device: add, list, remove, export",
        description=(
            "Teach a running application new labels by a few examples, without training. For bundles whose task is "
            "embedding; the application needs [outbox] or [reading_log], and the same user. An example counts from the "
            "next window on, and over restarts."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime examples add app.toml --label door --window kitchen@16000\n"
            "  edge-runtime examples add app.toml --label door --recording door.wav\n"
            "  edge-runtime examples list app.toml\n"
            "  edge-runtime examples remove app.toml --label door\n"
            "  edge-runtime examples export app.toml --out examples.npy"
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    declared = {}
    for name, what in _ACTIONS.items():
        action = declared[name] = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        action.add_argument("config", type=existing_file, metavar="APP.toml", help="of the application")
        if name in ("add", "remove"):
            action.add_argument("--wait", type=seconds, default=10.0, help="for an answer, seconds (default: 10)")
        if name != "export":
            action.add_argument("--json", action="store_true", help="one JSON object, for programs")
    _declare_add(declared["add"])
    gone = declared["remove"]
    gone.add_argument("ids", nargs="*", metavar="ID", help="ids of examples, as list prints them")
    gone.add_argument("--label", action="append", default=[], help="all examples of a label; may be repeated")
    gone.add_argument("--other-models", action="store_true", help="those that another model made")
    declared["export"].add_argument("--out", type=output_file, required=True, metavar="FILE.npy", help="to be written")
    parser.set_defaults(run=run, labels="")


def _declare_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label", required=True, help="of the windows")
    parser.add_argument(
        "--window", action="append", default=[], metavar="ID",
        help="id of a prediction: one of the last that the application answered, or of the recording; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--recording", type=recording, action="append", default=[], dest="files", metavar="FILE",
        help="file, as `replay` takes it; may be repeated",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="all windows of the recordings")
    parser.add_argument("--lateness", type=seconds, default=0.0, help="seconds that samples may be out of order")
    add_layout(parser.add_argument_group("layout of the recordings"))


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.clock import SystemClock  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.serving.example_requests import Asked  # noqa: PLC0415

    config = load_config(options.config)
    path = config.state_file
    if path is None:
        raise ConfigError(f"{options.config} names no file for state; add [reading_log] with a path")
    if options.action == "list":
        return _list(config, path, as_json=options.json)
    if options.action == "export":
        return _export(config, path, options.out)
    asked = Asked(path, SystemClock(), options.wait)
    if options.action == "add":
        return _add(config, asked, options)
    if not (options.ids or options.label or options.other_models):
        raise ConfigError("examples remove: name ids, --label LABEL or --other-models")
    return _show(asked.remove(options.ids, options.label, other_models=options.other_models), "removed", options)


def _add(config: AppConfig, asked: Asked, options: argparse.Namespace) -> int:
    from edge_runtime.model.tasks.learnt_examples import check_label  # noqa: PLC0415

    try:
        check_label(options.label)
    except StoreError as error:
        raise ConfigError(f"examples add: {error}") from error
    if options.files:
        return _show(asked.add(options.label, *_recorded(config, options)), "added", options)
    if not options.window:
        raise ConfigError("examples add: name the windows with --window ID, or give --recording FILE")
    return _show(asked.add_windows(options.label, options.window), "added", options)


def _recorded(config: AppConfig, options: argparse.Namespace) -> tuple[list[tuple[str, Float32]], str]:
    """Compute the numbers of windows of recordings; returns what made them, too."""
    from edge_runtime.app.python_api import single_variant, vectors  # noqa: PLC0415
    from edge_runtime.manifest.outputs import EmbeddingOutput  # noqa: PLC0415
    from edge_runtime.model.serving.loading import load_model  # noqa: PLC0415
    from edge_runtime.model.tasks.learnt_examples import vectors_of  # noqa: PLC0415

    layout = layout_of(options)
    with load_model(single_variant(_bundle(config), (), "auto")) as model:
        manifest = model.manifest
        if not isinstance(manifest.output, EmbeddingOutput):
            raise ConfigError(
                f"{manifest.model} answers with {manifest.output.kind}, and its labels come from training; examples "
                "are for bundles whose task is embedding (docs/tasks.md)"
            )
        found = {one.id: row for one, row in vectors(model, layout, lateness_s=options.lateness)}
        least_s = manifest.input.window / manifest.input.rate_hz
    if not found:
        raise ConfigError(f"the recordings hold no window of {least_s:g} s; give longer ones")
    chosen = options.window or list(found)
    if missing := [one for one in chosen if one not in found]:
        raise ConfigError(f"the recordings have no window {missing[0]}; they have {_some(found)}")
    if len(chosen) > 1 and not options.window and not options.all:
        raise ConfigError(
            f"the recordings have {len(found)} windows ({_some(found)}); name those that are {options.label!r} with "
            "--window ID, or take --all"
        )
    return [(one, found[one].reshape(-1)) for one in chosen], vectors_of(manifest)


def _some(ids: dict[str, Float32]) -> str:
    return ", ".join(list(ids)[:5]) + (", ..." if len(ids) > 5 else "")


def _bundle(config: AppConfig) -> Path:
    """Return the bundle that the application runs: the one that updates installed, else the configured one."""
    if config.update is None:
        return config.model.bundle
    from edge_runtime.operate.update.update_store import UpdateStore  # noqa: PLC0415

    store = UpdateStore(config.update.folder, read_only=True)
    running = store.state.running
    return config.model.bundle if running is None else store.path(running.sha256)


def _show(done: Done, what: str, options: argparse.Namespace) -> int:
    if options.json:
        print(orjson.dumps({what: done.changed, "labels": done.counts, "kept": done.kept}).decode())
    else:
        print(f"{what} {done.changed}; in use: {_counted(done.counts)}")
    if not done.kept:
        raise StoreError("the change counts, and could not be written to the disk, so a restart loses it; make room")
    return 0


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{label} {n}" for label, n in counts.items()) or "none"


# -- looking -----------------------------------------------------------------------------------------------------------


def _list(config: AppConfig, path: Path, *, as_json: bool) -> int:
    bundled, uses, found = _bundled(config), *_read(path)
    own, others = [one for one in found if one.vectors == uses], [one for one in found if one.vectors != uses]
    learnt = dict(Counter(one.label for one in own))
    if as_json:
        document = {"bundle": bundled, "learnt": learnt, "examples": [one.plain() for one in own]}
        print(orjson.dumps(document | {"other_models": [one.plain() for one in others]}).decode())
        return 0
    print(f"of the bundle: {_counted(bundled)}")
    print(f"added here: {_counted(learnt)}")
    for one in own:
        print(f"  {one.id}  {one.label:<20} {one.window}")
    if others:
        print(f"not used, of other models: {_counted(dict(Counter(one.model for one in others)))}")
    return 0


def _read(path: Path) -> tuple[str, list[Example]]:
    from edge_runtime.model.tasks.learnt_examples import read_examples  # noqa: PLC0415
    from edge_runtime.store.durable.state_file import read_part  # noqa: PLC0415

    data = read_part(path, "examples")
    return ("", []) if data is None else read_examples(data)


def _bundled(config: AppConfig) -> dict[str, int]:
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415
    from edge_runtime.tools.cli.inspect import examples_of  # noqa: PLC0415

    with open_bundle(_bundle(config)) as bundle:
        return examples_of(bundle)


def _export(config: AppConfig, path: Path, out: Path) -> int:
    """Write the examples of the bundle and those that were added, in the form that a card's task names."""
    import numpy as np  # noqa: PLC0415

    from edge_runtime.manifest.outputs import EmbeddingOutput  # noqa: PLC0415
    from edge_runtime.model.bundle import npy  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415
    from edge_runtime.model.tasks.embedding import bundled  # noqa: PLC0415
    from edge_runtime.model.tasks.learnt_examples import as_examples, vectors_of  # noqa: PLC0415

    with open_bundle(_bundle(config)) as bundle:
        manifest = bundle.manifest
        if not isinstance(manifest.output, EmbeddingOutput):
            raise ConfigError(f"{manifest.model} is no embedding, and has no examples")
        examples = bundled(manifest.output, bundle.array)
    own = [one for one in _read(path)[1] if one.vectors == vectors_of(manifest)]
    if own:
        examples = examples.joined(as_examples(own))
    if not examples.places:
        raise StoreError("there are no examples yet; add some with: edge-runtime examples add")
    table = np.column_stack([np.array(examples.places, np.float32), examples.numbers])
    try:
        out.write_bytes(npy.dump(np.ascontiguousarray(table, np.float32)))
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror}") from error
    labels = orjson.dumps(examples.labels).decode()
    print(f'{out}: {len(table)} examples; in the card, under [task]:\nlabels = {labels}\nexamples = "{out.name}"')
    return 0
