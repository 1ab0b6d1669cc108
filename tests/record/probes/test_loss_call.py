"""What is said of a loss call agrees with torch itself: the guess with the best constant that an optimiser finds."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from odd_tensors import ODD

from lossdoctor.record.probes.loss_call import describe_loss_call

torch.manual_seed(0)


def describe(kind, *args, **kwargs):
    return describe_loss_call(kind, args, kwargs, getattr(F, kind)(*args, **kwargs))


def best_constant(kind, target, columns, spread, **kwargs):
    """The slow twin: the loss of the best answer that is the same for every row, found by an optimiser."""
    answer = torch.zeros(columns, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([answer], lr=0.5, max_iter=400, tolerance_grad=1e-12, tolerance_change=1e-14)

    def loss():
        optimizer.zero_grad()
        value = getattr(F, kind)(spread(answer), target, **kwargs)
        value.backward()
        return value

    for _ in range(5):
        value = optimizer.step(loss)
    return getattr(F, kind)(spread(answer.detach()), target, **kwargs).item() if value.isfinite() else math.nan


LABELS = torch.tensor([0, 0, 0, 1, 1, 3])
WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
CLASS_CALLS = {
    "plain": {},
    "sum": {"reduction": "sum"},
    "weighted": {"weight": WEIGHTS},
    "weighted sum": {"weight": WEIGHTS, "reduction": "sum"},
    "smoothed": {"label_smoothing": 0.2},
    "smoothed and weighted": {"label_smoothing": 0.2, "weight": WEIGHTS},
    "ignored": {"ignore_index": 1},
    "ignored sum": {"ignore_index": 1, "reduction": "sum", "label_smoothing": 0.1},
}


@pytest.mark.parametrize("name", CLASS_CALLS)
def test_the_guess_of_classes_is_the_best_constant(name):
    kwargs = CLASS_CALLS[name]
    call = describe("cross_entropy", torch.randn(6, 4, dtype=torch.float64), LABELS, **kwargs)
    assert call["guess_loss"] == pytest.approx(
        best_constant("cross_entropy", LABELS, 4, lambda answer: answer.expand(6, 4), **kwargs), abs=1e-3
    )
    zero = F.cross_entropy(torch.zeros(6, 4, dtype=torch.float64), LABELS, **kwargs).item()
    assert call["zero_loss"] == pytest.approx(zero)


@pytest.mark.parametrize("kwargs", [{}, {"weight": WEIGHTS}, {"label_smoothing": 0.1}, {"reduction": "sum"}])
def test_the_guess_of_soft_targets_is_the_best_constant(kwargs):
    target = torch.softmax(torch.randn(6, 4, dtype=torch.float64) * 2, 1)
    call = describe("cross_entropy", torch.randn(6, 4, dtype=torch.float64), target, **kwargs)
    assert call["guess_loss"] == pytest.approx(
        best_constant("cross_entropy", target, 4, lambda answer: answer.expand(6, 4), **kwargs), abs=1e-4
    )
    assert call["zero_loss"] == pytest.approx(F.cross_entropy(torch.zeros(6, 4, dtype=torch.float64), target, **kwargs).item())


TARGETS = torch.tensor([[0.5, 3.0], [1.0, 7.0], [2.5, 4.0], [0.0, 1.0]], dtype=torch.float64)
BITS = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "target", "kwargs"),
    [
        ("mse_loss", TARGETS, {}),
        ("mse_loss", TARGETS, {"reduction": "sum"}),
        ("huber_loss", TARGETS, {"delta": 10.0}),
        ("smooth_l1_loss", TARGETS, {"beta": 8.0}),
        ("poisson_nll_loss", TARGETS, {}),
        ("binary_cross_entropy_with_logits", BITS, {}),
        ("binary_cross_entropy_with_logits", BITS, {"pos_weight": torch.tensor([3.0, 0.5], dtype=torch.float64)}),
        ("binary_cross_entropy_with_logits", BITS, {"reduction": "sum"}),
        ("multilabel_soft_margin_loss", BITS, {}),
        ("multilabel_soft_margin_loss", BITS, {"reduction": "sum"}),
        ("soft_margin_loss", 2 * BITS - 1, {}),
    ],
)
def test_the_guess_of_numbers_is_the_best_constant_of_each_column(kind, target, kwargs):
    call = describe(kind, torch.randn(4, 2, dtype=torch.float64), target, **kwargs)
    assert call["guess_loss"] == pytest.approx(best_constant(kind, target, 2, lambda answer: answer.expand(4, 2), **kwargs), abs=1e-4)
    assert call["zero_loss"] == pytest.approx(getattr(F, kind)(torch.zeros(4, 2, dtype=torch.float64), target, **kwargs).item())


def test_the_guess_under_the_absolute_difference_is_the_mean_deviation_from_the_median():
    call = describe("l1_loss", torch.zeros(4, 2, dtype=torch.float64), TARGETS)
    median = np.median(TARGETS.numpy(), axis=0)
    assert call["guess_loss"] == pytest.approx(np.abs(TARGETS.numpy() - median).mean())


def test_the_guess_under_a_gaussian_is_its_entropy():
    prediction, variance = TARGETS.mean(0).expand(4, 2), TARGETS.var(0, unbiased=False).expand(4, 2)
    call = describe("gaussian_nll_loss", prediction, TARGETS, variance)
    assert call["guess_loss"] == pytest.approx(F.gaussian_nll_loss(prediction, TARGETS, variance).item())


def test_counts_entropy_and_correct_of_class_numbers():
    logits = torch.eye(4)[[0, 0, 1, 1, 1, 2]] * 5
    call = describe("cross_entropy", logits, LABELS)
    assert call["class_counts"] == [3, 2, 0, 1]
    assert call["classes"] == 4
    assert call["target_entropy"] == pytest.approx(-sum(p * math.log(p) for p in (3 / 6, 2 / 6, 1 / 6)))
    assert call["correct"] == pytest.approx((logits.argmax(1) == LABELS).float().mean().item())
    assert call["value"] == pytest.approx(F.cross_entropy(logits, LABELS).item())


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (5, 3, 4, 2)])
def test_the_class_dimension_is_the_second(shape):
    probabilities = torch.softmax(torch.randn(*shape), 1)
    labels = probabilities.argmax(1)
    call = describe("cross_entropy", probabilities, labels)
    assert call["classes"] == 3
    assert call["rows_sum_to_one"] == 1
    assert call["correct"] == 1
    assert sum(call["class_counts"]) == labels.numel()


def test_a_single_example_has_its_classes_first():
    call = describe("cross_entropy", torch.tensor([0.1, 0.9, 0.0]), torch.tensor(1))
    assert (call["classes"], call["correct"], call["class_counts"]) == (3, 1.0, [0, 1, 0])


def test_soft_targets_are_compared_by_their_largest_class():
    target = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert describe("cross_entropy", torch.tensor([[2.0, 0.0], [1.0, 0.0]]), target)["correct"] == 0.5


def test_ignored_targets_count_nowhere():
    labels = torch.tensor([0, -100, -100, 1])
    call = describe("cross_entropy", torch.eye(2)[[0, 1, 1, 0]], labels)
    assert call["ignored"] == 0.5
    assert call["correct"] == 0.5
    assert call["class_counts"] == [1, 1]
    assert call["target_min"] == 0


def test_all_targets_ignored_gives_no_guess():
    call = describe("cross_entropy", torch.randn(2, 3), torch.tensor([-100, -100]))
    assert call["ignored"] == 1
    assert call["guess_loss"] is None
    assert call["correct"] is None


def test_probabilities_are_told_from_logits():
    logits = torch.randn(8, 3, requires_grad=True)
    assert describe("cross_entropy", logits, torch.zeros(8).long())["rows_sum_to_one"] == 0
    assert describe("cross_entropy", logits.softmax(1), torch.zeros(8).long())["rows_sum_to_one"] == 1
    assert describe("nll_loss", logits.log_softmax(1), torch.zeros(8).long())["rows_log_normalised"] == 1
    assert describe("nll_loss", logits, torch.zeros(8).long())["rows_log_normalised"] == 0
    assert describe("binary_cross_entropy_with_logits", logits.sigmoid(), torch.ones(8, 3))["inside_unit"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_probabilities_are_told_in_every_precision(dtype):
    probabilities = (torch.randn(200, 50) * 2).to(dtype).softmax(1)
    assert describe_loss_call("cross_entropy", (probabilities, torch.zeros(200).long()), {}, torch.tensor(1.0))["rows_sum_to_one"] == 1
    assert (
        describe_loss_call("cross_entropy", (probabilities * 0.9, torch.zeros(200).long()), {}, torch.tensor(1.0))["rows_sum_to_one"] == 0
    )


def test_the_operation_behind_the_input_is_seen_through_views():
    hidden = torch.randn(4, 6, requires_grad=True)
    probabilities = torch.softmax(hidden.view(4, 2, 3), -1).transpose(0, 1).reshape(-1, 3)[1:].squeeze()
    assert describe("cross_entropy", probabilities, torch.zeros(7).long())["input_op"] == "SoftmaxBackward0"
    layer = torch.nn.Linear(6, 1)
    assert describe("mse_loss", layer(hidden).squeeze(1), torch.zeros(4))["input_op"] == "AddmmBackward0"
    assert describe("mse_loss", hidden.detach(), torch.zeros(4, 6))["input_op"] is None


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_shapes_that_broadcast_are_flagged_and_equal_ones_are_not():
    assert describe("mse_loss", torch.zeros(4, 1), torch.zeros(4))["broadcast"] is True
    assert describe("mse_loss", torch.zeros(4), torch.zeros(4))["broadcast"] is False
    assert describe("cross_entropy", torch.zeros(4, 2), torch.zeros(4).long())["broadcast"] is False


def test_binary_targets_are_two_classes_and_right_on_their_side():
    target = torch.tensor([[0.0], [1.0], [1.0]])
    logits = describe("binary_cross_entropy_with_logits", torch.tensor([[-1.0], [2.0], [-2.0]]), target)
    assert logits["class_counts"] == [1, 2]
    assert logits["correct"] == pytest.approx(2 / 3)
    assert describe("binary_cross_entropy", torch.tensor([[0.4], [0.6], [0.4]]), target)["correct"] == pytest.approx(2 / 3)


def test_settings_are_bound_by_name_by_place_and_in_the_old_way():
    logits, labels = torch.randn(6, 4, dtype=torch.float64), LABELS
    assert describe("cross_entropy", logits, labels, WEIGHTS)["weighted"] is True
    assert describe("cross_entropy", input=logits, target=labels, reduction="sum")["reduction"] == "sum"
    with pytest.warns(UserWarning, match="size_average"):
        assert describe("cross_entropy", logits, labels, size_average=False)["reduction"] == "sum"
    assert describe("cross_entropy", logits, labels, label_smoothing=0.1)["label_smoothing"] == 0.1


def test_large_calls_are_sampled_without_bias():
    logits, labels = torch.randn(40_000, 12), torch.randint(0, 12, (40_000,))
    logits[torch.arange(40_000), labels] += 2
    call = describe("cross_entropy", logits, labels)
    assert call["correct"] == pytest.approx((logits.argmax(1) == labels).float().mean().item(), abs=0.03)
    assert call["input_std"] == pytest.approx(logits.std().item(), rel=0.02)
    assert sum(call["class_counts"]) == 40_000


OTHER_CALLS = {
    "kl_div": (torch.randn(3, 4).log_softmax(1), torch.rand(3, 4).softmax(1)),
    "ctc_loss": (torch.randn(6, 2, 5).log_softmax(2), torch.ones(2, 3).long(), torch.tensor([6, 6]), torch.tensor([3, 3])),
    "cosine_embedding_loss": (torch.randn(3, 4), torch.randn(3, 4), torch.tensor([1, -1, 1])),
    "margin_ranking_loss": (torch.randn(3), torch.randn(3), torch.tensor([1, -1, 1])),
    "hinge_embedding_loss": (torch.randn(3), torch.tensor([1, -1, 1])),
    "multi_margin_loss": (torch.randn(3, 4), torch.tensor([1, 0, 3])),
    "multilabel_margin_loss": (torch.randn(3, 4), torch.tensor([[1, 0, -1, 0]] * 3)),
    "triplet_margin_loss": (torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)),
    "triplet_margin_with_distance_loss": (torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)),
}


@pytest.mark.parametrize("kind", OTHER_CALLS)
def test_every_other_loss_is_described_with_its_value(kind):
    call = describe(kind, *OTHER_CALLS[kind])
    assert call["kind"] == kind
    assert math.isfinite(call["value"])
    json.dumps(call)


def test_a_layer_inside_the_loss_tells_its_classes():
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("this torch has no such loss")
    call = describe("linear_cross_entropy", torch.randn(6, 3), torch.randn(4, 3), LABELS)
    assert (call["classes"], call["class_counts"], call["correct"]) == (4, [3, 2, 0, 1], None)
    assert call["zero_loss"] == pytest.approx(math.log(4))


@pytest.mark.parametrize("kind", ["cross_entropy", "mse_loss", "binary_cross_entropy", "kl_div", "nll_loss", "huber_loss"])
@pytest.mark.parametrize("odd", ODD)
def test_every_kind_of_tensor_is_survived(kind, odd):
    for prediction, target in ((ODD[odd], torch.ones(3)), (torch.ones(3, 2), ODD[odd]), (ODD[odd], ODD[odd])):
        json.dumps(describe_loss_call(kind, (prediction, target), {}, ODD[odd]))


@pytest.mark.parametrize(
    "arguments", [(), (torch.ones(2),), (None, None), ("text", 3), (torch.ones(2), torch.ones(3), 1, 2, 3, 4, 5, 6, 7, 8)]
)
def test_calls_that_torch_would_refuse_are_survived(arguments):
    assert describe_loss_call("cross_entropy", arguments, {}, None)["kind"] == "cross_entropy"


def test_describing_changes_neither_graph_nor_random_numbers():
    logits = torch.randn(70_000, 3, requires_grad=True)
    labels = torch.zeros(70_000).long()
    loss = F.cross_entropy(logits, labels)
    random = torch.get_rng_state()
    describe_loss_call("cross_entropy", (logits, labels), {}, loss)
    assert torch.equal(random, torch.get_rng_state())
    loss.backward()
    assert logits.grad is not None


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_print_no_warning():
    huge = torch.tensor([[3e38, -3e38], [math.inf, math.nan]])
    for kind in ("cross_entropy", "nll_loss"):
        assert describe_loss_call(kind, (huge, torch.tensor([0, 1])), {}, torch.tensor(math.nan))["input_finite"] == 0.5
    assert math.isinf(describe_loss_call("mse_loss", (huge, huge.double() * 1e250), {}, torch.tensor(math.inf))["value"])
