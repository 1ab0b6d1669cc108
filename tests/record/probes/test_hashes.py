"""Equal rows have equal hashes, other rows others, in every process."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from odd_tensors import ODD

from lossdoctor.record.probes.hashes import hex_hashes, row_hashes


def distinct(tensor):
    """The slow twin: how many rows differ in their bytes."""
    flat = tensor.contiguous().reshape(len(tensor), -1)
    return len({row.view(torch.uint8).numpy().tobytes() for row in flat})


def test_equal_rows_and_only_those_share_a_hash():
    rows = torch.randn(500, 33)[torch.randint(0, 500, (2000,))]
    assert len(np.unique(row_hashes([rows]))) == distinct(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8])
def test_small_whole_numbers_do_not_collide(dtype):
    """Every pair of numbers below 256 at two places of eight: their floats end in zero bits, a linear hash would collide."""
    first, second = torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")
    rows = torch.zeros(65536, 8, dtype=dtype)
    rows[:, 0], rows[:, 5] = first.flatten().to(dtype), second.flatten().to(dtype)
    assert len(np.unique(row_hashes([rows]))) == 65536


def test_black_and_white_images_do_not_collide():
    rows = ((torch.arange(65536)[:, None] >> torch.arange(16)) & 1).float().repeat(1, 4)
    assert len(np.unique(row_hashes([rows]))) == 65536


def test_the_bits_of_hashes_are_even():
    """Each bit is set in half of the hashes, within six standard deviations."""
    hashes = row_hashes([torch.arange(40_000.0)])
    shares = [((hashes >> np.uint64(bit)) & np.uint64(1)).mean() for bit in range(64)]
    assert np.abs(np.array(shares) - 0.5).max() < 6 * 0.5 / np.sqrt(40_000)


def test_order_within_a_row_counts_and_order_of_rows_does_not():
    rows = torch.randn(10, 4)
    assert not np.any(row_hashes([rows]) == row_hashes([rows.flip(1)]))
    assert np.array_equal(row_hashes([rows])[::-1], row_hashes([rows.flip(0)]))


def test_all_tensors_count_and_their_order_too():
    first, second = torch.randn(6, 3), torch.randn(6, 3)
    one = row_hashes([first])
    assert not np.any(one == row_hashes([first, second]))
    assert not np.any(row_hashes([second, first]) == row_hashes([first, second]))
    assert np.array_equal(one, row_hashes([first, torch.randn(5), torch.tensor(1.0), "text", None]))


def test_the_layout_in_memory_does_not_matter():
    images = torch.randn(5, 3, 8, 9)
    assert np.array_equal(row_hashes([images]), row_hashes([images.to(memory_format=torch.channels_last)]))
    assert np.array_equal(row_hashes([images[::2]]), row_hashes([images])[::2])


def test_long_rows_are_hashed_whole():
    rows = torch.zeros(3, 300_001)
    rows[1, -1], rows[2, 150_000] = 1, 1
    assert len(np.unique(row_hashes([rows]))) == 3


def test_hashes_are_the_same_in_another_process():
    code = "import torch; from lossdoctor.record.probes.hashes import *; print(*hex_hashes(row_hashes([torch.arange(12.).view(3, 4)])))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "src", "PYTHONHASHSEED": "7"}
    )
    assert other.stdout.split() == hex_hashes(row_hashes([torch.arange(12.0).view(3, 4)]))


def test_text_has_sixteen_digits():
    assert all(len(text) == 16 for text in hex_hashes(row_hashes([torch.randn(100)])))


@pytest.mark.parametrize("kind", ODD)
def test_every_kind_of_tensor_is_survived(kind):
    assert row_hashes([ODD[kind]]).dtype == np.uint64


def test_a_tensor_on_a_device_is_not_moved_unless_asked(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
    assert len(row_hashes([torch.ones(3, 2)])) == 0
    assert len(row_hashes([torch.ones(3, 2)], allow_device=True)) == 3
