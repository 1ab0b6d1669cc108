"""The command line: one file per command, found in this folder and imported only when it is called."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path

import click

from lossdoctor import __version__
from lossdoctor.core.errors import LossdoctorError


class Commands(click.Group):
    """Find the commands in this folder: a module `<name>.py` that defines `command`; its docstring's first line is its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, without importing one."""
        return sorted(_files())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from importlib import import_module

        found = import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument; name the nearest where there is none."""
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, known, n=1)
        if not near and Path(name).suffix == ".py":
            raise click.UsageError(f"no command {name!r}; to watch a script: lossdoctor run {name}", ctx)
        raise click.UsageError(
            f"no command {name!r}{f'; did you mean {near[0]!r}?' if near else f'; there are: {chr(44).join(known)}'}", ctx
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first line of their modules' docstrings."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(file)) for name, file in sorted(_files().items())])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, invoke_without_command=True)
@click.version_option(__version__, "-V", "--version", prog_name="lossdoctor", message="%(prog)s %(version)s")
@click.pass_context
def group(context: click.Context) -> None:
    """Say why a training run fails, show the evidence, and say whether a bigger machine would help."""
    from lossdoctor.core.config import load_settings

    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        return
    settings = vars(load_settings(Path.cwd()))
    context.default_map = dict.fromkeys(group.list_commands(context), settings)


def main() -> None:
    """Run the command line; whatever goes wrong ends in one clear line and a status."""
    try:
        status = group.main(standalone_mode=False)
    except click.ClickException as error:
        status = _say(_words(error), 2)
    except LossdoctorError as error:
        status = _say(str(error), error.status)
    except click.Abort:
        status = _say("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has gone
        status = 0
    except Exception as error:
        from lossdoctor.cli._report import describe

        status = _say(describe(error), 3)
    sys.exit(status if isinstance(status, int) else 0)


def _files() -> dict[str, Path]:
    """Return the file of every command by its name; those that begin with an underscore are none."""
    return {file.stem: file for folder in __path__ for file in Path(folder).glob("[!_]*.py")}


def _say(text: str, status: int) -> int:
    click.echo(f"lossdoctor: {text}", err=True)
    return status


def _words(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    text = error.format_message().rstrip(".").replace("\n", " ")
    return f"{text[:1].lower()}{text[1:]}" + (f" ({context.command_path} --help)" if context is not None else "")


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as stream:
        return stream.readline().strip().strip('"').rstrip(".")
