"""What is special of a Raspberry Pi: the firmware's throttling bits, and boards without them."""

from __future__ import annotations

from pathlib import Path

from edge_devices import raspberry_pi

from tests.edge_devices import trees


def test_the_bits_are_read_as_hexadecimal_without_a_prefix(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "raspberry-pi-4")
    profile = raspberry_pi.detect(root)
    assert profile is not None
    flags = {flag.name: flag for flag in profile.throttling}
    # The tree holds 50005: under-voltage and throttled, now and before.
    assert {name: bool(flag.read(root)) for name, flag in flags.items() if not name.startswith("cooling")} == {
        "under_voltage": True, "frequency_capped": False, "throttled": True, "soft_temperature_limit": False,
    }  # fmt: skip
    (root / "sys/devices/platform/soc/soc:firmware/get_throttled").write_text("80008\n")
    assert flags["soft_temperature_limit"].read(root)
    assert not flags["throttled"].read(root)
    (root / "sys/devices/platform/soc/soc:firmware/get_throttled").write_text("throttled=0x0\n")
    assert flags["throttled"].read(root) is None


def test_a_kernel_without_the_bits_leaves_the_voltage_alarm_and_says_so(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "raspberry-pi-5")
    profile = raspberry_pi.detect(root)
    assert profile is not None
    (flag,) = profile.throttling
    assert (flag.name, flag.path, flag.read(root)) == ("under_voltage", "/sys/class/hwmon/hwmon3/in0_lcrit_alarm", 0)
    assert "does not say when the firmware throttles" in profile.notes[0]
    assert profile.details == {"generation": "5"}


def test_a_board_that_was_not_looked_at_still_runs_and_says_so(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "raspberry-pi-4")
    (root / "proc/device-tree/model").write_bytes(b"Raspberry Pi 6 Model B Rev 1.0\0")
    profile = raspberry_pi.detect(root)
    assert profile is not None
    assert profile.details == {}
    assert "Raspberry Pi 6" in profile.notes[0]


def test_xnnpack_is_offered_after_what_the_wheels_have(tmp_path: Path) -> None:
    profile = raspberry_pi.detect(trees.machine(tmp_path, "raspberry-pi-5"))
    assert profile is not None
    (xnnpack,) = (choice for choice in profile.choices if choice.name == "xnnpack")
    assert xnnpack.options(None) == {"XnnpackExecutionProvider": {"intra_op_num_threads": "4"}}
    assert profile.thread_counts == (1, 2, 4)
