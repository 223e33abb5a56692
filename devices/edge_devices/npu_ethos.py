"""NPUs of NXP's i.MX: Arm Ethos-U65 (i.MX 93), VeriSilicon (i.MX 8M Plus), eIQ Neutron (i.MX 95): TFLite delegates.

Ethos-U and Neutron run what Vela or the Neutron converter made of an int8 TFLite file; VeriSilicon's delegate takes the
plain file and compiles it when it is first run, so it is given a folder to keep that in.

Sources: NXP UG10166, "i.MX Machine Learning User's Guide" (delegates ``/usr/lib/libethosu_delegate.so``,
``/usr/lib/libvx_delegate.so``, ``/usr/lib/libneutron_delegate.so``); options of the VeriSilicon delegate:
vx_delegate_adaptor.cc of github.com/VeriSilicon/tflite-vx-delegate (``allowed_cache_mode``, ``cache_file_path``,
``error_during_*``, which makes it fail where it would go on quietly). For the two others no option is confirmed, so
they are given none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import CACHE, EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail="detection over modelled file trees; delegates' names and options with a fake interpreter; no i.MX was run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One of the chips with an NPU."""

    name: str
    node: str
    """Made by the NPU's driver."""
    choice: EngineChoice


def _choice(name: str, library: str, options: dict[str, str], compiled: str = "") -> EngineChoice:
    return EngineChoice(
        name=name,
        engine="litert",
        providers={library: options},
        caching=("allowed_cache_mode",),
        precisions=("int8",),
        compiled=compiled,
        install='pip install "edge-runtime[tflite]"',
        requires=(library,),
        driver="NXP's image with the eIQ packages (packagegroup-imx-ml), which has the driver and the delegate",
    )


CHIPS = {
    "fsl,imx93": Chip(
        name="Arm Ethos-U65 (i.MX 93)",
        node="/dev/ethosu0",
        choice=_choice("ethos-u", "/usr/lib/libethosu_delegate.so", {}, "vela"),
    ),
    "fsl,imx8mp": Chip(
        name="VeriSilicon NPU (i.MX 8M Plus)",
        node="/dev/galcore",
        choice=_choice(
            "vx",
            "/usr/lib/libvx_delegate.so",
            {
                "allowed_cache_mode": "true",
                "cache_file_path": f"{CACHE}/vx.nb",
                "error_during_init": "true",
                "error_during_prepare": "true",
                "error_during_invoke": "true",
            },
        ),
    ),
    "fsl,imx95": Chip(
        name="eIQ Neutron (i.MX 95)",
        node="/dev/neutron0",
        choice=_choice("neutron", "/usr/lib/libneutron_delegate.so", {}, "neutron-converter"),
    ),
}


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the NPU of this i.MX, or None."""
    compatible = files.strings(root, "/proc/device-tree/compatible")
    chip = next((CHIPS[name] for name in compatible if name in CHIPS), None)
    if chip is None:
        return None
    missing = not files.exists(root, chip.node)
    return Profile(
        family="npu_ethos",
        model=chip.name,
        evidence=EVIDENCE,
        accelerator=True,
        int8=True,
        choices=() if missing else (chip.choice,),
        notes=(f"{chip.name} has no driver here, since there is no {chip.node}; use NXP's kernel",) if missing else (),
    )
