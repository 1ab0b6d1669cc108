"""Outputs of layers agree with plain arithmetic, and the forward is the same with and without us."""

import copy
import json

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F  # noqa: N812
from odd_tensors import ODD
from torch import nn

from lossdoctor.record.probes.activations import MOST_ACTIVATIONS, MOST_LAYERS, MOST_LINEAR, ActivationSampler


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Forget what other tests of this process have compiled."""
    torch._dynamo.utils.counters.clear()


def watch(model, *inputs):
    with ActivationSampler(model) as sampler:
        model(*inputs)
    return sampler.layers


def by_kind(layers, kind):
    return [layer for layer in layers if layer["kind"] == kind]


def slow(output, axis):
    """The obvious twin: one unit after the other, every element."""
    units = [output.select(axis, unit).flatten().tolist() for unit in range(output.shape[axis])]
    everything = [value for unit in units for value in unit]
    return {
        "units": len(units),
        "zeros": sum(value == 0 for value in everything) / len(everything),
        "dead_units": sum(all(value == 0 for value in unit) for unit in units) / len(units),
    }


@pytest.mark.parametrize(
    ("layer", "shape", "axis"),
    [
        (nn.Linear(5, 8), (16, 5), 1),
        (nn.Linear(5, 8), (4, 3, 5), 2),
        (nn.Conv1d(2, 6, 3), (4, 2, 9), 1),
        (nn.Conv2d(2, 6, 3), (4, 2, 8, 8), 1),
    ],
)
def test_dead_units_agree_with_the_slow_twin(layer, shape, axis):
    torch.manual_seed(0)
    with torch.no_grad():
        layer.bias[:2] = -100
    model, inputs = nn.Sequential(layer, nn.ReLU()), torch.randn(*shape)
    (found,) = by_kind(watch(model, inputs), "relu")
    for name, expected in slow(model(inputs), axis).items():
        assert found[name] == pytest.approx(expected), name
    assert found["dead_units"] >= 2 / 8


def test_a_unit_that_is_alive_for_one_example_is_not_dead():
    inputs = torch.zeros(50, 3)
    inputs[17, 1] = 1
    (found,) = watch(nn.ReLU(), inputs)
    assert found["dead_units"] == pytest.approx(2 / 3)
    assert found["zeros"] == pytest.approx(149 / 150)


def test_saturation_and_spread():
    inputs = torch.tensor([[-9.0, 0.0, 9.0, 0.5]])
    (tanh,) = watch(nn.Tanh(), inputs)
    (sigmoid,) = watch(nn.Sigmoid(), inputs)
    assert tanh["saturated"] == sigmoid["saturated"] == 0.5
    assert tanh["std"] == pytest.approx(inputs.tanh().std(unbiased=False).item())
    assert watch(nn.ReLU(), inputs)[0]["saturated"] is None


def test_linear_layers_tell_their_spread_alone():
    model = nn.Linear(4, 300)
    inputs = torch.randn(200, 4)
    (found,) = watch(model, inputs)
    assert found["std"] == pytest.approx(model(inputs).std().item(), rel=0.05)
    assert (found["zeros"], found["dead_units"], found["saturated"], found["units"]) == (None, None, None, 300)


class Functional(nn.Module):
    """Activations called as functions and methods, in place and not, and one kept as an attribute."""

    def __init__(self):
        super().__init__()
        self.layer, self.kept = nn.Linear(4, 4), F.relu

    def forward(self, x):
        x = F.relu(self.layer(x))
        x = torch.relu(self.layer(x)).tanh()
        x = self.kept(F.gelu(x)).sigmoid_()
        x = F.relu_(self.layer(x))
        return F.relu(x, inplace=True)


def test_functions_and_methods_are_seen_in_order():
    layers = [layer for layer in watch(Functional(), torch.randn(3, 4)) if layer["kind"] != "linear"]
    assert [layer["name"] for layer in layers] == [
        "relu()", "relu() #2", "tanh()", "gelu()", "relu() #3", "sigmoid()", "relu() #4", "relu() #5",
    ]  # fmt: skip


def test_a_module_is_not_counted_again_as_its_function():
    layers = watch(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Tanh()), torch.randn(3, 4))
    assert [(layer["name"], layer["kind"]) for layer in layers] == [("0", "linear"), ("1", "relu"), ("2", "tanh")]


def test_a_module_used_twice_is_measured_twice():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(self.act(x) - 100)

    layers = watch(Shared(), torch.randn(3, 4))
    assert [layer["name"] for layer in layers] == ["act", "act #2"]
    assert layers[1]["dead_units"] == 1


def test_units_of_functions_follow_the_layer_before():
    class Convolved(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv1d(2, 5, 1), nn.Linear(7, 3)

        def forward(self, x):
            return torch.relu(self.head(torch.relu(self.conv(x))))

    first, second = by_kind(watch(Convolved(), torch.randn(4, 2, 7)), "relu")
    assert (first["units"], second["units"]) == (5, 3)


def test_very_deep_models_are_spread_over():
    blocks = [module for _ in range(100) for module in (nn.Linear(2, 2), nn.ReLU())]
    layers = watch(nn.Sequential(*blocks), torch.randn(3, 2))
    names = [int(layer["name"]) for layer in layers if "()" not in layer["name"]]
    assert len(layers) <= MOST_LAYERS
    assert len(names) == MOST_ACTIVATIONS + MOST_LINEAR or len(layers) == MOST_LAYERS
    assert min(names) == 0


def everything(model):
    """All that a forward may leave behind."""
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    return sum(hooks), torch.overrides._get_current_function_mode_stack() if hasattr(
        torch.overrides, "_get_current_function_mode_stack"
    ) else []


def test_nothing_stays_behind_also_when_the_forward_raises():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    watch(model, torch.randn(3, 2))
    assert everything(model) == (0, [])
    with pytest.raises(RuntimeError), ActivationSampler(model):
        model(torch.randn(3, 5))
    assert everything(model) == (0, [])


def test_results_gradients_and_random_numbers_are_bit_identical():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 3), nn.Tanh()
    )
    other, inputs = copy.deepcopy(model), torch.randn(5, 1, 8, 8)
    torch.manual_seed(2)
    plain = other(inputs)
    plain.sum().backward()
    after = torch.get_rng_state()
    torch.manual_seed(2)
    with ActivationSampler(model):
        watched = model(inputs)
    watched.sum().backward()
    assert torch.equal(plain, watched)
    assert torch.equal(after, torch.get_rng_state())
    assert all(torch.equal(one.grad, two.grad) for one, two in zip(model.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two in zip(model.buffers(), other.buffers(), strict=True))


def test_the_fast_path_of_attention_in_eval_mode_stays_open(monkeypatch):
    taken = []
    fast = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *args: taken.append(1) or fast(*args))
    encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).requires_grad_(False).eval()
    model = nn.Sequential(encoder, nn.Linear(4, 3), nn.ReLU())
    layers = watch(model, torch.randn(2, 3, 4))
    assert taken
    assert [layer["name"] for layer in layers] == ["1", "2"]


def test_a_compiled_model_is_left_alone():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    with ActivationSampler(compiled) as sampler:
        assert everything(model) == (0, [])
    assert sampler.layers == []
    assert watch(model, torch.randn(3, 2))
    compiled(torch.randn(3, 2))
    assert watch(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.randn(3, 2)) == []
    model.compile(backend="eager")
    with ActivationSampler(nn.Sequential(model)) as sampler:
        assert everything(model) == (0, [])


def test_scripted_parts_are_survived():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    layers = watch(nn.Sequential(scripted, nn.Tanh()), torch.randn(3, 2))
    assert by_kind(layers, "tanh")


def test_an_error_of_ours_comes_out_when_the_layers_are_read_and_not_before(monkeypatch):
    monkeypatch.setattr("lossdoctor.record.probes.activations._Output.of", lambda *args: 1 / 0)
    model = nn.ReLU()
    with ActivationSampler(model) as sampler:
        assert torch.equal(model(torch.ones(2, 2)), torch.ones(2, 2))
    with pytest.raises(ZeroDivisionError):
        _ = sampler.layers


class Returns(nn.ReLU):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output


@pytest.mark.parametrize("kind", ODD)
def test_every_kind_of_output_is_survived(kind):
    json.dumps(watch(Returns(ODD[kind]), torch.ones(1)))
    json.dumps(watch(Returns((ODD[kind], None)), torch.ones(1)))


def test_not_finite_outputs_are_counted():
    (found,) = watch(nn.ReLU(), torch.tensor([[float("nan"), 1.0], [float("inf"), -1.0]]))
    assert found["finite"] == 0.5
    assert found["dead_units"] == 0
