"""The project's own files agree with one another."""

from __future__ import annotations

import configparser
import re
import sys

from documents import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXTS = (".py", ".md", ".toml", ".txt", ".json", ".j2", ".yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def bare(requirement: str) -> str:
    """Return the name of a requirement as package indexes compare it."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def test_every_dependency_is_pinned() -> None:
    pinned = {bare(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    wanted = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]
    assert {bare(each) for each in wanted} - pinned == set()


def test_every_part_has_its_place_in_the_import_contracts() -> None:
    parts = {f"lossdoctor.{path.name}" for path in (ROOT / "src" / "lossdoctor").iterdir() if (path / "__init__.py").exists()}
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    core = set(contracts["importlinter:contract:core"]["forbidden_modules"].split()) | {"lossdoctor.core"}
    assert parts - core == set(), "add the part to .importlinter"
    examiner = set(contracts["importlinter:contract:examiner"]["source_modules"].split())
    assert parts - examiner == {"lossdoctor.bench", "lossdoctor.cli"}


def test_nothing_in_the_project_names_a_place_outside_it() -> None:
    places = re.compile(r"/(?:work|root|home)/[a-z]")
    kept = [path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    kept += [path for path in ROOT.iterdir() if path.is_file() and path.suffix in (*TEXTS, "") and path.name != ".git"]
    assert [str(path.relative_to(ROOT)) for path in kept if places.search(path.read_text(encoding="utf-8", errors="replace"))] == []
