"""Accelerators that no test here ever ran on: one table of what their vendors document, and how each is recognised.

`FACTS` holds what does not depend on the machine: precisions, engines, options, and the lines that install them. A
function of the same name completes it with what the machine's files say. Sources of the options, by family:

- ``npu_coral``: coral.ai/docs/edgetpu/tflite-python (``libedgetpu.so.1``), coral.ai/docs/edgetpu/multiple-edgetpu
  (``device``), coral.ai/docs/pcie-parameters (``/sys/class/apex``, millidegrees). The stick is 1a6e:089a until its
  firmware is loaded and 18d1:9302 afterwards. Whatever `edgetpu_compiler` left to the processor runs there.
- ``npu_intel``: onnxruntime.ai/docs/execution-providers/OpenVINO-ExecutionProvider.html: ``device_type`` (one device,
  so that OpenVINO does not fall back to its own CPU kernels unseen), ``cache_dir`` (from 1.23 on also in
  ``load_config``; the older key works in both). The NPU's compiler wants shapes without a free axis.
- ``npu_qualcomm``: docs/execution_providers/QNN-ExecutionProvider.md of github.com/onnxruntime/onnxruntime-qnn, a
  plug-in for ONNX Runtime 1.24 and later: ``backend_type`` (``htp`` is the NPU), graph optimisation 3 (longest
  preparation, best graph). No free shapes; unsigned int8 activations. FastRPC's driver makes ``/dev/fastrpc-cdsp``.
- ``npu_rockchip``: docs.mesa3d.org/teflon.html and docs.mesa3d.org/drivers/rocket.html (Linux 6.18, RK3588, Mesa 25.3:
  int8 convolutions and additions of a plain file). Rockchip's own runtime takes ``.rknn`` files, which no bundle holds.
- ``npu_hailo``: HailoRT user guide; ``.hef`` files alone (its execution provider is of a fork of onnxruntime 1.11). The
  driver (github.com/hailo-ai/hailort-drivers) makes ``/dev/hailo0`` and registers PCI vendor 1e60.
- ``npu_ethos``: NXP UG10166 (delegates), vx_delegate_adaptor.cc of github.com/VeriSilicon/tflite-vx-delegate
  (``allowed_cache_mode``, ``cache_file_path``, and ``error_during_*``, which makes it fail where it would go on
  quietly). No option of the two others is confirmed, so they are given none.
- ``npu_amd``: onnxruntime.ai/docs/execution-providers/Vitis-AI-ExecutionProvider.html: ``cache_dir``; compiling takes
  minutes. That page lists Ryzen AI for Windows alone, so on Linux only loading shows whether the provider starts.
- ``npu_apple``: onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html (``MLProgram``: macOS 12). macOS
  says what it is in one file and all else through calls, so neither cores nor sensors are known.
- ``npu_android``: onnxruntime.ai/docs/execution-providers/NNAPI-ExecutionProvider.html (from API level 27; its options
  are flags of C and Java); level 35 has deprecated it: developer.android.com/ndk/guides/neuralnetworks/migration-guide.
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import CACHE, EngineChoice, Evidence, Gauge, Profile


def _facts(
    family: str, model: str, tested: str, *choices: EngineChoice, fp16: bool = False, int8: bool = False
) -> Profile:
    return Profile(
        family=family, model=model, evidence=Evidence(tier="simulated", detail=tested), accelerator=True, fp16=fp16,
        int8=int8, choices=choices,
    )  # fmt: skip


def _delegate(name: str, library: str, options: Mapping[str, str], driver: str, compiled: str = "") -> EngineChoice:
    return EngineChoice(
        name=name,
        engine="litert",
        providers={library: options},
        caching=("allowed_cache_mode",),
        precisions=("int8",),
        compiled=compiled,
        install='pip install "edge-runtime[tflite]"',
        requires=(library,) if library.startswith("/") else tuple(f"{one}/{library}" for one in files.LIBRARIES),
        driver=driver,
    )


def _openvino(device: str, driver: str, *requires: str, **options: str) -> EngineChoice:
    return EngineChoice(
        name=f"openvino-{device.lower()}",
        engine="onnxruntime",
        providers={"OpenVINOExecutionProvider": {"device_type": device, "cache_dir": CACHE, **options}},
        # Both packages install a module of the same name.
        install="pip uninstall -y onnxruntime && pip install onnxruntime-openvino",
        requires=tuple(f"{folder}/{name}" for folder in files.LIBRARIES for name in requires),
        driver=driver,
    )


_CORAL = _delegate(
    "edgetpu-litert", "libedgetpu.so.1", {"device": "usb"},
    "sudo apt install libedgetpu1-std  # Coral's repository first: coral.ai/docs/accelerator/get-started",
    "edgetpu_compiler",
)  # fmt: skip
_NXP: Final = "NXP's image with the eIQ packages (packagegroup-imx-ml), which has the driver and the delegate"

FACTS: Final = {
    one.family: one
    for one in (
        _facts(
            "npu_coral", "Coral Edge TPU on USB",
            "detection over file trees modelled on Coral's documentation; the delegate's name and options against a "
            "fake interpreter; delegates that take nothing, refuse and have no device with the real LiteRT on x86-64",
            _CORAL,
            replace(
                _CORAL, name="edgetpu-tflite-runtime", engine="tflite-runtime",
                install='pip install "edge-runtime[tflite-runtime]"',
            ),
            int8=True,
        ),
        _facts(
            "npu_intel", "Intel NPU and Intel GPU",
            "NPU and GPU over modelled file trees only. The provider itself was run on 2026-11-21 on an x86-64 "
            "processor (onnxruntime-openvino 1.24.1, device_type CPU): it took 17 of 17 nodes of a small int8 network "
            "with the same answers, and asked for an NPU or GPU that is not there it was refused out loud",
            _openvino(
                "NPU", "Intel's NPU driver, from github.com/intel/linux-npu-driver/releases",
                "libze_intel_npu.so*", "libze_intel_vpu.so*",  # renamed in 2025
                fixed_batch="1",
            ),
            _openvino("GPU", "sudo apt install intel-opencl-icd", "intel-opencl/libigdrcl.so"),
            fp16=True, int8=True,
        ),
        _facts(
            "npu_qualcomm", "Qualcomm Hexagon NPU",
            "detection over modelled file trees; registration as a plug-in and options against a fake onnxruntime. The "
            "library of onnxruntime-qnn 2.7.0 for Arm Linux holds every option by name; it was not run",
            EngineChoice(
                name="qnn", engine="onnxruntime",
                providers={
                    "QNNExecutionProvider": {
                        "library": "package:onnxruntime_qnn", "fixed_batch": "1", "backend_type": "htp",
                        "htp_graph_finalization_optimization_mode": "3", "enable_htp_fp16_precision": "1",
                    }
                },
                schemes=("u8s8", "u8u8"), install="pip install onnxruntime-qnn",
            ),
            fp16=True, int8=True,
        ),
        _facts(
            "npu_rockchip", "Rockchip NPU",
            "detection over modelled file trees; no NPU was run, not with Mesa's delegate and not with Rockchip's",
            _delegate(
                "teflon", "/usr/lib/teflon/libteflon.so", {},
                "sudo apt install mesa-teflon-delegate  # Mesa 25.3 or newer",
            ),
            int8=True,
        ),
        _facts(
            "npu_hailo", "Hailo", "detection over modelled file trees; nothing of a model runs on it", int8=True,
        ),
        _facts(
            "npu_ethos", "NPU of an i.MX",
            "detection over modelled file trees; delegates' names and options with a fake interpreter; no i.MX was run",
            _delegate("ethos-u", "/usr/lib/libethosu_delegate.so", {}, _NXP, "vela"),
            _delegate(
                "vx", "/usr/lib/libvx_delegate.so",
                {
                    "allowed_cache_mode": "true", "cache_file_path": f"{CACHE}/vx.nb", "error_during_init": "true",
                    "error_during_prepare": "true", "error_during_invoke": "true",
                },
                _NXP,
            ),
            _delegate("neutron", "/usr/lib/libneutron_delegate.so", {}, _NXP, "neutron-converter"),
            int8=True,
        ),
        _facts(
            "npu_amd", "AMD XDNA NPU",
            "detection over a modelled file tree; provider and options against a fake onnxruntime; no NPU was run",
            EngineChoice(
                name="vitisai", engine="onnxruntime",
                providers={"VitisAIExecutionProvider": {"cache_dir": CACHE, "fixed_batch": "1"}},
                precisions=("int8",),
                install="AMD's Ryzen AI Software with its onnxruntime: ryzenai.docs.amd.com/en/latest/inst.html",
                requires=("/opt/xilinx/xrt",), driver="AMD's XRT and XDNA driver: github.com/amd/xdna-driver",
            ),
            int8=True,
        ),
        _facts(
            "npu_apple", "CoreML",
            "detection over a modelled file; provider and options against a fake onnxruntime; the library of "
            "onnxruntime 1.31.1 for macOS holds every option by name; no Mac was at hand",
            EngineChoice(
                name="coreml", engine="onnxruntime",
                providers={
                    "CoreMLExecutionProvider": {
                        "ModelFormat": "MLProgram", "MLComputeUnits": "ALL", "RequireStaticInputShapes": "1",
                        "ModelCacheDirectory": CACHE, "fixed_batch": "1",
                    }
                },
                precisions=("fp32", "fp16"), install='pip install "edge-runtime[onnx]"',
            ),
            fp16=True,
        ),
        _facts(
            "npu_android", "NNAPI",
            "detection over a modelled file; provider against a fake onnxruntime; no Android device was at hand",
            EngineChoice(
                name="nnapi", engine="onnxruntime", providers={"NnapiExecutionProvider": {"fixed_batch": "1"}},
                install="a build of onnxruntime for Android with --use_nnapi (no wheel for Python has it)",
            ),
        ),
    )
}  # fmt: skip


def _compatible(root: Path, vendor: str) -> list[str]:
    """Names of this machine's chips from a vendor, the most general first."""
    names = files.strings(root, "/proc/device-tree/compatible")
    return [name.removeprefix(vendor) for name in reversed(names) if name.startswith(vendor)]


