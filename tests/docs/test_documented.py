"""What exists is documented, and what is documented exists."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import click
import pytest
from documents import ROOT, blocks, documents

from lossdoctor.cli import group
from lossdoctor.core.config import Settings
from lossdoctor.core.fault import faults

CONTEXT = click.Context(group, info_name="lossdoctor", **group.context_settings)
# Commands that pages of faults name already and that are still to come: a known miss, to be emptied.
TO_COME = {"check", "tune"}
COMMANDS = {name: command for name in group.list_commands(CONTEXT) if (command := group.get_command(CONTEXT, name))}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    stale = [path.name for path, made in generator().pages().items() if not path.exists() or path.read_text(encoding="utf-8") != made]
    assert not stale, "run `make docs`"


def test_no_page_is_left_of_a_fault_that_is_gone() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "faults").glob("*.md")}
    assert pages == {"README", *(fault.code for fault in faults().values())}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    section = text("docs/commands.md").split(f"## lossdoctor {name}\n")[1].split("\n## ")[0]
    options = [option for parameter in COMMANDS[name].params if isinstance(parameter, click.Option) for option in parameter.opts]
    assert [option for option in options if option not in section] == []
    assert f"`lossdoctor {name}" in text("README.md")


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_documented(field: dataclasses.Field[object]) -> None:
    assert f"| `{field.name.replace('_', '-')}` |" in text("docs/settings.md")


@pytest.mark.parametrize("slug", faults())
def test_every_fault_is_documented(slug: str) -> None:
    assert f"| `{slug}` |" in text("docs/faults/README.md")


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_option_in_a_document_exists(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    inline = re.findall(r"`(lossdoctor(?: [^`\n]+)?)`", source)
    typed = [line.removeprefix("$ ") for block in blocks(path, "sh") for line in block.splitlines() if "lossdoctor" in line]
    calls = {line: shlex.split(line.split("#")[0]) for line in [*inline, *typed]}
    early = [line for line, words in calls.items() if words[1:2] and words[1] in TO_COME - set(COMMANDS)]
    for line in calls.keys() - set(early):
        _check_call(calls[line], line)
    if early and path.parent.name == "faults":
        pytest.xfail(f"names a command that is still to come: {early[0]}")
    assert not early


def _check_call(words: list[str], line: str) -> None:
    if words[0] != "lossdoctor" or len(words) == 1 or words[1].startswith("-") or words[1].isupper():
        return  # a mention of the program, or a placeholder
    assert words[1] in COMMANDS, line
    known = {option for parameter in COMMANDS[words[1]].params for option in parameter.opts} | {"--help"}
    for word in words[2:]:
        if word.endswith(".py"):
            return  # what follows belongs to the script
        assert not word.startswith("--") or word in known, line


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_resolve(path: Path) -> None:
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))]
    local = [link for link in links if link and not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_in_a_document_exist(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    typed = "\n".join(blocks(path, "sh"))
    named = set(re.findall(r"`make ([a-z-]+)`", source)) | set(re.findall(r"^make ([a-z-]+)", typed, flags=re.MULTILINE))
    assert named <= targets()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", text("Makefile"), flags=re.MULTILINE))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == targets()
    phony = re.search(r"^\.PHONY: (.*)$", text("Makefile"), flags=re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == targets()


def test_the_changelog_has_an_unreleased_part_on_top() -> None:
    heads = re.findall(r"^## (.+)$", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert all(re.match(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$", head) for head in heads[1:])
