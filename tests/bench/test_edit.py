"""A plant edits a marked place, once, or says why it cannot."""

from __future__ import annotations

import pytest

from lossdoctor.bench.conditions import suite
from lossdoctor.bench.edit import PLACES, Recipe, find_recipe, recipes
from lossdoctor.core.errors import LossdoctorError, UsageError
from lossdoctor.core.fault import Plant

TEXT = """SEED = 0
# place: data
size = 4
# end
# place: loop
step()
step()
size = 5
# end
"""
LINES = {
    "data": [r"^BATCH = \d+$", r"^x_train, y_train, x_test, y_test = load\(SEED\)$"],
    "model": [r"^WIDTH = \d+$", r"^class Network\(nn\.Module\):$", r"self\.head\(x\)", r"^model = Network\(\)$", r"^initialise\(model\)$"],
    "loss": [r"\bcriterion\b"],
    "optimiser": [r"^RATE = [\d.e-]+$", r"^optimizer = ", r"model\.parameters\(\)", r"lr=RATE"],
    "validation": [r"^def validate\(\):$", r"model\.eval\(\)", r"with torch\.no_grad\(\):", r"output = model\(x_test\)"],
    "loop": [
        r"^EPOCHS = \d+$",
        r"model\.train\(\)",
        r"for batch_x, batch_y in (loader|batches\(\)):",
        r"^        output = model\(batch_x\)$",
        r"^        loss = criterion\(output, batch_y\)$",
        r"optimizer\.zero_grad\(\)",
        r"loss\.backward\(\)",
        r"optimizer\.step\(\)",
    ],
}


@pytest.fixture
def tiny() -> Recipe:
    return Recipe("tiny", TEXT, ("classifier", "loader"))


def test_an_edit_stays_in_its_place(tiny: Recipe) -> None:
    assert tiny.edited("data", r"size = (\d)", r"size = \g<1>0").source == TEXT.replace("size = 4", "size = 40")


def test_all_edits_of_a_plant_are_made(tiny: Recipe) -> None:
    plant = Plant("middle", "data", "size = 4", "size = 6", also=(("loop", "size = 5", "size = 7"),))
    assert tiny.planted(plant).source == TEXT.replace("= 4", "= 6").replace("= 5", "= 7")


@pytest.mark.parametrize(("old", "times"), [("nowhere", 0), (r"step\(\)", 2)])
def test_an_edit_that_does_not_match_once_says_so(tiny: Recipe, old: str, times: int) -> None:
    with pytest.raises(LossdoctorError, match=f"matches {times} times in the place 'loop' of recipe 'tiny'"):
        tiny.edited("loop", old, "")


def test_a_place_that_is_not_marked_is_named(tiny: Recipe) -> None:
    with pytest.raises(LossdoctorError, match="marks the place 'model' 0 times"):
        tiny.edited("model", "a", "b")


def test_kinds_decide_where_a_plant_goes(tiny: Recipe) -> None:
    assert tiny.takes(Plant("middle", "data", "a", "b"))
    assert tiny.takes(Plant("middle", "data", "a", "b", kinds=("regression", "loader")))
    assert not tiny.takes(Plant("middle", "data", "a", "b", kinds=("regression",)))


def test_seed_is_set(tiny: Recipe) -> None:
    assert tiny.with_constant("SEED", 3).source.startswith("SEED = 3\n")
    with pytest.raises(LossdoctorError, match="sets EPOCHS 0 times"):
        tiny.with_constant("EPOCHS", 3)


def test_an_unknown_recipe_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no recipe is called 'digit'; there are: digits, "):
        find_recipe("digit")


@pytest.mark.parametrize("name", list(recipes()))
def test_recipes_mark_their_places_alike(name: str) -> None:
    recipe = recipes()[name]
    for place in PLACES:
        for line in LINES[place]:
            if place == "loss":
                assert "criterion" in recipe.place("loss")
            else:
                recipe.edited(place, line, "found")
    if "scaled" in recipe.kinds:
        recipe.edited("data", r"^x_train, x_test = \(x_train - mean\) / std, \(x_test - mean\) / std$", "")
    recipe.edited("data", r"(return self\.inputs\[index\]|yield x_train\[rows\]), (self\.targets\[index\]|y_train\[rows\])", "")


@pytest.mark.parametrize("name", list(recipes()))
def test_recipes_do_not_know_lossdoctor(name: str) -> None:
    assert "lossdoctor" not in recipes()[name].source


@pytest.mark.parametrize("name", list(recipes()))
def test_every_plant_fits_the_recipes_that_it_is_meant_for(name: str) -> None:
    recipe = recipes()[name]
    for condition in suite("all"):
        for plant in condition.plants:
            if recipe.takes(plant):
                sick = recipe.planted(plant).source
                assert sick != recipe.source, condition.name
                compile(sick, condition.name, "exec")
