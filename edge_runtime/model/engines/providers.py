"""ONNX Runtime's execution providers: handing over their options, and finding out what they really took.

The options of a provider are its vendor's, handed over as they are, but for two keys that the vendor's library never
sees, and two words that are replaced in any value, `MIN_SHAPES` and `MAX_SHAPES`:

- ``library``: the provider comes as a plug-in: the path of its library, or ``package:NAME`` for an installed package
  with a ``get_library_path`` (onnxruntime.ai/docs/execution-providers/plugin-ep-libraries/usage.html).
- ``fixed_batch``: the model's free first axis becomes this size, for compilers that take no free shapes; the engine
  fills batches up to it.

onnxruntime puts every node that a provider refuses on the CPU without a word, all of them if need be. `placement` asks
where they went.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edge_runtime.errors import EngineError, one_line

log = logging.getLogger(__name__)

CPU: Final = "CPUExecutionProvider"

_LIBRARY: Final = "library"
_FIXED_BATCH: Final = "fixed_batch"
_RECORD: Final = "session.record_ep_graph_assignment_info"
_NAMED: Final = 5
"""Kinds of operators that a message names before it says that there are more."""

# Plug-in libraries of this process, by provider: they are registered once and for good, as the library itself is.
_registered: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider that was asked for.

    Attributes:
        name: as onnxruntime calls it, for example ``TensorrtExecutionProvider``.
        options: the vendor's.
        library: of a plug-in; empty for one that is built in.
        fixed_batch: size that the batch is fixed to; 0 leaves it free.
    """

    name: str
    options: dict[str, str]
    library: str = ""
    fixed_batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Placement of the nodes of a loaded model.

    Attributes:
        nodes: number by provider. A part of the graph that a provider compiled counts its nodes where onnxruntime
            tells them, else as one.
        on_cpu: kinds of operators on the CPU, most frequent first.
    """

    nodes: dict[str, int]
    on_cpu: tuple[str, ...] = ()

    def taken(self, names: Sequence[str]) -> int:
        """Nodes on any of these providers."""
        return sum(self.nodes.get(name, 0) for name in names)

    @property
    def total(self) -> int:
        """All nodes."""
        return sum(self.nodes.values())


def requested(provider_options: Mapping[str, Any]) -> list[Provider]:
    """Keep the providers that were asked for, the CPU left out.

    Raises:
        EngineError: ``fixed_batch`` is no positive number.
    """
    found = []
    for name, value in provider_options.items():
        if name == CPU:
            continue
        options = {str(key): str(setting) for key, setting in dict(value).items()}
        library, batch = options.pop(_LIBRARY, ""), options.pop(_FIXED_BATCH, "0")
        if not batch.isdigit() or len(batch) > 6:
            raise EngineError(f"{name}: fixed_batch must be a whole number such as 1, got '{batch[:20]}'")
        found.append(Provider(name=name, options=options, library=library, fixed_batch=int(batch)))
    return found


def prepare(ort: Any, model: bytes, session_options: Any, wanted: Sequence[Provider], max_batch: int) -> list[Provider]:
    """Make a session ready for its providers: fix its batch, fill in shapes, register plug-ins.

    1. Where nodes went is recorded in any session, for `placement`.
    2. The model's inputs are read only for a fixed batch or for shapes; every free first axis becomes that batch.
    3. With a plug-in among them all providers are added here, in order: such a session is made without their list.

    Args:
        ort: the library.
        model: the file's bytes.
        session_options: options of the session to be; changed.
        wanted: what was asked for.
        max_batch: windows in one call at most.

    Returns:
        The providers with their final options.

    Raises:
        EngineError: a plug-in is missing or finds nothing here, or the model has no batch that could be fixed.
    """
    session_options.add_session_config_entry(_RECORD, "1")  # rule 1
    if not wanted:
        return []
    from edge_runtime.base.hardware.profile import MAX_SHAPES, MIN_SHAPES  # noqa: PLC0415 - only with an accelerator

    filled = list(wanted)
    batch = max((provider.fixed_batch for provider in wanted), default=0)
    shapes = any(word in value for p in wanted for value in p.options.values() for word in (MIN_SHAPES, MAX_SHAPES))
    if batch or shapes:  # rule 2
        inputs = _inputs(ort, model)
        if batch:
            for axis in {value.shape[0] for value in inputs if value.shape and isinstance(value.shape[0], str)}:
                session_options.add_free_dimension_override_by_name(axis, batch)
        filled = [_with_shapes(provider, inputs, batch or max_batch) for provider in wanted]
    if any(provider.library for provider in filled):  # rule 3
        for provider in filled:
            if provider.library:
                _plug_in(ort, session_options, provider)
            else:
                session_options.add_provider(provider.name, provider.options)
    return filled


def placement(session: Any, profile: Path | None = None) -> Placement | None:
    """Return where the nodes of a session went; None where this onnxruntime cannot say.

    1. What onnxruntime records comes first; a profile is read only where it cannot be asked.
    2. Not to know is no error: to know more is not worth the model.
    3. The kinds of nodes on the CPU are told, the most frequent first: these are what an accelerator refused.

    Args:
        session: made with the options of `prepare`.
        profile: what ``end_profiling`` wrote, for onnxruntime before 1.24, which does not tell otherwise.
    """
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    nodes: Counter[str] = Counter()
    on_cpu: Counter[str] = Counter()
    if ask is not None:  # rule 1
        try:
            for part in ask():
                inside = part.get_nodes()
                nodes[part.ep_name] += len(inside)
                if part.ep_name == CPU:  # rule 3
                    on_cpu.update(node.op_type for node in inside)
        except Exception as error:  # noqa: BLE001 - rule 2
            log.debug("engine: could not read the placement of nodes: error=%s", one_line(error))
            return None  # rule 2
    elif profile is not None:  # rule 1
        for name, (provider, kind) in _profiled(profile).items():
            log.debug("engine: placed a node: node=%s provider=%s", name, provider)
            nodes[provider] += 1
            if provider == CPU:  # rule 3
                on_cpu[kind] += 1
    if not nodes:  # rule 2
        return None
    return Placement(nodes=dict(nodes), on_cpu=tuple(kind for kind, _ in on_cpu.most_common()))


def check_placement(found: Placement | None, wanted: Sequence[Provider]) -> str:
    """Check that the accelerators run nodes, and log what they leave to the CPU.

    Args:
        found: placement of the nodes.
        wanted: what was asked for; not empty.

    Returns:
        What to add to the engine's name.

    Raises:
        EngineError: the providers took no node at all.
    """
    names = [provider.name for provider in wanted]
    listed = ", ".join(names)
    if found is None:
        log.warning(
            "engine: could not tell what an accelerator runs; compare its speed with the CPU's: providers=%s", listed
        )
        return f" on {listed}"
    taken = found.taken(names)
    if not taken:
        raise EngineError(
            f"{listed} takes no node of this model, so all {found.total} would run on the CPU; "
            "take a variant that it supports, or leave it out"
        )
    if taken < found.total:
        kinds = ", ".join(found.on_cpu[:_NAMED]) + (", ..." if len(found.on_cpu) > _NAMED else "")
        log.warning(
            "engine: left nodes to the CPU: count=%d of=%d beside=%s kinds=%s",
            *(found.total - taken, found.total, listed, kinds),
        )
    used = ", ".join(name for name in names if found.nodes.get(name))
    return f" on {used} ({taken} of {found.total} nodes)"


class ProfileFolder:
    """A folder for the profile of a first run, for an onnxruntime that cannot be asked; a context manager.

    Attributes:
        path: of what was written, or None.
    """

    def __init__(self, session_options: Any) -> None:
        self.path: Path | None = None
        self._folder: str | None = None
        import tempfile  # noqa: PLC0415 - with its compressors 3 ms, for an old library with an accelerator

        try:
            self._folder = tempfile.mkdtemp(prefix="edge-runtime-")
        except OSError:
            return  # a read-only disk: then it stays unknown
        session_options.enable_profiling = True
        session_options.profile_file_prefix = f"{self._folder}/run"

    def __enter__(self) -> ProfileFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            import shutil  # noqa: PLC0415 - as above

            shutil.rmtree(self._folder, ignore_errors=True)

    def end(self, session: Any) -> Path | None:
        """Stop profiling; the file lives as long as this does."""
        if self._folder is not None:
            self.path = Path(session.end_profiling())
        return self.path


def _profiled(path: Path) -> dict[str, tuple[str, str]]:
    """Read provider and operator of every node that ran, by its name; empty if the profile cannot be read."""
    try:
        events = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    found = {}
    for event in events:
        arguments = event.get("args", {})
        if event.get("cat") == "Node" and arguments.get("provider"):
            name = str(event.get("name", "")).removesuffix("_kernel_time")
            found[name] = (str(arguments["provider"]), str(arguments.get("op_name", "")))
    return found


def _inputs(ort: Any, model: bytes) -> Any:
    """Read the model's inputs, from a session that optimises nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(model, options, providers=[CPU]).get_inputs()
    except Exception as error:
        raise EngineError(f"onnxruntime refuses the model: {one_line(error)}") from error


