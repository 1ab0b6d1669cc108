"""What the experiments answer on small problems whose answer is known."""

import torch
from torch import nn
from torch.nn import functional

from lossdoctor.experiments.unseen import distinct
from lossdoctor.experiments.workup import Workup
from tests.experiments.conftest import network, train

ADAM = {"optimizer": "Adam", "settings": {"lr": 1e-3}}


def answer(held, name, parameters=ADAM):
    found = Workup(held).answer({"experiment": name, "seconds": 30, "parameters": parameters})
    assert found["status"] == "done", found
    return found["facts"]


def test_sixteen_random_labels_are_memorised_and_two_units_cannot(problem):
    inputs, _ = problem
    labels = torch.randint(0, 4, (2000,))
    able = answer(train(network(), inputs, labels), "memorise")
    small = answer(train(network(width=1), inputs, labels), "memorise")
    assert able["own"] < 0.01
    assert able["fresh_median"] < 0.01
    assert small["own"] > 0.1
    assert small["fresh_median"] > 0.1
    assert able["courses"]["0.01"][-1] == able["own"]
    assert set(small["courses"]) == set(small["by_rate"])
    assert all(len(course) <= 41 for course in small["courses"].values())


def test_dead_units_fail_from_their_own_start_only(problem):
    model = network()
    for layer in (0, 3):
        nn.init.constant_(model[layer].bias, -50.0)
    facts = answer(train(model, *problem), "memorise")
    assert facts["own"] > 0.1
    assert facts["fresh_median"] < 0.01


def test_a_regression_written_by_hand_is_memorised(problem):
    inputs, _ = problem
    held = train(network(classes=1), inputs, inputs[:, :2].sum(1), lambda output, target: ((output[:, 0] - target) ** 2).mean())
    assert answer(held, "memorise")["own"] < 0.01


def test_a_baseline_tells_labels_that_mean_something_from_shuffled_ones(problem):
    inputs, labels = problem
    real = answer(train(network(), inputs, labels), "baseline")
    shuffled = answer(train(network(), inputs, labels[torch.randperm(2000)]), "baseline")
    assert real["classical"] > real["prior"] + 0.3
    assert real["network_loss"] < 0.5
    assert shuffled["classical"] < shuffled["prior"] + 0.1
    assert shuffled["network_loss"] > 0.95


def test_a_bigram_beats_the_unigram_on_text_and_not_on_noise():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
    steps = torch.randint(0, 20, (1500, 1)) + torch.randint(1, 3, (1500, 13)).cumsum(1)  # each token is one or two after the last
    text, noise = steps % 20, torch.randint(0, 20, (1500, 13))

    def loss(output, target):
        return functional.cross_entropy(output.reshape(-1, 20), target.reshape(-1))

    learnable = answer(train(model, text[:, :-1], text[:, 1:], loss, rows=16), "baseline")
    hopeless = answer(train(model, noise[:, :-1], noise[:, 1:], loss, rows=16), "baseline")
    assert learnable["network_loss"] < 0.5
    assert hopeless["network_loss"] > 0.95


def test_the_rate_that_moves_the_weights_by_one_percent_heals_both_ends(problem):
    for rate in (30.0, 1e-8):
        held = train(network(), *problem, rate=rate)
        facts = answer(held, "rate", {"optimizer": "Adam", "settings": {"lr": rate}})
        assert facts["other_end"] < 0.6 * facts["start"]
        assert facts["own_end"] > 0.9 * facts["start"]


def test_standardising_cures_large_inputs_and_a_fresh_start_does_not(problem):
    inputs, labels = problem
    facts = answer(train(network(), inputs * 300 + 100, labels), "standardise")
    assert facts["first"] > 5 * facts["guess"]
    assert facts["standardised"] < 1.5 * facts["guess"]
    assert facts["reinitialised"] > 5 * facts["guess"]


def test_copies_of_rows_are_no_more_witnesses_of_wrong_labels(problem):
    inputs, labels = problem
    held = train(network(), inputs[:200].repeat(10, 1), labels[:200].repeat(10), steps=60)
    facts = answer(held, "unseen", ADAM)
    assert facts["unseen_rows"] > 200
    assert facts["noise"] == {}  # some fifty rows, each several times
    kept = distinct(held.batches, [torch.arange(batch.rows) for batch in held.batches])
    values = [batch.program.constants[0] for batch in held.batches]
    chosen = torch.cat([each[rows] for each, rows in zip(values, kept, strict=True)])
    assert len(chosen) == len(torch.unique(chosen, dim=0)) == len(torch.unique(torch.cat(values), dim=0))


def test_rows_left_out_tell_learning_from_memorising(problem):
    inputs, labels = problem
    real = answer(train(network(), inputs, labels), "unseen")
    shuffled = answer(train(network(), inputs, labels[torch.randperm(2000)]), "unseen")
    assert real["unseen_best"] < 0.6 * real["guess"]
    assert shuffled["unseen_best"] > 0.95 * shuffled["guess"]


def test_where_steps_are_dear_four_examples_are_tried_and_nothing_is_said_of_what_did_not_fit(problem):
    held = train(network(), *problem)
    found = Workup(held).answer({"experiment": "memorise", "seconds": 0.0, "parameters": ADAM})
    assert found["status"] == "unknown"
    assert "10 steps of 4 examples" in found["facts"]["reason"]


def test_an_experiment_that_does_not_look_at_its_deadline_is_ended(problem, monkeypatch):
    import time

    from lossdoctor.experiments import look

    monkeypatch.setattr(look, "measure", lambda replay, deadline, parameters: [time.sleep(0.1) for _ in range(600)])
    found = Workup(train(network(), *problem, steps=4)).answer({"experiment": "look", "seconds": 0.1, "parameters": {}})
    assert found["status"] == "unknown"
    assert found["seconds"] < 10
    assert "the time was over" in found["facts"]["reason"]
