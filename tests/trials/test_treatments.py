"""Each treatment, in a tiny loop: it moves what it should, leaves all else alone, and is undone."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from treated import treated

from lossdoctor.trials.hooks import Hooks
from lossdoctor.trials.treatments import apply_one, names


def problem(seed: int = 0) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small regression with a network that can learn it."""
    torch.manual_seed(seed)
    inputs = torch.randn(64, 4)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), inputs, inputs.sum(1, keepdim=True)


def train(steps: int = 60, rate: float = 0.1, clear: bool = True, step: bool = True, seed: int = 0) -> list[float]:
    """Train on the problem and return the losses."""
    model, inputs, targets = problem(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if step:
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", sorted(names()))
def test_every_treatment_is_described_and_can_be_applied(name: str) -> None:
    module = importlib.import_module(f"lossdoctor.trials.treatments.{name}")
    assert module.__doc__
    assert module.apply.__doc__
    assert next(iter(inspect.signature(module.apply).parameters)) == "hooks"


def test_an_unknown_treatment_is_an_error() -> None:
    with pytest.raises(KeyError):
        apply_one(Hooks(), "prayer", {})


def test_clear_gradients_cures_gradients_that_pile_up() -> None:
    broken, mended = train(clear=False), train()
    with treated("clear_gradients") as hooks:
        assert train(clear=False) == mended
    assert hooks.acted == {"clear_gradients"}
    assert broken[-1] > 10 * mended[-1]
    assert train(clear=False) == broken


def test_scale_rate_is_the_other_rate() -> None:
    with treated("scale_rate", factor=0.1):
        slower = train(rate=0.1)
    assert slower == pytest.approx(train(rate=0.01), rel=1e-4)


def test_clip_bounds_the_step() -> None:
    with treated("clip", norm=1e-3) as hooks:
        losses = train(steps=5)
    assert hooks.acted == {"clip"}
    assert losses[-1] == pytest.approx(losses[0], rel=0.01)


def test_clip_above_every_norm_finds_nothing_to_change() -> None:
    untreated = train(steps=5)
    with treated("clip", norm=1e6) as hooks:
        assert train(steps=5) == untreated
    assert not hooks.acted


def test_shift_seeds_moves_every_seed_of_torch_alike() -> None:
    with treated("shift_seeds", number=3):
        shifted = train(seed=4)
    assert shifted == train(seed=7)


def test_step_after_backward_steps_where_the_loop_never_does() -> None:
    with treated("step_after_backward", idle=True) as hooks:
        mended = train(step=False)
    assert mended == train()
    assert hooks.acted == {"step_after_backward"}


def test_step_after_backward_puts_cleared_gradients_back() -> None:
    def cleared_too_early(clear: bool) -> list[float]:
        model, inputs, targets = problem()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(30):
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            if clear:
                optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    with treated("step_after_backward", idle=False):
        mended = cleared_too_early(clear=True)
    assert len(set(cleared_too_early(clear=True))) == 1
    # The optimiser is known from its first step on.
    assert mended[1:] == pytest.approx([mended[0], *cleared_too_early(clear=False)[1:-1]])


def test_hold_all_parameters_trains_what_was_left_out() -> None:
    def only_the_head() -> nn.Module:
        model, inputs, targets = problem()
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return model

    first = problem()[0][0].weight
    assert torch.equal(only_the_head()[0].weight, first)
    with treated("hold_all_parameters") as hooks:
        assert not torch.equal(only_the_head()[0].weight, first)
    assert hooks.acted == {"hold_all_parameters"}


@pytest.mark.parametrize("softmax", [lambda z: z.softmax(1), lambda z: torch.softmax(torch.softmax(z, 1), 1), nn.Softmax(1)])
def test_pass_logits_undoes_softmax(softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
    logits, classes = 3 * torch.randn(8, 5), torch.arange(8) % 5
    expected = nn.functional.cross_entropy(logits, classes)
    assert nn.CrossEntropyLoss()(softmax(logits), classes) != pytest.approx(expected.item())
    with treated("pass_logits") as hooks:
        assert nn.CrossEntropyLoss()(softmax(logits), classes) == expected
    assert hooks.acted == {"pass_logits"}


def test_pass_logits_inverts_probabilities_whose_origin_is_lost() -> None:
    logits, classes = torch.randn(8, 5), torch.arange(8) % 5
    with treated("pass_logits"):
        found = nn.functional.cross_entropy(logits.softmax(1)[:], classes)
    assert found.item() == pytest.approx(nn.functional.cross_entropy(logits, classes).item(), rel=1e-5)


def test_pass_logits_leaves_logits_alone() -> None:
    logits, classes = torch.randn(8, 5), torch.arange(8) % 5
    expected = nn.functional.cross_entropy(logits, classes)
    likelihood = nn.functional.nll_loss(logits.log_softmax(1), classes)
    with treated("pass_logits") as hooks:
        assert nn.functional.cross_entropy(logits, classes) == expected
        assert nn.functional.nll_loss(logits.log_softmax(1), classes) == likelihood
    assert not hooks.acted


def test_pass_logits_undoes_a_sigmoid() -> None:
    logits, targets = torch.randn(8), torch.ones(8)
    expected = nn.functional.binary_cross_entropy_with_logits(logits, targets)
    with treated("pass_logits"):
        assert nn.functional.binary_cross_entropy_with_logits(logits.sigmoid(), targets) == expected


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "known": lambda prediction, target: nn.functional.mse_loss(prediction, target),
    "by hand": lambda prediction, target: ((prediction - target) ** 2).mean(),
    "the other way round": lambda prediction, target: ((target - prediction) ** 2).mean(),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_same_shape_compares_row_with_row(loss: Callable[..., torch.Tensor]) -> None:
    prediction, target = torch.randn(16, 1, requires_grad=True), torch.randn(16)
    expected = loss(prediction, target.unsqueeze(1)).item()
    assert loss(prediction, target).item() != pytest.approx(expected)
    with treated("same_shape") as hooks:
        assert loss(prediction, target).item() == pytest.approx(expected)
    assert hooks.acted == {"same_shape"}


def test_same_shape_leaves_what_is_meant_alone() -> None:
    points = torch.randn(5, 1)
    bias = torch.randn(3, requires_grad=True)
    pairs, shifted = points - points.squeeze(), torch.randn(5, 3) - bias
    with treated("same_shape") as hooks:
        assert torch.equal(points - points.squeeze(), pairs)
        assert (torch.randn(5, 3) - bias).shape == shifted.shape
    assert not hooks.acted


def test_train_mode_holds_within_training_calls_only() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    inputs = torch.ones(8, 4)
    with treated("train_mode") as hooks:
        assert (model(inputs) == 0).any()
        with torch.no_grad():
            assert not (model(inputs) == 0).any()
        assert not model.training
        assert not model[1].training
    assert hooks.acted == {"train_mode"}


def test_evaluation_mode_holds_without_gradients_only() -> None:
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Dropout(0.5)(self.layer(x))

    model, inputs = Drops().eval(), torch.ones(8, 4)
    with treated("evaluation_mode") as hooks:
        assert (model(inputs) == 0).any()
        with torch.no_grad():
            assert not (model(inputs) == 0).any()
    assert hooks.acted == {"evaluation_mode"}


def test_reinitialise_gives_a_sound_start_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 64), nn.Flatten(), nn.Linear(128, 256), nn.ReLU(), nn.BatchNorm1d(256), nn.Linear(256, 2))
    for parameter in model.parameters():
        nn.init.constant_(parameter, -9.0)
    state = torch.get_rng_state()
    with treated("reinitialise"):
        model(torch.randint(20, (8, 2)))
        torch.set_rng_state(state)
        model(torch.randint(20, (8, 2)))
    embedding, layer, norm = model[0], model[2], model[4]
    assert embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert layer.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.1)
    assert not layer.bias.any()
    assert (norm.weight == 1).all()


