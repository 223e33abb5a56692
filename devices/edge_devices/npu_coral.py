"""Google Coral Edge TPU on USB, PCIe or M.2: a TFLite delegate.

It runs models that the Edge TPU compiler has made from a fully int8 TFLite file; whatever else the file holds runs on
the processor, and a plain file runs there altogether, which the engine refuses to do in silence.

Sources: coral.ai/docs/edgetpu/tflite-python (delegate ``libedgetpu.so.1``), coral.ai/docs/edgetpu/multiple-edgetpu (its
option ``device``: ``usb``, ``pci``, or one of several by number), coral.ai/docs/pcie-parameters (``/sys/class/apex``,
temperatures in millidegrees). The stick is 1a6e:089a until its firmware is loaded and 18d1:9302 afterwards.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Gauge, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail=(
        "detection over file trees modelled on Coral's documentation; the delegate's name and options against a fake "
        "interpreter; delegates that take nothing, refuse and have no device with the real LiteRT on x86-64"
    ),
)

LIBRARY = "libedgetpu.so.1"
INSTALL = {
    "litert": 'pip install "edge-runtime[tflite]"',
    "tflite-runtime": 'pip install "edge-runtime[tflite-runtime]"',
}
_USB = {(0x1A6E, 0x089A), (0x18D1, 0x9302)}
_PCI = (0x1AC1, 0x089A)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Edge TPUs of this machine, or None."""
    sticks = sum(ids in _USB for ids in buses.usb(root))
    cards = buses.pci(root).count(_PCI)
    if not sticks and not cards:
        return None
    notes = [] if files.exists(root, "/dev/apex_0") or not cards else [_NO_NODE]
    if sticks + cards > 1:
        notes.append(f"{sticks + cards} Edge TPUs are here and one of them is used")
    return Profile(
        family="npu_coral",
        model="Coral Edge TPU on PCIe" if cards else "Coral Edge TPU on USB",
        evidence=EVIDENCE,
        accelerator=True,
        int8=True,
        choices=tuple(choice(engine, "pci" if cards else "usb") for engine in ("litert", "tflite-runtime")),
        temperatures=_temperatures(root),
        details={"usb": str(sticks), "pci": str(cards)},
        notes=tuple(notes),
    )


_NO_NODE = "the Edge TPU card has no driver, since there is no /dev/apex_0; install gasket-dkms (coral.ai/docs/m2)"


def choice(engine: str, device: str) -> EngineChoice:
    """Return the delegate in one of the two engines that take delegates.

    Args:
        engine: ``litert`` or ``tflite-runtime``.
        device: ``usb`` or ``pci``.
    """
    return EngineChoice(
        name=f"edgetpu-{engine}",
        engine=engine,
        providers={LIBRARY: {"device": device}},
        precisions=("int8",),
        compiled="edgetpu_compiler",
        install=INSTALL[engine],
        requires=tuple(f"{folder}/{LIBRARY}" for folder in files.LIBRARIES),
        driver="sudo apt install libedgetpu1-std  # Coral's repository first: coral.ai/docs/accelerator/get-started",
    )


def _temperatures(root: Path) -> tuple[Gauge, ...]:
    found = []
    for folder in files.entries(root, "/sys/class/apex/apex_*"):
        if not files.exists(root, f"{folder}/temp"):
            continue
        limit = files.number(root, f"{folder}/trip_point0_temp")
        found.append(
            Gauge(
                name=folder.rpartition("/")[2], unit="degC", paths=(f"{folder}/temp",), scale=0.001,
                limit=None if limit is None or limit <= 0 else limit / 1000,
            )
        )  # fmt: skip
    return tuple(found)
