"""What the supervisor derives from how it was started itself."""

from __future__ import annotations

import pytest

from lossdoctor.launch.supervisor import interpreter_options

TAIL = ["run", "-m", "train", "-c"]


@pytest.mark.parametrize(
    ("start", "options"),
    [
        (["/usr/bin/lossdoctor"], []),
        (["-m", "lossdoctor"], []),
        (["-c", "main()"], []),
        (["-O", "-m", "lossdoctor"], ["-O"]),
        (["-OOm", "lossdoctor"], ["-OO"]),
        (["-Bc", "main()"], ["-B"]),
        (["-X", "dev", "-W", "error", "script"], ["-X", "dev", "-W", "error"]),
        (["-Ximporttime", "-Werror::m", "-m", "lossdoctor"], ["-Ximporttime", "-Werror::m"]),
        (["-I", "-u", "/usr/bin/lossdoctor"], ["-I", "-u"]),
    ],
)
def test_the_options_of_python_are_kept(start: list[str], options: list[str]) -> None:
    assert interpreter_options(["python", *start, *TAIL], ["whatever", *TAIL]) == options


def test_arguments_that_somebody_changed_are_not_guessed_at() -> None:
    assert interpreter_options(["python", "-O", "-m", "pytest", "-q"], ["lossdoctor", "run", "train.py"]) == []
