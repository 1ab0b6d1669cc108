"""Treatments that change what a model does with its inputs: what they change, what they leave alone, that they are undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
from treated import treated

WIDTH, LENGTH = 8, 5


class OwnAttention(nn.Module):
    """Attention by the function."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(*self.mix(x).chunk(3, -1))


class Module(nn.Module):
    """Attention by the module, sequence first."""

    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.mix, self.need_weights = nn.MultiheadAttention(WIDTH, 2), need_weights

    def forward(self, x: Tensor) -> Tensor:
        y = x.transpose(0, 1)
        result: Tensor = self.mix(y, y, y, need_weights=self.need_weights)[0].transpose(0, 1)
        return result


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True), 2)


ATTENTIONS: dict[str, Callable[[], nn.Module]] = {
    "function": OwnAttention,
    "module": lambda: Module(need_weights=False),
    "module with weights": lambda: Module(need_weights=True),
    "encoder": encoder,
}


def knows_the_future(model: nn.Module) -> bool:
    x = torch.randn(2, LENGTH, WIDTH)
    y = x.clone()
    y[:, -1] += 1.0
    return not torch.allclose(model(x)[:, :-1], model(y)[:, :-1], atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", ATTENTIONS.values(), ids=ATTENTIONS)
@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_causal_mask_hides_the_future(make: Callable[[], nn.Module], mode: str) -> None:
    torch.manual_seed(0)
    model = make().train(mode == "training")
    with torch.set_grad_enabled(mode == "training"):
        assert knows_the_future(model)
        with treated("causal_mask") as hooks:
            assert not knows_the_future(model)
        assert hooks.acted == {"causal_mask"}
        assert knows_the_future(model)


def test_causal_mask_keeps_what_the_script_hides_already() -> None:
    q = torch.randn(1, LENGTH, WIDTH)
    first = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    first[:, 0] = False
    first[0, 0] = True
    expected = nn.functional.scaled_dot_product_attention(q, q, q, first & torch.ones_like(first).tril())
    with treated("causal_mask"):
        assert torch.allclose(nn.functional.scaled_dot_product_attention(q, q, q, first), expected)


def test_causal_mask_finds_nothing_to_change_in_a_causal_model_and_leaves_cross_attention_alone() -> None:
    x, other = torch.randn(2, LENGTH, WIDTH), torch.randn(2, LENGTH, WIDTH)
    attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    crossed = attention(x, other, other, need_weights=False)[0]
    with treated("causal_mask") as hooks:
        layer(x, src_mask=mask, is_causal=True)
        attention(x, x, x, attn_mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))
        nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        assert torch.equal(attention(x, other, other, need_weights=False)[0], crossed)
    assert not hooks.acted


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_batch_first_is_the_other_order_of_axes(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    layer = kind(3, 4)
    x = torch.randn(6, 5, 3)
    expected = layer(x.transpose(0, 1))[0].transpose(0, 1)
    with treated("batch_first") as hooks:
        assert torch.allclose(layer(x)[0], expected, atol=1e-6)
        assert not layer.batch_first
    assert hooks.acted == {"batch_first"}
    assert not torch.allclose(layer(x)[0], expected, atol=1e-3)


RELUS: dict[str, Callable[[Tensor], Tensor]] = {
    "module": nn.ReLU(),
    "in place": nn.ReLU(inplace=True),
    "function of torch": lambda x: torch.relu(x),
    "function": lambda x: nn.functional.relu(x),
    "method": lambda x: x.relu(),
    "method in place": lambda x: x.clone().relu_(),
}


@pytest.mark.parametrize("relu", RELUS.values(), ids=RELUS)
def test_leaky_activations_pass_a_gradient(relu: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    with treated("leaky_activations") as hooks:
        result = relu(x * 1)
        result.sum().backward()
    assert result.tolist() == pytest.approx([-0.02, 3.0])
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([0.01, 1.0])
    assert hooks.acted == {"leaky_activations"}
    assert relu(torch.tensor([-2.0])).item() == 0.0


def test_finite_inputs_fills_by_the_feature() -> None:
    model = nn.Linear(2, 2)
    seen: list[Tensor] = []
    model.register_forward_hook(lambda module, args, result: seen.append(args[0]))
    inputs = torch.tensor([[1.0, float("nan")], [3.0, 10.0], [-999.0, 30.0], [float("inf"), 20.0]])
    with treated("finite_inputs", code=-999.0) as hooks:
        model(inputs)
    assert torch.equal(seen[0], torch.tensor([[1.0, 20.0], [3.0, 10.0], [2.0, 30.0], [2.0, 20.0]]))
    assert hooks.acted == {"finite_inputs"}
    assert torch.isnan(inputs).any()


def test_finite_inputs_leaves_measurements_alone() -> None:
    with treated("finite_inputs", code=-999.0) as hooks:
        nn.Linear(2, 2)(torch.randn(4, 2))
    assert not hooks.acted


def test_batchnorm_pass_takes_the_averages_of_the_batches_trained_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.001), nn.Dropout(0.5), nn.Linear(3, 1))
    inputs = torch.randn(40, 2) * 4 + 7
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with treated("batchnorm_pass") as hooks:
        for rows in inputs.split(10):
            model(rows).sum().backward()
            optimizer.step()
        state = torch.get_rng_state()
        model.eval()
        with torch.no_grad():
            model(inputs)
            found = model[1].running_mean.clone()
            model(inputs[:5])
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.allclose(found, model[0](inputs).mean(0), atol=1e-4)
    assert torch.equal(model[1].running_mean, found)
    assert model[1].momentum == 0.001
    assert not model[1].training
    assert hooks.acted == {"batchnorm_pass"}


