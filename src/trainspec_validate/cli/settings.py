"""Makes the settings of a project the defaults of the options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainspec_validate.cli.target import of_target, original
from trainspec_validate.cli.terminal import Failure

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from trainspec_validate.cli.settings_file import Kind

PROGRAM = "trainspec-validate"
UNJUDGED = "unjudged"
"""Word of `--fail-on` for requirements that were not judged, for which the input lacks something."""
UNCOVERED = "uncovered"
"""Word of `--fail-on` for requirements that were not judged, for which this tool has no formula or figure."""
FAIL_ON = click.Choice(["error", "warning", "note", "never", UNJUDGED, UNCOVERED])
_SETTINGS = f"{__name__}.path"
BROKEN = f"{__name__}.broken"
"""Key of why the settings of the working directory cannot be used, where those of another state count."""
SETTINGS_FROM = f"{__name__}.tree"
"""Key of the directory of `--settings-from`, which the order of the options does not matter for."""
_NOT_SETTINGS = frozenset(
    {
        *("config", "settings_from", "help", "version", "today", "follow"),
        *("list_files", "stdin_filename", "prune_baseline", "write_baseline"),
    }
)
"""Options that belong to one run, not to a project."""


def settings_of(command: click.Command) -> dict[str, click.Option]:
    """The options that a project can set, by their long name."""
    found = (option for option in command.params if isinstance(option, click.Option))
    return {o.opts[-1].removeprefix("--"): o for o in found if o.name not in _NOT_SETTINGS}


def configure(context: click.Context, _option: click.Parameter, explicit: str | None) -> str | None:
    """Read the settings before the options are looked at; what the command line says still wins."""
    if context.resilient_parsing:
        return explicit
    from trainspec_validate.cli.settings_file import ConfigError, load, relative_to_here  # noqa: PLC0415

    options = settings_of(context.command)
    kinds = {name: _kind(option) for name, option in options.items()}
    tree = context.meta.get(SETTINGS_FROM)
    home = original(tree) if tree else None
    explicit = of_target("--config", explicit, tree)
    context.meta[BROKEN] = _broken(kinds) if tree else ""
    try:
        settings = load(kinds, explicit, tree=tree and Path(tree), home=home)
    except ConfigError as error:
        raise Failure(str(error)) from error
    if settings is None:
        return explicit
    defaults = {}
    for name, value in settings.values.items():
        _check(context, options[name], value, f"{settings.path}: {name}")
        defaults[str(options[name].name)] = value
    context.default_map = defaults
    context.meta[_SETTINGS] = Path(relative_to_here(settings.path)).as_posix()
    return explicit


def _check(context: click.Context, option: click.Option, value: object, place: str) -> None:
    """Refuse a value that the option does not take; of a number the range and the form are named.

    Raises:
        Failure: the option does not take it.
    """
    is_number = _kind(option) == "number"
    try:
        cast = option.type_cast_value(context, value)
        if is_number and option.callback is not None:
            option.callback(context, option, cast)
    except click.BadParameter as error:
        if not is_number:
            raise Failure(f"{place}: {error.message}") from error
        least, most = getattr(option.type, "min", None), getattr(option.type, "max", None)
        bounds = "" if least is None or most is None else f" from {least:g} to {most:g}"
        kind = "a whole number" if isinstance(option.type, click.types.IntParamType) else "a number"
        raise Failure(f"{place} is {kind}{bounds}, such as {place.rpartition(' ')[2]} = 4") from error


def _broken(kinds: Mapping[str, Kind]) -> str:
    """Why the settings of the working directory, which a change would bring, cannot be used; empty where they can."""
    from trainspec_validate.cli.settings_file import ConfigError, load  # noqa: PLC0415

    try:
        load(kinds)
    except ConfigError as error:
        return str(error)
    return ""


def broken_settings() -> str:
    """Why no run would end with the settings of the working directory, where those of another state count."""
    return str(click.get_current_context().meta.get(BROKEN, ""))


def settings_file(context: click.Context) -> str:
    """The settings file in force; empty where there is none."""
    return str(context.meta.get(_SETTINGS, ""))


def _kind(option: click.Option) -> Kind:
    if option.name == "formats":
        return "outputs"
    if isinstance(option.type, Files):
        return "files"
    if isinstance(option.type, click.Path):
        return "data" if option.multiple else "path"
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return "number"
    return "flag" if option.is_flag else "list" if option.multiple else "text"


class FailOn(click.ParamType[str]):
    """Words of `--fail-on`, one or several with commas."""

    name = "words"

    def __init__(self, choice: click.Choice[str] = FAIL_ON) -> None:
        """Words of a choice."""
        self.choice = choice

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The words as they are, once each is known."""
        for word in value.split(","):
            self.choice.convert(word.strip(), param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The words that begin so."""
        return self.choice.shell_complete(ctx, param, incomplete)


class Files(click.ParamType[str]):
    """A pattern of files."""

    name = "pattern"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The pattern as it is, once it is known to be one."""
        from trainspec_validate.pipeline.excluded import problem_of  # noqa: PLC0415 - start-up

        if problem := problem_of(value):
            self.fail(f"{value!r} {problem}", param, ctx)
        return value


def complete_format(_context: click.Context, _option: click.Parameter, start: str) -> list[CompletionItem]:
    """The names that --format takes, for the shell."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    from trainspec_validate.report import FORMATS  # noqa: PLC0415
    from trainspec_validate.report.outputs import AUTOMATIC  # noqa: PLC0415

    return [CompletionItem(name) for name in (AUTOMATIC, *FORMATS) if name.startswith(start)]
