"""The table of devices, what users may add to it, and the roofline that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossdoctor.core.config import load_settings
from lossdoctor.core.errors import UsageError
from lossdoctor.machine.devices import Device, devices
from lossdoctor.machine.roofline import gain, least_seconds

MINE = {"memory_gb": 8, "bandwidth_gb": 200, "float32_tflops": 5}


def test_every_device_has_a_source() -> None:
    assert len(devices()) >= 8
    assert all(device.source and device.price_per_hour is None for device in devices())


def test_a_device_of_pyproject_is_added_or_takes_the_place_of_ours(tmp_path: Path) -> None:
    text = '[tool.lossdoctor.devices."NVIDIA L4"]\nmemory_gb = 1\nbandwidth_gb = 2\nfloat32_tflops = 3\nprice_per_hour = 0.5\n'
    (tmp_path / "pyproject.toml").write_text(text)
    (found,) = [device for device in devices(load_settings(tmp_path).devices) if device.name == "NVIDIA L4"]
    assert (found.memory_gb, found.price_per_hour, found.source) == (1, 0.5, "pyproject.toml")
    assert len(devices({"Mine": MINE})) == len(devices()) + 1


@pytest.mark.parametrize("change", [{"bandwidth_gb": 0}, {"bandwidth_gb": "fast"}, {"bandwidth_gb": True}, {"colour": 1}])
def test_a_mistake_names_the_device_and_the_field(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"Mine.*(bandwidth_gb|colour)"):
        devices({"Mine": MINE | change})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(UsageError, match="float32_tflops is missing"):
        devices({"Mine": {"memory_gb": 8, "bandwidth_gb": 200}})


def test_each_operation_is_bound_by_its_own_roof() -> None:
    kinds = [(10, 2e9, 1e6), (5, 0.0, 1e9), (100, 0.0, 10.0)]
    flops, bandwidth, launch = 1e12, 1e11, 1e-5
    slow_twin = 0.0
    for count, operations, size in kinds:
        for _ in range(count):
            slow_twin += max(operations / flops, size / bandwidth, launch)
    found = least_seconds(kinds, flops, bandwidth, launch)
    assert found.seconds == pytest.approx(slow_twin)
    assert found.compute + found.memory + found.launch == pytest.approx(1.0)
    assert found.bound == "memory"


def test_a_step_that_only_waits_gains_nothing() -> None:
    device = Device("fast", 80, 1e4, 1e4)
    assert gain(device, [(1, 1.0, 1.0)], 1e-5, 1.0).factor == pytest.approx(1.0, abs=1e-3)
