"""Which column plays which role."""

from __future__ import annotations

import math

import pytest

from lossdoctor.core.errors import UsageError
from lossdoctor.readers import read
from lossdoctor.readers.parts.lines import pairs
from lossdoctor.readers.parts.names import meaning
from lossdoctor.readers.parts.numbers import clock, number
from lossdoctor.readers.parts.roles import decide, parse_map
from lossdoctor.readers.parts.table import Column, Table


@pytest.mark.parametrize(
    ("name", "split", "kind"),
    [
        ("loss", "", "loss"),
        ("train_loss_step", "train", "loss"),
        ("valLoss", "validation", "loss"),
        ("valloss", "validation", "loss"),
        ("eval/nll", "validation", "loss"),
        ("test_loss", "test", "loss"),
        ("lossG+lossD", "", "loss"),
        ("l_pix", "", "loss"),
        ("validation/main/loss", "validation", "loss"),
        ("learning_rate", "", "lr"),
        ("lr/pg0", "", "lr"),
        ("x/lr0", "", "lr"),
        ("optim0_lr0", "", "lr"),
        ("grad_norm", "", "grad_norm"),
        ("gnorm", "", "grad_norm"),
        ("global_step", "", "step"),
        ("num_updates", "", "step"),
        ("total_steps", "", ""),
        ("train_loss_epoch", "train", "loss"),
        ("epoch", "", "epoch"),
        ("data_time", "", "wait"),
        ("eval_samples_per_second", "validation", "throughput"),
        ("tok/sec", "", "throughput"),
        ("eval_runtime", "validation", "time"),
        ("remaining_time", "", ""),
        ("loss_scale", "", "loss_scale"),
        ("loss_weight", "", ""),
        ("rpn/num_neg_anchors", "", ""),
        ("metrics/mAP50-95(B)", "", "metric"),
        ("val/reward", "validation", "metric"),
        ("class_error", "", "metric"),
        ("Top1", "", "metric"),
        ("memory", "", ""),
    ],
)
def test_a_name_says_split_and_kind(name: str, split: str, kind: str) -> None:
    found = meaning(name)
    assert (found.split, found.kind) == (split, kind)


def test_direction_of_scores() -> None:
    assert meaning("val_acc").higher is True
    assert meaning("wer").higher is False
    assert meaning("loss").higher is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1,234.5", 1234.5),
        ("0,98", 0.98),
        ("12%", 12.0),
        ("395.86ms", 0.39586),
        ("tensor(2.5, device='cuda:0')", 2.5),
        ("00:41", 41.0),
        ("True", None),
        ("NA", None),
        ("", None),
    ],
)
def test_numbers_as_people_print_them(text: str, value: float | None) -> None:
    assert number(text) == (None if value is None else pytest.approx(value))


def test_a_missing_value_is_not_a_value_that_is_no_number() -> None:
    assert number("NA") is None
    assert math.isnan(number("NaN") or 0.0)
    assert number("-inf") == -math.inf
    assert clock("soon") is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Epoch [3/20], Train Loss: 2.04, Val Acc: 16.4%", {"Epoch": 3, "Train Loss": 2.04, "Val Acc": 16.4}),
        ("iter 10: loss 9.8120, time 402.10ms, mfu 31.22%", {"iter": 10, "loss": 9.812, "time": 402.1}),
        ("[eta: 4:06:17] epoch=2 loss=nan", {"epoch": 2, "loss": math.nan}),
        ("acc: 95/100", {"acc": 0.95}),
        ("2021-10-20 14:16:28,090 - INFO - a sentence with 3 words", {}),
        ('File "train.py", line 83, in main', {}),
        ("step:1 loss:2.5 lr:1e-4", {"step": 1, "loss": 2.5, "lr": 1e-4}),
    ],
)
def test_figures_of_a_line(line: str, expected: dict[str, float]) -> None:
    found = {pair.name: pair.value for pair in pairs(line)}
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_line_of_a_million_letters_takes_no_time() -> None:
    assert pairs("a" * 1_000_000) == []
    assert pairs("a." * 500_000) == []
    assert pairs("a b c d " * 100_000) == []


def table(**columns: list[float]) -> Table:
    return Table.of(columns)


def test_the_step_twin_is_taken_before_the_mean_over_the_epoch() -> None:
    made = table(train_loss_step=[2.0, 1.0, 0.9], train_loss_epoch=[1.5, 1.2, 1.0])
    assert decide(made).chosen["loss"] == ("train_loss_step",)


def test_a_summary_of_one_value_is_not_the_loss() -> None:
    made = Table(columns={"loss": Column.of([2.0] * 30), "train_loss": Column.of([1.5], [29])}, rows=30)
    assert decide(made).chosen["loss"] == ("loss",)


def test_a_term_that_is_the_sum_of_the_others_is_the_loss() -> None:
    made = table(lossG=[0.25, 0.2, 0.2], lossD=[0.5, 0.5, 0.4], both_loss=[0.75, 0.7, 0.6])
    assert decide(made).chosen["loss"] == ("both_loss",)


def test_scores_that_come_seldom_are_of_the_validation() -> None:
    made = Table(columns={"loss": Column.of([1.0] * 30), "AP": Column.of([0.2, 0.3], [9, 29])}, rows=30)
    assert decide(made).chosen["validation_metric"] == ("AP",)


def test_the_user_says_what_a_column_is() -> None:
    costs = {"a": [3.0, 2.0, 1.0], "b": [4.0, 3.0, 2.0]}
    diagnosis = read(costs, columns={"loss": "a", "val_loss": "b"})
    roles = {entry["column"]: entry["role"] for entry in diagnosis.run["columns"]}
    assert roles == {"a": "loss", "b": "validation_loss"}
    assert diagnosis.vitals["first_loss"] == 3.0


@pytest.mark.parametrize(("pair", "word"), [("loss", "ROLE=COLUMN"), ("lost=a", "no role 'lost'")])
def test_a_wrong_map_is_named(pair: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        parse_map((pair,))


def test_a_mapped_column_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'my_cost'"):
        read({"my_cost": [1.0, 2.0]}, columns={"loss": "my_cots"})


def test_bits_and_perplexities_are_turned_into_nats() -> None:
    assert read({"valid bpc": [2.0, 1.0], "bpc": [2.0, 1.0]}).vitals["first_loss"] == pytest.approx(2 * math.log(2), rel=1e-4)
    assert read({"train_ppl": [math.e**2, math.e]}).vitals["first_loss"] == pytest.approx(2.0, rel=1e-4)


def test_the_report_says_which_columns_were_read() -> None:
    assert any("read as loss: train_loss" in note for note in read({"train_loss": [2.0, 1.0]}).notes)


def test_sums_over_rows_are_not_compared_with_means_where_a_perplexity_is_told() -> None:
    made = table(**{"batch loss": [2.5, 1.9], "valid loss": [149740.0, 140000.0], "valid ppl": [9.0, 8.0]})
    assert decide(made).chosen["validation_loss"] == ("valid ppl",)
