"""What fills sequences up is counted, at either end; images, tables and short rows hold none."""

from __future__ import annotations

import pytest
import torch

from lossdoctor.record.probes.batch import describe_inputs
from lossdoctor.record.probes.padding import padding_share


def tokens(lengths: list[int], width: int, left: bool = False, filling: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.full((len(lengths), width), filling)
    for row, length in zip(rows, lengths, strict=True):
        place = slice(width - length, width) if left else slice(0, length)
        row[place] = torch.randint(5, 99, (length,), generator=generator)
    return rows


def counted(rows: torch.Tensor, filling: int) -> float:
    """Count the slow, obvious way; lengths are known by the rows' own values being 5 and above."""
    return sum(int(value == filling) for row in rows.tolist() for value in row) / rows.numel()


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("filling", [0, 1, -100])
def test_padding_of_tokens_is_what_counting_gives(left: bool, filling: int) -> None:
    rows = tokens([3, 8, 20, 12, 5, 7], 20, left, filling)
    assert padding_share(rows) == pytest.approx(counted(rows, filling))


def test_vectors_are_padding_where_all_their_features_are() -> None:
    lengths = [4, 9, 16, 2]
    rows = torch.randn(4, 16, 3)
    for row, length in zip(rows, lengths, strict=True):
        row[length:] = 0.0
    expected = 1 - sum(lengths) / (4 * 16)
    assert padding_share(rows) == pytest.approx(expected)
    assert padding_share(rows.transpose(1, 2)) == pytest.approx(expected)
    (fields,) = describe_inputs((rows,), {})
    assert fields["padding"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tensor", "share"),
    [
        (torch.randint(5, 99, (8, 30)), 0.0),
        (torch.randn(8, 30, 4), 0.0),
        (torch.zeros(8, 5, dtype=torch.long), None),
        (torch.zeros(8, 64), None),
        (torch.zeros(8, 3, 32, 32), None),
        (torch.ones(8, 30, dtype=torch.bool), None),
        (torch.zeros(1, 30, dtype=torch.long), None),
        (torch.empty(8, 30, dtype=torch.long, device="meta"), None),
    ],
)
def test_what_is_no_padding(tensor: torch.Tensor, share: float | None) -> None:
    assert padding_share(tensor) == share


def test_one_end_mark_is_no_padding() -> None:
    rows = torch.randint(5, 99, (8, 30))
    rows[:, -1] = 2
    assert padding_share(rows) == 0.0
