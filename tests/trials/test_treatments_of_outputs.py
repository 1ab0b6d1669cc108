"""Treatments of what leaves a model: last activations, signs and sums of losses, poles; and of frozen or linear models."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from treated import treated


def fit(
    model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], steps: int = 200, parameters: list[nn.Parameter] | None = None
) -> float:
    """Train on targets beyond 1 that bend, and return the mean square error that is left."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(128, 3, generator=draw)
    targets = 2 * inputs[:, :1].abs()
    optimizer = torch.optim.Adam(list(model.parameters()) if parameters is None else parameters, lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(inputs) - targets).square().mean())


def network(*behind: nn.Module, between: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 24), between(), nn.Linear(24, 1), *behind)


class Squeezed(nn.Module):
    """A sigmoid in another shape than the layer gives."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.body(x)).squeeze(1).unsqueeze(1)


@pytest.mark.parametrize(
    "make", [lambda: network(nn.Sigmoid()), lambda: network(nn.Tanh()), lambda: network(nn.ReLU(inplace=True)), Squeezed]
)
def test_without_its_last_activation_a_model_reaches_targets_beyond_it(make: Callable[[], nn.Module]) -> None:
    plain = fit(network(), functional.mse_loss)
    with treated("drop_last_activation") as hooks:
        assert fit(make(), functional.mse_loss) == pytest.approx(plain, rel=1e-4)
    assert hooks.acted == {"drop_last_activation"}


def test_a_model_without_a_last_activation_stays_as_it_is() -> None:
    plain = fit(network(), functional.mse_loss, 20)
    with treated("drop_last_activation") as hooks:
        assert fit(network(), functional.mse_loss, 20) == plain
    assert not hooks.acted


def test_rectifiers_between_layers_let_a_linear_model_bend() -> None:
    straight = fit(network(between=nn.Identity), functional.mse_loss)
    with treated("activate_between") as hooks:
        bent = fit(network(between=nn.Identity), functional.mse_loss)
    assert hooks.acted == {"activate_between"}
    assert bent < 0.1 * straight
    assert fit(network(between=nn.Identity), functional.mse_loss) == straight


def test_the_other_sign_cures_a_loss_that_rewards_being_wrong() -> None:
    plain = fit(network(), functional.mse_loss, 50)
    with treated("negate_loss") as hooks:
        assert fit(network(), lambda output, target: -functional.mse_loss(output, target), 50) == pytest.approx(plain)
    assert hooks.acted == {"negate_loss"}


def test_a_mean_stands_in_the_place_of_a_sum_in_training_only() -> None:
    output, target = torch.randn(6, 2, requires_grad=True), torch.zeros(6, 2)
    summed, mean = (functional.mse_loss(output, target, reduction=kind).item() for kind in ("sum", "mean"))
    with treated("mean_loss") as hooks:
        assert nn.MSELoss(reduction="sum")(output, target).item() == pytest.approx(mean)
        assert hooks.acted == {"mean_loss"}
        assert functional.mse_loss(output.detach(), target, reduction="sum").item() == pytest.approx(summed)


POLES: dict[str, Callable[[Tensor], Tensor]] = {
    "log": lambda p: -torch.log(p).mean(),
    "method": lambda p: (p * p.log2()).sum(),
    "both ends": lambda p: -(p * torch.log(p) + (1 - p) * torch.log(1 - p)).mean(),
    "root": lambda p: p.sqrt().sum(),
    "quotient": lambda p: (1 / p).mean(),
    "division": lambda p: torch.div(torch.ones(2), p).mean(),
    "logit": lambda p: torch.logit(p).mean(),
}


@pytest.mark.parametrize("loss", POLES.values(), ids=POLES)
def test_operations_stay_away_from_their_poles(loss: Callable[[Tensor], Tensor]) -> None:
    def gradient() -> tuple[float, bool]:
        p = torch.tensor([0.0, 1.0], requires_grad=True)
        value = loss(p)
        value.backward()
        assert p.grad is not None
        return value.item(), bool(p.grad.isfinite().all())

    value, finite = gradient()
    assert not (math.isfinite(value) and finite)
    with treated("finite_operations") as hooks:
        value, finite = gradient()
    assert math.isfinite(value)
    assert finite
    assert hooks.acted == {"finite_operations"}


def test_an_optimiser_and_finite_operations_stay_as_they_are() -> None:
    plain = fit(network(), lambda output, target: torch.log(1 + (output - target).square()).mean(), 20)
    with treated("finite_operations") as hooks:
        assert fit(network(), lambda output, target: torch.log(1 + (output - target).square()).mean(), 20) == plain
    assert not hooks.acted


def test_what_is_frozen_learns() -> None:
    def frozen() -> tuple[nn.Sequential, list[nn.Parameter]]:
        model = network()
        model.requires_grad_(False)
        unused = nn.Parameter(torch.zeros(1))
        model.register_parameter("adapter", unused)
        return model, [unused]

    model, held = frozen()
    with treated("thaw") as hooks:
        left = fit(model, functional.mse_loss, parameters=held)
    assert hooks.acted == {"thaw", "hold_all_parameters"}
    assert left < 0.3


def test_validation_is_prepared_as_training_is() -> None:
    torch.manual_seed(0)
    model, seen = nn.Linear(3, 1), list[Tensor]()
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    rows = 5.0 + 3.0 * torch.randn(2000, 3)
    with treated("prepare_as_training") as hooks:
        with torch.no_grad():
            model(rows)  # nothing is known of training yet
        for part in ((rows - 5.0) / 3.0).split(100):
            model(part)
        with torch.no_grad():
            model(rows)
    assert hooks.acted == {"prepare_as_training"}
    assert torch.equal(seen[0], rows)
    assert torch.allclose(seen[1], (rows[:100] - 5.0) / 3.0)
    assert seen[-1].mean(0).abs().max() < 0.1
    assert (seen[-1].std(0) - 1).abs().max() < 0.1
