"""Stand-ins for the libraries of vendors: the real engine underneath, and on top what a vendor's build would add.

A fake knows which providers it has and keeps what it is handed; what it is asked to run, it runs on the processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

CPU = "CPUExecutionProvider"

Fails = Literal["never", "start", "load", "run"]


def onnxruntime(
    providers: Sequence[str] = (),
    *,
    plugins: Sequence[str] = (),
    takes: int = 10,
    leaves: int = 0,
    fails: Fails = "never",
) -> Any:
    """An onnxruntime with further providers.

    Args:
        providers: built in.
        plugins: that have a device here once they are registered.
        takes: nodes that the first provider of a session takes.
        leaves: nodes that it leaves to the CPU.
        fails: how the providers fail: they do not start, refuse the model, or fail at every run.
    """
    import onnxruntime as real  # noqa: PLC0415

    fake = SimpleNamespace(
        __version__=real.__version__, GraphOptimizationLevel=real.GraphOptimizationLevel, handed=[], registered={}
    )

    class Options(real.SessionOptions):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.plugged: list[tuple[str, dict[str, str]]] = []

        def add_provider_for_devices(self, devices: Any, options: dict[str, str]) -> None:
            self.plugged.append((devices[0].ep_name, options))

    class Session:
        def __init__(self, model: bytes, options: Any, *, providers: Any = None, enable_fallback: int = 1) -> None:
            asked = list(providers or ()) if providers else [*options.plugged, CPU]
            self.wanted = [one for one in asked if one != CPU]
            if self.wanted:
                fake.handed.append(self.wanted)
            if self.wanted and fails == "load":
                raise RuntimeError("the accelerator's compiler gave up")
            self._real = real.InferenceSession(model, options, providers=[CPU])

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def get_providers(self) -> list[str]:
            return [CPU] if fails == "start" else [*(name for name, _ in self.wanted), CPU]

        def get_provider_graph_assignment_info(self) -> list[Any]:
            def part(name: str, nodes: int) -> Any:
                return SimpleNamespace(
                    ep_name=name, get_nodes=lambda: [SimpleNamespace(name="", op_type="Conv")] * nodes
                )

            return [part(self.wanted[0][0], takes), part(CPU, leaves)]

        def run(self, *arguments: Any) -> Any:
            if self.wanted and fails == "run":
                raise RuntimeError("the accelerator went away")
            return self._real.run(*arguments)

    fake.SessionOptions = Options
    fake.InferenceSession = Session
    fake.get_available_providers = lambda: [*providers, CPU]
    fake.register_execution_provider_library = fake.registered.__setitem__
    fake.get_ep_devices = lambda: [SimpleNamespace(ep_name=name) for name in fake.registered if name in plugins]
    return fake


def litert(*, takes: bool = True, device: bool = True) -> Any:
    """An interpreter module whose delegates are only remembered.

    Args:
        takes: whether the delegates take anything.
        device: whether they find their device.
    """
    from ai_edge_litert import interpreter as real  # noqa: PLC0415

    fake = SimpleNamespace(OpResolverType=real.OpResolverType, handed=[])

    class Interpreter:
        def __init__(self, *, experimental_delegates: Any = None, **arguments: Any) -> None:
            self._real = real.Interpreter(**arguments)
            self._delegates = experimental_delegates

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def _get_ops_details(self) -> list[dict[str, Any]]:
            return [{"op_name": "DELEGATE" if self._delegates and takes else "CONV_2D"}]

    def load_delegate(path: str, options: dict[str, str]) -> Any:
        if not device:
            raise ValueError(f"Failed to load delegate from {path}")
        fake.handed.append((path, options))
        return object()

    fake.Interpreter = Interpreter
    fake.load_delegate = load_delegate
    return fake