def npu_coral(root: Path) -> Profile | None:
    """Detect the Edge TPUs of this machine, or None."""
    sticks = sum(ids in {(0x1A6E, 0x089A), (0x18D1, 0x9302)} for ids in buses.usb(root))
    cards = buses.pci(root).count((0x1AC1, 0x089A))
    if not sticks and not cards:
        return None
    notes = []
    if cards and not files.exists(root, "/dev/apex_0"):
        notes.append(
            "the Edge TPU card has no driver, since there is no /dev/apex_0; install gasket-dkms (coral.ai/docs/m2)"
        )
    if sticks + cards > 1:
        notes.append(f"{sticks + cards} Edge TPUs are here and one of them is used")
    facts, details = FACTS["npu_coral"], {"usb": str(sticks), "pci": str(cards)}
    if cards:
        on_pci = {"libedgetpu.so.1": {"device": "pci"}}
        choices = tuple(replace(choice, providers=on_pci) for choice in facts.choices)
        facts = replace(facts, model="Coral Edge TPU on PCIe", choices=choices)
    return replace(facts, temperatures=_apex(root), details=details, notes=tuple(notes))


def _apex(root: Path) -> tuple[Gauge, ...]:
    """Temperatures of Edge TPU cards."""
    found = []
    for folder in files.entries(root, "/sys/class/apex/apex_*"):
        if files.exists(root, path := f"{folder}/temp"):
            limit = files.number(root, f"{folder}/trip_point0_temp")
            kept = None if limit is None or limit <= 0 else limit / 1000
            name = folder.rpartition("/")[2]
            found.append(Gauge(name=name, unit="degC", paths=(path,), scale=0.001, limit=kept))
    return tuple(found)


