"""Dead units are counted in hidden layers only, and over the whole run."""

from lossdoctor.core.run import Series, Training
from lossdoctor.derive.dead import dead_throughout, worst_layer


def shares(first, last):
    return Training(signals={"zero_rows": Series.of([first, last], [0, 99], ["0.weight", "2.weight", "head.weight"])})


def test_the_output_layer_does_not_count():
    assert worst_layer(Series.of([[0.1, 0.2, 1.0]], [0], ["a", "b", "c"]), 0) == (0.2, "b")


def test_a_layer_counts_as_dead_throughout_only_where_it_is_dead_at_both_ends():
    assert dead_throughout(shares([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]))
    assert not dead_throughout(shares([1.0, 0.0, 0.0], [0.5, 0.0, 0.0]))
    assert not dead_throughout(Training())
