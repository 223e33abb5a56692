"""What a machine says of itself, read from made-up trees of ``/proc``."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

from edge_runtime.model.tuning.timing import this_machine

PI = """processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid asimddp
CPU implementer\t: 0x41

Model\t\t: Raspberry Pi 5 Model B Rev 1.0
"""
PC = "processor\t: 0\nmodel name\t: Some Processor: fast\nflags\t\t: fpu sse2 avx2 fma avx512_vnni\n"


def test_an_arm_board_goes_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(PI)
    (tmp_path / "device-tree").mkdir()
    (tmp_path / "device-tree" / "model").write_bytes(b"Raspberry Pi 5 Model B Rev 1.0\0")
    machine = this_machine(tmp_path)
    assert machine.processor == "Raspberry Pi 5 Model B Rev 1.0"
    assert machine.flags == ("asimd", "asimddp")
    assert machine.label.startswith("Raspberry Pi 5 Model B Rev 1.0 (")


def test_a_pc_goes_by_its_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(PC)
    machine = this_machine(tmp_path)
    assert machine.processor == "Some Processor: fast"
    assert machine.flags == ("avx2", "fma", "avx512_vnni")


def test_a_system_that_tells_nothing_is_still_a_machine(tmp_path: Path) -> None:
    machine = this_machine(tmp_path)
    assert machine.processor
    assert machine.flags == ()
    assert machine.cores >= 1
    assert machine.memory_mb > 0


def test_neither_host_nor_user_gets_out() -> None:
    text = repr(this_machine())
    assert platform.node() not in text
    assert f"'{getpass.getuser()}'" not in text
    assert "numpy" in text