def test_reinitialise_heeds_shared_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
            self.decoder.weight = self.encoder.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.decoder(self.encoder(x))

    model = Tied()
    with treated("reinitialise"):
        model(torch.arange(4))
    assert model.decoder.weight is model.encoder.weight
    assert model.encoder.weight.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("shape", [(500, 3), (500, 3, 2, 2)])
def test_standardise_inputs_by_feature(shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Identity(), nn.LazyLinear(1))
    seen: list[torch.Tensor] = []
    model[1].register_forward_hook(lambda module, args, result: seen.append(result.reshape(-1, *shape[1:])))
    inputs = torch.randn(shape) * torch.tensor([1.0, 100.0, 0.0]).reshape(1, 3, *[1] * (len(shape) - 2)) + 50
    with treated("standardise_inputs"):
        model(inputs)
        for _ in range(3):
            model(inputs[:250])
    axes = [axis for axis in range(len(shape)) if axis != 1]
    assert seen[0].mean(axes).tolist() == pytest.approx([0, 0, 0], abs=1e-4)
    assert seen[0].std(axes).tolist() == pytest.approx([1, 1, 0], abs=0.01)
    assert torch.equal(seen[2], seen[3])  # the figures stay, once a thousand rows were seen


def test_scale_targets_is_training_on_standardised_targets() -> None:
    def distant(standardised: bool) -> list[float]:
        model, inputs, targets = problem()
        targets = 1000 + 50 * targets
        mean, spread = targets.mean().item(), targets.std().item()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            wanted = (targets - mean) / spread if standardised else targets
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            losses.append(loss.item() * (spread**2 if standardised else 1))
        return losses

    _, _, targets = problem()
    mean, spread = (1000 + 50 * targets).mean().item(), (50 * targets).std().item()
    with treated("scale_targets", mean=mean, spread=spread, squared=True):
        found = distant(standardised=False)
    assert found == pytest.approx(distant(standardised=True), rel=1e-3)
    assert not distant(standardised=False)[-1] <= found[-1]


