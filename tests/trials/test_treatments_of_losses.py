"""Treatments of losses and of data: what they change, what they leave alone, that they are undone."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from treated import treated

from lossdoctor.core.diagnosis import Finding
from lossdoctor.core.fault import Treatment
from lossdoctor.core.run import Experiment, Row, Series, Training
from lossdoctor.trials.parameters import NoTreatment, fitted
from lossdoctor.trials.prepare import prepare
from lossdoctor.trials.treatments import names, usual


def test_divide_losses_is_the_mean_over_micro_batches() -> None:
    inputs = torch.randn(12, 3)

    def gradient(parts: int, divide: bool) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        for rows in inputs.chunk(parts):
            loss = model(rows).square().mean()
            (loss / parts if divide else loss).backward()
        assert model.weight.grad is not None
        return model.weight.grad

    with treated("divide_losses", parts=4) as hooks:
        found = gradient(4, divide=False)
    assert torch.allclose(found, gradient(1, divide=False), atol=1e-6)
    assert torch.allclose(gradient(4, divide=False), 4 * found, atol=1e-5)
    assert hooks.acted == {"divide_losses"}


@pytest.mark.parametrize("weight", [1.0, 50.0])
def test_cut_penalty_scales_all_but_the_known_loss(weight: float) -> None:
    torch.manual_seed(0)
    model, inputs, targets = nn.Linear(3, 2), torch.randn(9, 3), torch.randn(9, 2)

    def gradient(main: float, penalty: float) -> Tensor:
        model.zero_grad()
        fit = nn.functional.mse_loss(model(inputs), targets)
        (main * fit / 2 + penalty * weight * model.weight.square().sum()).backward()
        assert model.weight.grad is not None
        return model.weight.grad.clone()

    expected = gradient(1.0, 0.01)
    with treated("cut_penalty", factor=0.01) as hooks:
        assert torch.allclose(gradient(1.0, 1.0), expected, atol=1e-6)
    assert hooks.acted == {"cut_penalty"}


def test_cut_penalty_finds_a_term_that_the_script_holds_no_longer() -> None:
    x = torch.ones(3, requires_grad=True)
    with treated("cut_penalty", factor=0.1):
        for _ in range(3):
            x.grad = None
            loss = nn.functional.mse_loss(x, torch.zeros(3)) + 5 * x.square().sum()
            loss.backward()
            assert x.grad is not None
            assert x.grad.tolist() == pytest.approx([2 / 3 + 1] * 3)


def test_cut_penalty_leaves_alone_what_has_no_single_main_term() -> None:
    x = torch.randn(5, 2, requires_grad=True)

    def gradients() -> list[Tensor]:
        found = []
        for loss in (
            nn.functional.mse_loss(x, torch.zeros(5, 2)) * 3,
            nn.functional.mse_loss(x, torch.zeros(5, 2)) + nn.functional.l1_loss(x, torch.ones(5, 2)),
            nn.functional.mse_loss(x, torch.zeros(5, 2)).exp() + x.sum(),
            x.square().sum() + x.sum(),
        ):
            found.append(torch.autograd.grad(loss, x, retain_graph=True)[0])
            x.grad = None
            loss.backward()
            assert x.grad is not None
            found[-1] = x.grad.clone()
        return found

    expected = gradients()
    with treated("cut_penalty", factor=0.1) as hooks:
        assert all(map(torch.equal, gradients(), expected))
    assert not hooks.acted


def test_detach_losses_lets_totals_hold_no_graph() -> None:
    model = nn.Linear(2, 1)

    def totals() -> tuple[Tensor, Tensor, list[Tensor]]:
        total, other, kept = torch.zeros(()), 0.0, []
        for _ in range(3):
            output = model(torch.ones(4, 2))
            loss, error = output.square().mean(), output.abs().mean()
            loss.backward()
            total = total + loss
            other += error
            kept.append(loss)
        assert isinstance(other, Tensor)
        return total, other, kept

    total, other, _ = totals()
    assert total.requires_grad
    with treated("detach_losses") as hooks:
        again, errors, held = totals()
    assert not again.requires_grad
    assert not errors.requires_grad
    assert not any(each.requires_grad for each in held)
    assert (again.item(), errors.item()) == (total.item(), other.item())
    assert hooks.acted == {"detach_losses"}


def test_detach_losses_keeps_sums_of_terms_of_the_same_step() -> None:
    model = nn.Linear(2, 1)

    def gradient() -> Tensor:
        model.zero_grad()
        for _ in range(2):
            output = model(torch.ones(4, 2))
            loss = 0.0
            for part in output:
                loss = loss + part.square().sum()
            loss.backward()  # type: ignore[attr-defined]
        assert model.weight.grad is not None
        return model.weight.grad.clone()

    expected = gradient()
    with treated("detach_losses"):
        assert torch.equal(gradient(), expected)


def test_shuffle_gives_every_row_once_in_another_order_each_epoch() -> None:
    loader = DataLoader(TensorDataset(torch.arange(20)), batch_size=6)

    def epoch() -> list[int]:
        return [int(value) for (batch,) in loader for value in batch]

    state = torch.get_rng_state()
    plain = [epoch(), torch.rand(1).item()]
    torch.set_rng_state(state)
    with treated("shuffle") as hooks:
        one = epoch()
        assert torch.rand(1).item() == plain[1]
        two = epoch()
        with torch.no_grad():
            assert epoch() == list(range(20))
    assert sorted(one) == sorted(two) == plain[0] == list(range(20))
    assert one != two != list(range(20))
    assert hooks.acted == {"shuffle"}
    assert epoch() == list(range(20))


def test_shuffle_leaves_a_shuffled_loader_alone() -> None:
    loader = DataLoader(TensorDataset(torch.arange(20)), batch_size=6, shuffle=True)
    with treated("shuffle") as hooks:
        list(loader)
    assert not hooks.acted


def test_load_in_workers_gives_the_same_batches() -> None:
    rows = TensorDataset(torch.arange(8))
    with treated("load_in_workers", workers=1) as hooks:
        loader = DataLoader(rows, batch_size=4)
        assert loader.num_workers == 1
        assert [batch.tolist() for (batch,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        del loader
    assert hooks.acted == {"load_in_workers"}
    assert DataLoader(rows).num_workers == 0


def test_load_in_workers_leaves_iterable_data_alone() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(range(3))

    with treated("load_in_workers", workers=2) as hooks:
        assert DataLoader(Stream()).num_workers == 0
    assert not hooks.acted


def test_class_weights_make_classes_count_alike_in_training() -> None:
    logits, classes = torch.randn(10, 2, requires_grad=True), torch.tensor([0] * 9 + [1])
    expected = nn.functional.cross_entropy(logits, classes, weight=torch.tensor([10 / 18, 10 / 2]))
    plain = nn.functional.cross_entropy(logits, classes)
    with treated("class_weights", counts=[9, 1]) as hooks:
        assert torch.isclose(nn.CrossEntropyLoss()(logits, classes), expected)
        assert torch.isclose(nn.functional.nll_loss(logits.log_softmax(1), classes), expected)
        with torch.no_grad():
            assert nn.functional.cross_entropy(logits, classes) == plain
    assert hooks.acted == {"class_weights"}


def test_class_weights_make_ones_and_zeros_count_alike() -> None:
    logits, ones = torch.randn(10, 1, requires_grad=True), torch.tensor([0.0] * 8 + [1.0] * 2)[:, None]
    weighed = nn.functional.binary_cross_entropy_with_logits(logits, ones, pos_weight=torch.tensor(4.0))
    own = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0))
    kept = own(logits, ones)
    with treated("class_weights", counts=[8, 2]) as hooks:
        assert own(logits, ones) == kept
        assert not hooks.acted
        assert torch.isclose(nn.BCEWithLogitsLoss()(logits, ones), weighed)
    assert hooks.acted == {"class_weights"}


def test_another_epsilon_is_that_of_adam() -> None:
    def descend(epsilon: float) -> Tensor:
        layer = nn.Linear(3, 1, bias=False)
        nn.init.ones_(layer.weight)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, eps=epsilon)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        return layer.weight.detach()

    with treated("set_option", option="eps", value=1e-8) as hooks:
        assert torch.equal(descend(10.0), descend(1e-8))
    assert hooks.acted == {"set_option"}


def test_hold_all_parameters_trains_layers_in_a_plain_list() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = [nn.Linear(3, 3)], nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.head(self.layers[0](x))
            return result

    model = Hidden()
    before = model.layers[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with treated("hold_all_parameters") as hooks:
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert not torch.equal(model.layers[0].weight, before)
    assert hooks.acted == {"hold_all_parameters"}


# -- parameters that come from the run --------------------------------------------------------------------------------------

FINDING = Finding("LOP001", "zero-grad-missing", "", "LOP")


def fit(name: str, training: Training) -> tuple[str, dict[str, object]]:
    found = fitted(Treatment(name), FINDING, training)
    return found["name"], found["parameters"]


def test_parameters_are_worked_out_from_the_run() -> None:
    counts = Training(signals={"backwards": Series.of([4] * 9 + [2])})
    assert fit("divide_losses", counts) == ("divide_losses", {"parts": 4})
    calls = Training(rows={"loss_call": [Row(0, {"class_counts": [9, 1]}), Row(5, {"class_counts": [7, 3]})]})
    assert fit("class_weights", calls) == ("class_weights", {"counts": [16, 4]})
    code = {"sentinel": -999.0, "sentinel_share": 0.1}
    assert fit("finite_inputs", Training(rows={"batch": [Row(0, {"inputs": [code]})]})) == ("finite_inputs", {"code": -999.0})
    assert fit("finite_inputs", Training()) == ("finite_inputs", {})
    terms = Training(experiments={"terms": Experiment("terms", "done", 1.0, {"share": 0.9})})
    assert fit("cut_penalty", terms)[1]["factor"] == pytest.approx(0.01 / 9)


def test_dead_units_start_anew_or_leak() -> None:
    early = Training(signals={"zero_rows": Series.of([[1.0, 0.0], [1.0, 0.0]], [0, 9])})
    late = Training(signals={"zero_rows": Series.of([[0.1, 0.0], [1.0, 0.0]], [0, 9])})
    assert fit("revive", early)[0] == "reinitialise"
    assert fit("revive", late)[0] == "leaky_activations"


def test_rows_that_never_come_again_are_loaded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    run = Training(signals={"batch_rows": Series.of([10] * 20)}, facts={"loader": {"rows": 1000}})
    assert fit("feed", run) == ("load_in_workers", {"workers": 4})
    run.facts["loader"] = {"rows": 50}
    assert fit("feed", run) == ("cache_data", {})


@pytest.mark.parametrize("name", ["divide_losses", "cut_penalty", "class_weights"])
def test_without_the_measurement_there_is_no_trial(name: str) -> None:
    with pytest.raises(NoTreatment):
        fit(name, Training())


@pytest.mark.parametrize("name", sorted(names()))
def test_every_treatment_has_a_signal_and_a_safety_grade(name: str) -> None:
    found = usual(name)
    assert found.name == name
    assert found.safety in ("safe", "changes-results")


def test_every_treatment_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "confirm.md").read_text()
    assert {name for name in names() if f"| `{name}` |" not in page} == set()


# -- seeds ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> int:
    """Seeds shifted by a number, undone afterwards."""
    for owner, name in ((random, "seed"), (random, "Random"), *((np.random, name) for name in ("seed", "default_rng", "RandomState"))):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    prepare(3, {})
    return 3


def test_every_seed_of_numpy_and_random_is_shifted(shifted: int) -> None:
    original = type(np.random.mtrand._rand)  # type: ignore[attr-defined]
    assert np.random.RandomState(4).rand() == original(7).rand()
    assert np.random.RandomState(seed=np.int64(4)).rand() == original(7).rand()
    assert np.random.RandomState([1, 2]).rand() == original([4, 5]).rand()
    assert np.random.default_rng(4).random() == np.random.Generator(np.random.PCG64(7)).random()
    again = np.random.RandomState(0)
    again.seed(4)
    assert again.rand() == original(7).rand()
    assert random.Random(4).random() == type(random._inst)(7).random()  # type: ignore[attr-defined]
    np.random.seed(4)
    assert np.random.rand() == original(7).rand()


def test_generators_that_exist_count_as_before(shifted: int) -> None:
    from sklearn.utils import check_random_state

    assert isinstance(np.random.mtrand._rand, np.random.RandomState)  # type: ignore[attr-defined]
    assert isinstance(np.random.RandomState(1), np.random.RandomState)
    assert check_random_state(None) is not None
    assert check_random_state(4).rand() == type(np.random.mtrand._rand)(7).rand()  # type: ignore[attr-defined]
    assert isinstance(random._inst, random.Random)  # type: ignore[attr-defined]
    bits = np.random.RandomState(np.random.MT19937(1))
    assert 0 <= bits.rand() < 1


def test_seeds_of_torch_generators_are_shifted() -> None:
    original = torch.Generator
    expected = torch.rand(3, generator=original().manual_seed(7))
    with treated("shift_seeds", number=3):
        generator = torch.Generator()
        assert torch.equal(torch.rand(3, generator=generator.manual_seed(4)), expected)
        assert isinstance(torch.default_generator, torch.Generator)
        assert torch.utils.data.RandomSampler(range(9), generator=generator).generator is generator
        torch.utils.data.random_split(range(9), [4, 5], torch.Generator().manual_seed(1))
    assert torch.Generator is original


def test_edits_stand_in_the_place_of_files(tmp_path: Path) -> None:
    prepare(None, {str(tmp_path / "train.py"): "x = 1\n"})
    assert (tmp_path / "train.py").read_text() == "x = 1\n"
