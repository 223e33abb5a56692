"""Streaming bundle: a windowed bundle whose files compute only what a hop brings, and answer as the windowed ones do.

The bundle takes the same windows as the one that it is made of, under the same ids; windows may overlap as far as one
likes. Its chain has one stage, which is fed with the track ``stream``: the whole window in a key's first step, then
what the hop brought. The first step plays the window through as hops, `graph.streaming.StreamingModel.warm_up`
of them, and uses the last one's answer. So nothing has to be kept for the answer to be right: a key that lost its
states, after a gap, a restart or a failed engine, answers its next window in full.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.model import transform
from edge_export.graph.onnx_graph.passes.conv2d import Conv1dToConv2d
from edge_export.graph.onnx_graph.passes.minimise import Minimise
from edge_export.graph.streaming.convert import MAX_WORK, to_streaming
from edge_export.graph.streaming.emit import HOP
from edge_export.graph.streaming.model import StreamingModel
from edge_export.graph.streaming.plain_states import states_as_floats
from edge_export.graph.streaming.together import states_together
from edge_export.graph.tflite.convert import convert
from edge_export.package.bundles import prove
from edge_export.package.pack import CARD, VariantSource, in_halves, pack
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.manifest import InputContract, Manifest, Variant
from edge_runtime.manifest.stages import ModelStage, Output, Port, State
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.chain import STREAM
from edge_runtime.model.chain.load import join_variant
from edge_runtime.model.engines.base import EngineOptions

CLOSE = 1e-5
"""Largest difference from the windowed file's answers."""
STEPS = 12
"""Golden windows of the new bundle."""
_COMPARED = 200
"""Windows, at most, that both are compared on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingBundle:
    """A streaming bundle that was written.

    Attributes:
        manifest: as written.
        work: multiply-accumulates of an update, as a share of the window's, by variant.
        differences: largest difference from the windowed file's answers, by variant.
        compared: windows that both answered.
        state_bytes: that a key takes, by variant.
        left_out: reasons, by variant.
    """

    manifest: Manifest
    work: Mapping[str, float]
    differences: Mapping[str, float]
    compared: int
    state_bytes: Mapping[str, int]
    left_out: Mapping[str, str]


def stream_bundle(
    source: Path, out: Path, *, hop: int = 0, version: int = 0, max_work: float = MAX_WORK
) -> StreamingBundle:
    """Make a streaming bundle of a windowed one.

    Args:
        source: a bundle of models that take a window and give its answer.
        out: the ``.edge`` file to write, unsigned.
        hop: samples from one window to the next; 0: as the bundle has it.
        version: the new bundle's version; 0: that of the bundle, whose answers it gives.
        max_work: see `edge_export.graph.streaming.to_streaming`.

    Raises:
        ConfigError: the bundle has stages already, or none of its files can be converted; says why.
        EdgeError: the bundle cannot be read, or the new one does not run as a device would run it.
    """
    with open_bundle(source) as bundle:
        manifest = bundle.manifest
        if manifest.stages:
            raise ConfigError(f"{source.name} is a chain of stages already; give the bundle of the windowed model")
        contract = replace(manifest.input, hop=hop or manifest.input.hop)
        windows = _overlapping(bundle.golden(manifest.variants[0].name)[0], contract)
        made = _Made(bundle, contract, windows, max_work)
        files = {
            file.file: bundle.file(file.file)
            for file in manifest.files
            if file.file not in {manifest.golden_inputs, *(variant.golden for variant in manifest.variants)}
        }
        pack(
            out,
            name=manifest.name,
            version=version or manifest.version,
            input=contract,
            output=manifest.output,
            variants=made.sources,
            golden_inputs=in_halves(windows[:STEPS]),
            stages=(made.stage,),
            gate=manifest.gate,
            references=manifest.references,
            events=manifest.events,
            description=manifest.description,
            created=manifest.created,
            expires=manifest.expires,
            card=files.pop(CARD, b"").decode(),
            files=files,
            provenance={
                **manifest.provenance,
                "streaming": {"of_sha256": hashlib.sha256(source.read_bytes()).hexdigest(), "hop": contract.hop},
            },
        )
    prove(out)
    with open_bundle(out) as written:
        packed = written.manifest
    return StreamingBundle(
        manifest=packed,
        work=made.work,
        differences=made.differences,
        compared=len(windows),
        state_bytes=made.state_bytes,
        left_out=made.left_out,
    )


class _Made:
    """Variants of the new bundle, each held against the windowed one."""

    def __init__(self, bundle: Bundle, contract: InputContract, windows: Float32, max_work: float) -> None:
        self.sources: list[VariantSource] = []
        self.work: dict[str, float] = {}
        self.differences: dict[str, float] = {}
        self.state_bytes: dict[str, int] = {}
        self.left_out: dict[str, str] = {}
        self._states: dict[str, State] = {}
        self._contract, self._windows, self._max_work = contract, windows, max_work
        for variant in bundle.manifest.variants:
            try:
                self._add(bundle, variant)
            except EdgeError as error:
                self.left_out[variant.name] = str(error)
        if not self.sources:
            name, reason = next(iter(self.left_out.items()))
            raise ConfigError(f"nothing of {bundle.path.name} can stream: {name}: {reason}")
        for place, source in enumerate(self.sources):
            without = dict.fromkeys([name for name in self._states if name not in source.tensors], "")
            self.sources[place] = replace(source, tensors={**source.tensors, **without})

    @property
    def stage(self) -> ModelStage:
        """The one stage, which all variants share; a state that a file has not is marked at the variant."""
        return _stage(self._contract, self._states.values())

    def _add(self, bundle: Bundle, variant: Variant) -> None:
        graph = onnx.load_from_string(bundle.read_variant(_graph_of(bundle.manifest.variants, variant).name))
        streaming = to_streaming(graph, hop=self._contract.hop, max_work=self._max_work)
        if variant.format == "tflite":
            streaming = states_as_floats(streaming)
        streaming = states_together(streaming)
        named = _named(streaming)
        states = [self._states.get(state.input, state) for state in named.values()]
        source = VariantSource(
            name=variant.name,
            model=_file(streaming.model, variant.format),
            format=variant.format,
            precision=variant.precision,
            scheme=variant.scheme,
            layout="NWC",
            targets=variant.targets,
            tolerance=variant.tolerance,
            cost={name: value for name, value in variant.cost.items() if name == "accuracy"},
            tensors={
                "answer": streaming.model.graph.output[0].name,
                **{state.input: name for name, state in named.items()},
                **{state.output: f"{name}_next" for name, state in named.items()},
            },
        )
        stage = _stage(self._contract, states)
        worst = _difference(bundle, variant, source, stage, self._contract, self._windows)
        if not worst <= CLOSE:  # NaN too
            raise ConfigError(f"its answers differ by up to {worst:.2g} from the windowed file's, more than {CLOSE:g}")
        self._states |= {state.input: state for state in states}
        self.sources.append(source)
        self.work[variant.name] = streaming.work
        self.differences[variant.name] = worst
        self.state_bytes[variant.name] = sum(state.initial.nbytes for state in streaming.states)


def _graph_of(variants: Sequence[Variant], wanted: Variant) -> Variant:
    """Return the ONNX variant of the same numbers: only such a file can be converted."""
    if wanted.format == "onnx":
        return wanted
    same = [
        variant
        for variant in variants
        if variant.format == "onnx" and (variant.precision, variant.scheme) == (wanted.precision, wanted.scheme)
    ]
    if not same:
        kind = " ".join(filter(None, (wanted.precision, wanted.scheme)))
        raise ConfigError(f"the bundle has no ONNX file with {kind} weights to convert")
    return same[0]


def _named(streaming: StreamingModel) -> dict[str, State]:
    """Name states by how many numbers they hold: variants of other arithmetic keep other ones, and share most.

    They may begin with any number: a whole window replaces them.

    Returns:
        By the name in the graph.
    """
    seen: Counter[int] = Counter()
    found = {}
    for state in streaming.states:
        size = int(np.prod(state.shape, dtype=int))
        name = f"state_{size}_{seen[size]}"
        seen[size] += 1
        found[state.name] = State(input=name, output=f"{name}_next", shape=state.shape)
    return found


def _stage(contract: InputContract, states: Iterable[State]) -> ModelStage:
    """Describe a stateful graph as a stage."""
    updates = -(-contract.window // contract.hop)
    lead = updates * contract.hop - contract.window
    return ModelStage(
        inputs=(Port(name=HOP, of=STREAM, rows=contract.hop, lead=lead, layout="NCW"),),
        states=tuple(states),
        outputs=(Output(name="answer"),),
        warmup_steps=updates - 1,
    )


def _file(model: onnx.ModelProto, wanted: str) -> bytes:
    if wanted == "tflite":
        return convert(model, compact=True)
    return bytes(transform(model, Conv1dToConv2d(), Minimise()).SerializeToString())


def _overlapping(golden: Float32, contract: InputContract) -> Float32:
    """Return windows of the bundle's golden windows, one behind the other, `hop` apart: (n, channels, window)."""
    signal = np.concatenate(list(golden), axis=1)
    if len(golden) == 1:
        signal = np.concatenate([signal, signal[:, ::-1]], axis=1)
    starts = range(0, signal.shape[1] - contract.window + 1, contract.hop)
    return np.stack([signal[:, at : at + contract.window] for at in starts[:_COMPARED]])


def _difference(
    bundle: Bundle,
    variant: Variant,
    source: VariantSource,
    stage: ModelStage,
    contract: InputContract,
    windows: Float32,
) -> float:
    """Measure the largest difference of an answer from that of the windowed file."""
    data = join_variant((stage,), (), contract, source, source.contents)
    answers = []
    for model, form in ((bundle.read_variant(variant.name), variant), (data, source)):
        engine = engines.load(engine_for(variant), model, EngineOptions())
        try:
            arranged = arrange(windows, form)
            if model is data:
                answers.append(play(engine, arranged)[0])
            else:
                answers.append(np.concatenate([np.array(engine.run(one[None])[0]) for one in arranged]))
        finally:
            engine.close()
    return float(np.abs(answers[0] - answers[1]).max())