def test_batchnorm_pass_finds_nothing_without_batch_normalisation() -> None:
    model = nn.Linear(2, 2)
    with treated("batchnorm_pass") as hooks:
        model(torch.ones(4, 2))
        with torch.no_grad():
            model(torch.ones(4, 2))
    assert not hooks.acted


def test_no_grad_in_validation_makes_no_graph_in_evaluation_mode() -> None:
    model = nn.Linear(2, 2)
    with treated("no_grad_in_validation") as hooks:
        assert model.train()(torch.ones(4, 2)).requires_grad
        assert not model.eval()(torch.ones(4, 2)).requires_grad
        assert model.train()(torch.ones(4, 2)).requires_grad
    assert hooks.acted == {"no_grad_in_validation"}
    assert model.eval()(torch.ones(4, 2)).requires_grad


def test_no_grad_in_validation_leaves_a_model_that_is_trained_in_evaluation_mode() -> None:
    model = nn.Linear(2, 2).eval()
    with treated("no_grad_in_validation") as hooks:
        model(torch.ones(4, 2)).sum().backward()
    assert model.weight.grad is not None
    assert not hooks.acted


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_detach_state_ends_the_graph_at_the_step(kind: type[nn.RNNBase]) -> None:
    layer = kind(3, 4)
    chunks = torch.randn(3, 5, 2, 3)

    def nodes(tensor: Tensor) -> int:
        seen, queue = set(), [tensor.grad_fn]
        while queue:
            node = queue.pop()
            if node is not None and node not in seen:
                seen.add(node)
                queue += [each for each, _ in node.next_functions]
        return len(seen)

    def train() -> list[int]:
        state, sizes = None, []
        for chunk in chunks:
            output, state = layer(chunk, state)
            loss = output.square().mean()
            sizes.append(nodes(loss))
            loss.backward(retain_graph=True)
        return sizes

    grown = train()
    with treated("detach_state") as hooks:
        sizes = train()
    assert hooks.acted == {"detach_state"}
    assert sizes[1] == sizes[2] < grown[1] < grown[2]


def test_detach_state_keeps_what_was_made_in_the_same_step() -> None:
    encoder, decoder = nn.Linear(2, 3), nn.GRUCell(1, 3)
    with treated("detach_state") as hooks:
        for _ in range(2):
            decoder(torch.ones(4, 1), encoder(torch.ones(4, 2))).sum().backward()
    assert encoder.weight.grad is not None
    assert encoder.weight.grad.any()
    assert not hooks.acted


def test_full_precision_switches_autocast_and_the_scaler_off() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    with treated("full_precision") as hooks:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(inputs).dtype == torch.float32
        scaler = torch.amp.GradScaler("cpu")
        assert scaler.scale(torch.ones(())).item() == 1.0
    assert hooks.acted == {"full_precision"}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(inputs).dtype == torch.bfloat16


@pytest.mark.parametrize("half", [lambda x: x.half(), lambda x: x.to(torch.float16), lambda x: x.to(dtype=torch.bfloat16)])
def test_full_precision_makes_models_and_tensors_single(half: Callable[[Tensor], Tensor]) -> None:
    with treated("full_precision") as hooks:
        assert half(nn.Linear(2, 2)).weight.dtype == torch.float32  # type: ignore[arg-type]
        assert half(torch.ones(2, dtype=torch.float64)).dtype == torch.float32
        assert torch.ones(2).to(torch.int64).dtype == torch.int64
    assert hooks.acted == {"full_precision"}
    assert half(torch.ones(2)).dtype != torch.float32


def test_rows_of_a_data_set_that_are_in_no_part_of_it_are_trained_on() -> None:
    whole = TensorDataset(torch.arange(100.0))

    def epoch(loader: DataLoader[tuple[Tensor, ...]]) -> set[float]:
        return {float(row) for (rows,) in loader for row in rows}

    with treated("more_rows") as hooks:
        part, held = Subset(whole, range(10)), Subset(whole, range(80, 100))
        seen = [DataLoader(part, 8, shuffle=True), DataLoader(held, 8), DataLoader(whole, 8)]
        with torch.no_grad():
            assert epoch(seen[1]) == set(range(80, 100))
        assert [epoch(seen[0]) for _ in range(2)] == [set(range(80))] * 2
        assert epoch(seen[2]) == set(range(100))
    assert hooks.acted == {"more_rows"}
    with treated("more_rows") as hooks:
        training, held = random_split(whole, [60, 40])
        assert len(epoch(DataLoader(training, 8))) == 60
    assert not hooks.acted