def npu_intel(root: Path) -> Profile | None:
    """Detect the Intel NPU and GPUs of this machine, or None."""
    npus, gpus = buses.accelerators(root, "intel_vpu"), buses.render_nodes(root, ("i915", "xe"))
    facts = FACTS["npu_intel"]
    here = [
        (name, choice)
        for name, choice, nodes in zip(("Intel NPU", "Intel GPU"), facts.choices, (npus, gpus), strict=True)
        if nodes
    ]
    if not here:
        return None
    model, choices = " and ".join(name for name, _ in here), tuple(choice for _, choice in here)
    return replace(facts, model=model, choices=choices, details={"nodes": ", ".join((*npus, *gpus))})


def npu_qualcomm(root: Path) -> Profile | None:
    """Detect the Hexagon NPU of this machine, or None."""
    chip, nodes = next(iter(_compatible(root, "qcom,")), ""), files.entries(root, "/dev/fastrpc-cdsp*")
    if not chip or not nodes:
        return None
    details = {"chip": chip, "nodes": ", ".join(nodes)}
    return replace(FACTS["npu_qualcomm"], model=f"Qualcomm Hexagon NPU ({chip})", details=details)


def npu_rockchip(root: Path) -> Profile | None:
    """Detect the RKNPU of this machine, or None; the vendor's driver offers nothing to run."""
    known = ("rk3588", "rk3588s", "rk3576", "rk3568", "rk3566", "rk3562")
    chip = next((name for name in _compatible(root, "rockchip,") if name in known), "")
    mainline = buses.accelerators(root, "rocket")
    vendor = files.exists(root, "/sys/module/rknpu") or bool(files.entries(root, "/sys/class/devfreq/*.npu"))
    if not chip or not (mainline or vendor):
        return None
    details = {"chip": chip}
    if version := files.text(root, "/sys/module/rknpu/version"):
        details["driver"] = version
    found = replace(FACTS["npu_rockchip"], model=f"Rockchip NPU ({chip})", details=details)
    if mainline:
        return found
    note = (
        "the Rockchip NPU has the vendor's driver, whose runtime takes .rknn files; edge-runtime runs none of "
        "those and uses the processor (a mainline kernel with Mesa's Teflon delegate takes int8 TFLite)"
    )
    return replace(found, choices=(), notes=(note,))


