"""``edge-runtime examples``: labels of an embedding that a user adds on the device, without training."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from edge_runtime.errors import ConfigError, StoreError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, OutputFile, Recording, Seconds
from edge_runtime.tools.cli.layout import Layout
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, family

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.model.serving.example_requests import Asked, Done
    from edge_runtime.model.tasks.learnt_examples import Example
    from edge_runtime.types import Float32


family(
    __name__,
    "examples",
    "teach an embedding labels on the device: add, list, remove, export",
    "Teach a running application new labels by a few examples, without training. For bundles whose "
    "task is embedding; the application needs [outbox] or [reading_log], and the same user. An example counts from "
    "the next window on, and over restarts.",
    "examples add app.toml --label door --window kitchen@16000",
    "examples add app.toml --label door --recording door.wav",
    "examples list app.toml",
    "examples remove app.toml --label door",
    "examples export app.toml --out examples.npy",
)


@dataclass(frozen=True, kw_only=True)
class ExamplesOptions(CommandOptions):
    app: AppFile = arguments.app()

    def files(self) -> tuple[AppConfig, Path]:
        """Read the configuration; returns it and the file of its state.

        Raises:
            ConfigError: it names none.
        """
        from edge_runtime.app.config import load_config  # noqa: PLC0415 - numpy and the rest, only when needed

        config = load_config(self.app)
        if config.state_file is None:
            raise ConfigError(f"{self.app} names no file for state; add [reading_log] with a path")
        return config, config.state_file


@dataclass(frozen=True, kw_only=True)
class ExamplesAskOptions(ExamplesOptions):
    wait: Seconds = arguments.wait()

    def asked(self) -> tuple[AppConfig, Asked]:
        """Return the configuration, and what asks the application."""
        from edge_runtime.clock import SystemClock  # noqa: PLC0415 - as above
        from edge_runtime.model.serving.example_requests import Asked  # noqa: PLC0415

        config, path = self.files()
        return config, Asked(path, SystemClock(), self.wait)


@dataclass(frozen=True, kw_only=True)
class ExamplesAddOptions(ExamplesAskOptions):
    label: str = option("of the windows")
    window: tuple[str, ...] = option(
        "id of a prediction: of the last ones, or of the recording; may be repeated", (), "ID"
    )
    recording: tuple[Recording, ...] = option("file, as `replay` takes it; may be repeated", (), "RECORDING")
    all: bool = option("all windows of the recordings", default=False)
    lateness: Seconds = arguments.lateness()
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class ExamplesRemoveOptions(ExamplesAskOptions):
    ids: tuple[str, ...] = operand("ids of examples, as list prints them", "ID", ())
    label: tuple[str, ...] = option("all examples of a label; may be repeated", ())
    other_models: bool = option("those that another model made", default=False)


@dataclass(frozen=True, kw_only=True)
class ExamplesExportOptions(ExamplesOptions):
    out: OutputFile = option("to be written", metavar="FILE.npy")


@command("examples add", "add windows of a recording, or of the running application, as examples of a label")
def _add(options: ExamplesAddOptions) -> CommandAnswer:
    from edge_runtime.model.tasks.learnt_examples import check_label  # noqa: PLC0415

    config, asked = options.asked()
    try:
        check_label(options.label)
    except StoreError as error:
        raise ConfigError(f"examples add: {error}") from error
    if options.recording:
        return _changed(asked.add(options.label, *_recorded(config, options)), "added")
    if not options.window:
        raise ConfigError("examples add: name the windows with --window ID, or give --recording FILE")
    return _changed(asked.add_windows(options.label, options.window), "added")


@command("examples remove", "remove examples that were added")
def _remove(options: ExamplesRemoveOptions) -> CommandAnswer:
    _, asked = options.asked()
    if not (options.ids or options.label or options.other_models):
        raise ConfigError("examples remove: name ids, --label LABEL or --other-models")
    return _changed(asked.remove(options.ids, options.label, other_models=options.other_models), "removed")


def _recorded(config: AppConfig, options: ExamplesAddOptions) -> tuple[list[tuple[str, Float32]], str]:
    """Compute the numbers of windows of recordings; returns what made them, too."""
    from edge_runtime.app.python_api import single_variant, vectors  # noqa: PLC0415
    from edge_runtime.manifest.outputs import EmbeddingOutput  # noqa: PLC0415
    from edge_runtime.model.serving.loading import load_model  # noqa: PLC0415
    from edge_runtime.model.tasks.learnt_examples import vectors_of  # noqa: PLC0415

    layout = options.layout.of(options.recording)
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


def _changed(done: Done, what: str) -> CommandAnswer:
    if not done.kept:
        print(
            "edge-runtime: the change counts, and could not be written to the disk, so a restart loses it; make room",
            file=sys.stderr,
        )
    document = {what: done.changed, "labels": done.counts, "kept": done.kept}
    return CommandAnswer(document, f"{what} {done.changed}; in use: {_counted(done.counts)}", int(not done.kept))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{label} {n}" for label, n in counts.items()) or "none"


# -- looking -----------------------------------------------------------------------------------------------------------


@command("examples list", "examples by label, those of the bundle and those that were added")
def _list(options: ExamplesOptions) -> CommandAnswer:
    config, path = options.files()
    bundled, uses, found = _bundled(config), *_read(path)
    own, others = [one for one in found if one.vectors == uses], [one for one in found if one.vectors != uses]
    learnt = dict(Counter(one.label for one in own))
    lines = [f"of the bundle: {_counted(bundled)}", f"added here: {_counted(learnt)}"]
    lines += [f"  {one.id}  {one.label:<20} {one.window}" for one in own]
    if others:
        lines.append(f"not used, of other models: {_counted(dict(Counter(one.model for one in others)))}")
    document = {"bundle": bundled, "learnt": learnt, "examples": [one.plain() for one in own]}
    return CommandAnswer(document | {"other_models": [one.plain() for one in others]}, lines)


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


@command("examples export", "write all examples in use as an .npy file, for the card of the next bundle")
def _export(options: ExamplesExportOptions) -> CommandAnswer:
    """Write the examples of the bundle and those that were added, in the form that a card's task names."""
    import numpy as np  # noqa: PLC0415

    from edge_runtime.manifest.outputs import EmbeddingOutput  # noqa: PLC0415
    from edge_runtime.model.bundle import npy  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415
    from edge_runtime.model.tasks.embedding import bundled  # noqa: PLC0415
    from edge_runtime.model.tasks.learnt_examples import as_examples, vectors_of  # noqa: PLC0415

    config, path = options.files()
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
        options.out.write_bytes(npy.dump(np.ascontiguousarray(table, np.float32)))
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    card = f'labels = {orjson.dumps(examples.labels).decode()}\nexamples = "{options.out.name}"'
    return CommandAnswer(
        {"file": options.out, "examples": len(table), "labels": examples.labels},
        f"{options.out}: {len(table)} examples; in the card, under [task]:\n{card}",
    )
