"""Write the pages of docs/ that come from the code: the commands, the settings, the signals, the faults.

Run it with `make docs`; a test compares what it would write with what is committed.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click

from lossdoctor.cli import group
from lossdoctor.core.config import Settings
from lossdoctor.core.fault import faults
from lossdoctor.core.signals import SIGNALS
from lossdoctor.report import page

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Return the text of every generated page by its path."""
    made = {DOCS / "faults" / f"{fault.code}.md": page.markdown(fault) for fault in faults().values()}
    made[DOCS / "faults" / "README.md"] = page.index()
    made[DOCS / "commands.md"] = commands()
    made[DOCS / "settings.md"] = settings()
    made[DOCS / "signals.md"] = signals()
    return made


def commands() -> str:
    """Write what `--help` says of every command."""
    top = click.Context(group, info_name="lossdoctor", terminal_width=100, **group.context_settings)
    parts = ["# Commands\n", "What `lossdoctor COMMAND --help` says.\n", _help("lossdoctor", group, top)]
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        if command is not None:
            parts.append(_help(f"lossdoctor {name}", command, click.Context(command, top, info_name=name, terminal_width=100)))
    return "\n".join(parts)


def _help(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```text\n{command.get_help(context)}\n```\n"


def settings() -> str:
    """Write the keys of `[tool.lossdoctor]`; their texts are those of the class that holds them."""
    texts = dict(re.findall(r"^\s{8}(\w+): (.+)$", Settings.__doc__ or "", flags=re.MULTILINE))
    rows = [f"| `{field.name.replace('_', '-')}` | {_default(field)} | {texts[field.name]} |" for field in dataclasses.fields(Settings)]
    head = (
        "# Settings\n\nIn `[tool.lossdoctor]` of the nearest pyproject.toml, from the working directory upwards. "
        "Options of the command line come first.\nAn unknown key is an error.\n\n"
        '```toml\n[tool.lossdoctor]\nignore = ["train-mode-in-eval"]\nfail-on = "error"\n```\n\n'
    )
    return head + "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _default(field: dataclasses.Field[object]) -> str:
    return "none" if field.default in (None, (), dataclasses.MISSING) else f"`{field.default}`"


def signals() -> str:
    """Write the table of all signals."""
    rows = [f"| `{each.name}` | {each.unit} | {each.shape} | {each.meaning} |" for each in SIGNALS.values()]
    head = (
        "# Signals\n\nWhat a run may hold. Shapes: `step` is one value per step; `sampled` one value at some steps; `parameters` one value "
        "per parameter at\nsome steps; `row` a structured measurement at some steps; `fact` one value per training.\n"
    )
    return "\n".join([head, "| signal | unit | shape | meaning |", "|---|---|---|---|", *rows]) + "\n"


def main() -> None:
    """Write the pages and remove those of faults that are gone."""
    made = pages()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in (DOCS / "faults").glob("*.md"):
        if path not in made:
            path.unlink()


if __name__ == "__main__":
    main()