def test_cache_data_gives_the_same_batches_without_asking_again() -> None:
    class Asked(Dataset[tuple[torch.Tensor, int]]):
        def __init__(self) -> None:
            self.asked = 0

        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            self.asked += 1
            return torch.full((2,), float(index)), index

    rows = Asked()
    loader = DataLoader(rows, batch_size=4)
    expected = [(x.tolist(), y.tolist()) for x, y in loader]
    rows.asked = 0
    with treated("cache_data") as hooks:
        for _ in range(3):
            assert [(x.tolist(), y.tolist()) for x, y in loader] == expected
    assert rows.asked == 10
    assert hooks.acted == {"cache_data"}


def test_weight_decay_is_that_of_adamw() -> None:
    def descend(decay: float) -> torch.Tensor:
        layer = nn.Linear(3, 1, bias=False)
        nn.init.ones_(layer.weight)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=decay)
        for _ in range(5):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        return layer.weight.detach()

    with treated("weight_decay", factor=0.5):
        found = descend(0.0)
    assert torch.allclose(found, descend(0.5))


def test_a_placebo_only_moves_random_numbers() -> None:
    untreated = train()
    with treated("placebo"):
        assert train() == untreated


def test_stop_after_ends_at_the_first_backward_after_so_many_steps() -> None:
    class Ended(Exception):
        pass

    def finish() -> None:
        raise Ended

    hooks = Hooks(finish=finish)
    try:
        apply_one(hooks, "stop_after", {"steps": 4})
        for step in (True, False):
            with pytest.raises(Ended):
                train(steps=9, step=step)
            hooks.undo()
            apply_one(hooks, "stop_after", {"steps": 4})
        assert len(train(steps=4)) == 4
    finally:
        hooks.undo()


def test_stop_after_waits_for_the_first_step_where_gradients_are_accumulated() -> None:
    ended: list[int] = []
    done = [0]
    hooks = Hooks(finish=lambda: ended.append(done[0]))
    try:
        apply_one(hooks, "stop_after", {"steps": 2, "parts": 5})
        model, inputs, _ = problem()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for backward in range(1, 13):
            done[0] = backward
            model(inputs).sum().backward()
            if backward % 5 == 0:
                optimizer.step()
    finally:
        hooks.undo()
    assert ended[0] == 11


def test_stop_early_moves_nothing_afterwards() -> None:
    untreated = train(steps=12)
    with treated("stop_early", steps=5) as hooks:
        losses = train(steps=12)
    assert losses[:6] == untreated[:6]
    assert len(set(losses[5:])) == 1
    assert hooks.acted == {"stop_early"}


def test_warm_up_begins_small_and_ends_at_the_own_rate() -> None:
    rates: list[float] = []
    with treated("warm_up", steps=4) as hooks:
        hooks.before_step(lambda optimizer: rates.append(optimizer.param_groups[0]["lr"]))
        train(steps=6, rate=0.1)
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_set_option_is_that_option() -> None:
    def descend(decay: float) -> torch.Tensor:
        layer = nn.Linear(3, 1, bias=False)
        nn.init.ones_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=decay)
        for _ in range(4):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        return layer.weight.detach()

    with treated("set_option", option="weight_decay", value=0.0) as hooks:
        assert torch.equal(descend(0.5), descend(0.0))
    assert hooks.acted == {"set_option"}


def test_no_dropout_passes_everything_through() -> None:
    layer = nn.Dropout(0.9)
    with treated("no_dropout") as hooks:
        assert torch.equal(layer(torch.ones(100)), torch.ones(100))
    assert hooks.acted == {"no_dropout"}
    assert not torch.equal(layer(torch.ones(100)), torch.ones(100))
