"""The guesses in closed form, at values known by heart."""

import math

import numpy as np
import pytest

from lossdoctor.record.probes.guess import entropy, guess_bernoulli, guess_classes, guess_constant, huber, smooth_l1


def test_ten_balanced_classes_give_ln_10():
    assert guess_classes(np.full(10, 7.0)) == pytest.approx((2.3026, 2.3026), abs=1e-4)


def test_frequencies_give_their_entropy():
    assert guess_classes(np.array([9.0, 1.0]))[0] == pytest.approx(0.3251, abs=1e-4)


def test_no_targets_give_nothing():
    assert all(math.isnan(value) for value in guess_classes(np.zeros(3)))


def test_one_class_has_no_entropy():
    assert entropy([5, 0]) == 0


def test_all_ones_cost_nothing_to_guess():
    assert guess_bernoulli(np.ones((4, 2))) == pytest.approx((0, math.log(2)))


def test_the_median_is_taken_where_it_is_better():
    targets = np.array([[0.0], [0.0], [9.0]])
    assert guess_constant(targets, np.abs)[0] == 3
    assert guess_constant(targets, np.square)[0] == 18


@pytest.mark.parametrize("loss", [huber(0.5), smooth_l1(2.0), smooth_l1(0.0)])
def test_differences_cost_alike_on_both_sides(loss):
    assert loss(np.array([-0.3, -3.0])) == pytest.approx(loss(np.array([0.3, 3.0])))