def _with_shapes(provider: Provider, inputs: Any, max_batch: int) -> Provider:
    def shapes(batch: int) -> str:
        return ",".join(
            f"{value.name}:{'x'.join(str(n) if isinstance(n, int) else str(batch) for n in value.shape)}"
            for value in inputs
        )

    from edge_runtime.base.hardware.profile import MAX_SHAPES, MIN_SHAPES  # noqa: PLC0415 - only with an accelerator

    words = {MIN_SHAPES: shapes(1), MAX_SHAPES: shapes(max_batch)}
    options = dict(provider.options)
    for key, value in options.items():
        for word, text in words.items():
            options[key] = options[key].replace(word, text) if word in value else options[key]
    return Provider(name=provider.name, options=options, library=provider.library, fixed_batch=provider.fixed_batch)


def _plug_in(ort: Any, session_options: Any, provider: Provider) -> None:
    path = _library_path(provider)
    if not hasattr(ort, "register_execution_provider_library"):
        raise EngineError(
            f"{provider.name} is a plug-in, which onnxruntime {ort.__version__} does not take; "
            "run: pip install --upgrade onnxruntime"
        )
    try:
        if _registered.get(provider.name) != path:
            ort.register_execution_provider_library(provider.name, path)
            _registered[provider.name] = path
        devices = [device for device in ort.get_ep_devices() if device.ep_name == provider.name]
        if devices:
            session_options.add_provider_for_devices(devices, provider.options)
    except Exception as error:
        raise EngineError(f"onnxruntime cannot take the plug-in {provider.name}: {one_line(error)}") from error
    if not devices:
        raise EngineError(f"{provider.name} finds nothing here that it could run on; check the vendor's driver")


def _library_path(provider: Provider) -> str:
    kind, _, package = provider.library.partition("package:")
    if kind or not package:
        return provider.library
    try:
        return str(importlib.import_module(package).get_library_path())
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"{provider.name} needs the package {package} ({one_line(error)}); "
            f"run: pip install {package.replace('_', '-')}"
        ) from error
