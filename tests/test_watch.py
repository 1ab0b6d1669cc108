"""`lossdoctor.watch` around a loop, and the public face of the package."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import lossdoctor
from lossdoctor.core.errors import LossdoctorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch")


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Any, Callable[[int], None]]]:
    """Make a model, its optimiser and a function that trains them for some steps, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def make(forget: bool = False) -> tuple[Any, Any, Callable[[int], None]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, labels = torch.randn(32, 4), torch.randint(0, 3, (32,))

        def train(steps: int) -> None:
            for _ in range(steps):
                if not forget:
                    optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()

        return model, optimizer, train

    return make


def test_a_loop_is_diagnosed(loop: Any, tmp_path: Path) -> None:
    model, optimizer, train = loop(forget=True)
    with lossdoctor.watch(model, optimizer, out=tmp_path / "runs") as doctor:
        train(100)
    assert doctor.diagnosis.verdict == "zero-grad-missing"
    assert doctor.diagnosis.vitals["steps"] == 100
    assert doctor.folder is not None
    assert doctor.folder.parent == tmp_path / "runs"
    assert (doctor.folder / "diagnosis.json").is_file()
    assert doctor.diagnosis is doctor.diagnosis


def test_nothing_need_be_named_and_the_weights_are_the_same(loop: Any, tmp_path: Path) -> None:
    plain, _, train = loop()
    train(30)
    watched, _, train = loop()
    with lossdoctor.watch() as doctor:
        train(30)
    assert torch.equal(plain.weight, watched.weight)
    assert doctor.diagnosis.vitals["steps"] == 30
    assert list((tmp_path / ".lossdoctor").glob("*/run.json"))


def test_afterwards_torch_is_as_it_was(loop: Any) -> None:
    _, _, train = loop()
    before = (torch.Tensor.backward, torch.nn.functional.cross_entropy, torch.nn.Module.__call__, torch.optim.SGD.step)
    with lossdoctor.watch():
        train(2)
    assert (torch.Tensor.backward, torch.nn.functional.cross_entropy, torch.nn.Module.__call__, torch.optim.SGD.step) == before


def test_the_diagnosis_can_be_asked_for_on_the_way(loop: Any) -> None:
    _, _, train = loop(forget=True)
    doctor = lossdoctor.watch().start()
    train(30)
    time.sleep(0.6)  # longer than the record waits between two flushes
    train(20)
    early = doctor.diagnosis
    train(50)
    doctor.stop()
    doctor.stop()
    assert 1 <= early.vitals["steps"] <= 50
    assert doctor.diagnosis.vitals["steps"] == 100


def test_it_starts_again_over_the_cells_of_a_notebook(loop: Any, tmp_path: Path) -> None:
    _, _, train = loop()
    doctor = lossdoctor.watch()
    for steps in (5, 7):
        doctor.start()
        train(steps)
        doctor.stop()
        assert doctor.diagnosis.vitals["steps"] == steps
    assert len(list((tmp_path / ".lossdoctor").glob("*/run.json"))) == 2


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_error_of_the_loop_passes_untouched_and_the_diagnosis_is_made(
    loop: Any, kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, train = loop(forget=True)
    error = kind("mine")
    with contextlib.suppress(kind), lossdoctor.watch() as doctor:
        train(100)
        raise error
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_filename == __file__
    assert error.__traceback__.tb_next is None
    assert error.__context__ is None
    assert doctor.diagnosis.verdict == "zero-grad-missing"
    assert doctor.diagnosis.run["ended"]["exception"] == kind.__name__
    said = capsys.readouterr().err
    assert said.startswith("lossdoctor: ")
    assert said.count("\n") == 1


def test_nothing_trained(loop: Any, tmp_path: Path) -> None:
    loop()
    with lossdoctor.watch() as doctor:
        pass
    assert doctor.diagnosis.verdict == "undetermined"
    assert doctor.folder is None
    assert list(tmp_path.iterdir()) == []


def test_a_second_watch_is_an_error_and_leaves_the_first_alone(loop: Any) -> None:
    _, _, train = loop()
    with lossdoctor.watch() as doctor:
        train(2)
        with pytest.raises(UsageError, match="watched already"):
            lossdoctor.watch().start()
        train(2)
    assert doctor.diagnosis.vitals["steps"] == 4


def test_wrong_arguments_are_named(loop: Any) -> None:
    model, optimizer, _ = loop()
    with pytest.raises(UsageError, match=r"optimizer.*Linear"):
        lossdoctor.watch(optimizer=model)
    with pytest.raises(UsageError, match=r"model.*SGD"):
        lossdoctor.watch(optimizer)
    with pytest.raises(UsageError, match=r"budget='a lot'.*1%"):
        lossdoctor.watch(budget="a lot")
    with pytest.raises(UsageError, match="nothing was watched"):
        _ = lossdoctor.watch().diagnosis


def test_settings_of_the_project_hold(loop: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.lossdoctor]\nout = 'elsewhere'\nignore = ['LOP']\n")
    _, _, train = loop(forget=True)
    with lossdoctor.watch() as doctor:
        train(60)
    assert doctor.folder is not None
    assert doctor.folder.parent == tmp_path / "elsewhere"
    assert doctor.diagnosis.finding("zero-grad-missing") is None


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossdoctor.watching.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(LossdoctorError, match="pip install torch"):
        lossdoctor.watch().start()


def test_a_report_shows_itself_everywhere(loop: Any) -> None:
    from rich.console import Console

    _, _, train = loop(forget=True)
    with lossdoctor.watch() as doctor:
        train(100)
    report = doctor.diagnosis
    assert "Gradients pile up" in str(report)
    assert repr(report) == f"<Report: zero-grad-missing, {len(report.present)} present>"
    console = Console(width=100, record=True, file=open("shown.txt", "w"))  # noqa: SIM115
    console.print(report)
    assert console.export_text().splitlines()[0] == str(report).splitlines()[0]
    shown = report._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html"}
    assert "Gradients pile up" in shown["text/html"]
    assert "<script" not in shown["text/html"]
    assert report.to_json()["verdict"]["slug"] == "zero-grad-missing"


def test_read_gives_the_same_kind_of_report() -> None:
    report = lossdoctor.read({"loss": [2.3, 2.2, float("nan"), float("nan")]})
    assert isinstance(report, lossdoctor.Report)
    assert "lossdoctor:" in str(report)


def test_importing_the_package_is_quick() -> None:
    """What takes time is loaded when it is used; torch is never loaded by what does not train."""
    heavy = "{'torch', 'numpy', 'pandas', 'rich', 'click', 'plotly', 'jinja2', 'sklearn', 'scipy', 'psutil', 'tomllib'}"
    text = f"import sys, lossdoctor; print(sorted({heavy} & set(sys.modules)), 'watch' in dir(lossdoctor))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
    text = "import sys, lossdoctor; lossdoctor.read({'loss': [1.0]}); print('torch' in sys.modules, 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False False\n"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'wacth'"):
        _ = lossdoctor.wacth