def npu_hailo(root: Path) -> Profile | None:
    """Detect the Hailo accelerator of this machine, or None; it is reported and not used."""
    found = [device for vendor, device in buses.pci(root) if vendor == 0x1E60]
    nodes = files.entries(root, "/dev/hailo*")
    if not found and not nodes:
        return None
    note = "the Hailo accelerator takes .hef files; edge-runtime runs none of those, so models run on the processor"
    if not nodes:
        note += "; its driver is missing too: sudo apt install hailo-all"
    model, details = "Hailo-8" if found[:1] == [0x2864] else "Hailo", {"nodes": ", ".join(nodes)} if nodes else {}
    return replace(FACTS["npu_hailo"], model=model, details=details, notes=(note,))


_IMX = {
    "imx93": ("Arm Ethos-U65 (i.MX 93)", "/dev/ethosu0"),
    "imx8mp": ("VeriSilicon NPU (i.MX 8M Plus)", "/dev/galcore"),
    "imx95": ("eIQ Neutron (i.MX 95)", "/dev/neutron0"),
}
"""Name, and device node that the driver makes, in the order of the choices."""


def npu_ethos(root: Path) -> Profile | None:
    """Detect the NPU of this i.MX, or None."""
    chip = next((name for name in reversed(_compatible(root, "fsl,")) if name in _IMX), None)
    if chip is None:
        return None
    facts, (name, node) = FACTS["npu_ethos"], _IMX[chip]
    if files.exists(root, node):
        return replace(facts, model=name, choices=(facts.choices[list(_IMX).index(chip)],))
    return replace(
        facts, model=name, choices=(), notes=(f"{name} has no driver here, since there is no {node}; use NXP's kernel",)
    )


def npu_amd(root: Path) -> Profile | None:
    """Detect the XDNA NPU of this machine (driver ``amdxdna``), or None."""
    nodes = buses.accelerators(root, "amdxdna")
    return replace(FACTS["npu_amd"], details={"nodes": ", ".join(nodes)}) if nodes else None


def npu_apple(root: Path) -> Profile | None:
    """Detect the CoreML of this Mac, or None."""
    written = files.data(root, "/System/Library/CoreServices/SystemVersion.plist")
    try:
        about = plistlib.loads(written or b"")
        name, version = str(about["ProductName"]), str(about["ProductVersion"])
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except Exception:  # noqa: BLE001 - plistlib raises whatever its parsers do
        return None
    if not name.startswith("mac"):
        return None
    found = replace(FACTS["npu_apple"], model=f"CoreML of {name} {version}")
    return found if numbers >= (12,) else replace(found, choices=(), notes=("CoreML needs macOS 12 or later",))


def npu_android(root: Path) -> Profile | None:
    """Detect the NNAPI of this Android, or None."""
    lines = (files.text(root, "/system/build.prop") or "").splitlines()
    properties = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    level = properties.get("ro.build.version.sdk", "")
    if not level.isdigit() or len(level) > 4:
        return None
    facts, model = FACTS["npu_android"], properties.get("ro.product.system.model")
    note = "this Android has deprecated NNAPI; LiteRT on the processor is likely as fast"
    return replace(
        facts,
        model=f"NNAPI of Android API level {level}",
        choices=facts.choices if int(level) >= 27 else (),
        details={"model": model} if model else {},
        notes=(note,) if int(level) >= 35 else (),
    )
