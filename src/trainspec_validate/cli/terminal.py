"""Prints, and handles the process and its terminal: streams, colour, progress and exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, TypeVar, cast

import click

from trainspec_validate._version import SPECIFICATION_VERSION, __version__
from trainspec_validate.system.neutral import Notation, hazard, neutral, printable
from trainspec_validate.system.process import (
    READER_GONE,
    Guard,
    Terminated,
    ended_by_signals,
    fill_descriptors,
    refusal_of_the_system,
    words_of_lack,
)

OK = 0
FINDINGS = 1
WRONG_USE = 2
OUR_FAULT = 3
INTERRUPTED = 130
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""Settings of every command, so that all programs help in one style."""
_Command = TypeVar("_Command", bound=Callable[..., Any])
_PATIENCE_SECONDS = 1.0
_NEW_OBJECTS = 100_000
"""Before cyclic collection: nearly everything that a short program makes stays until it ends."""
_LONG = 500


class Failure(click.ClickException):
    """Wrong use or unreadable input; each of its lines is one thing to fix.

    Names and words of files are in the lines, and whatever they hold, they begin no line of ours.
    """

    exit_code = WRONG_USE

    def __init__(self, *lines: object) -> None:
        """A failure to report in so many lines."""
        self.lines = tuple(_fit(str(line)) for line in lines)
        super().__init__("\n".join(self.lines))

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Text of an error of an input, each of its arguments in one line."""
        return cls(*(error.args or (error,)))

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - the signature of click
        """Write every line with the same start, so that a log can be searched for it."""
        for line in self.lines:
            tell(f"Error: {line}")


def version_text(program: str) -> str:
    """Name and version of the program, and of the specification that it implements."""
    return f"{program} {__version__} (specification {SPECIFICATION_VERSION})"


def version_option(program: str) -> Callable[[_Command], _Command]:
    """The option `--version` of a program."""

    def show(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            emit(version_text(program) + "\n")
            context.exit(OK)

    words = "Show the versions of the tool and of the specification."
    return click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show, help=words)


def settle() -> None:
    """Set up the process of a program that runs once and ends: nothing in it waits for what it does not use."""
    gc.set_threshold(_NEW_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of linear algebra spin as soon as NumPy is loaded


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command and turn whatever comes of it into the exit code that the manual promises."""
    fill_descriptors()
    _speak_utf8()
    # Workers start with `python -c` or `-m`, which looks for modules in the working directory first.
    # https://docs.python.org/3/using/cmdline.html#envvar-PYTHONSAFEPATH
    os.environ["PYTHONSAFEPATH"] = "1"
    out, err = Guard(sys.stdout, _undelivered), Guard(sys.stderr)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        with ended_by_signals(of_process=arguments is None) as signals:
            code = _run(command, program, arguments, signals)
            out.flush()
    except (KeyboardInterrupt, Failure) as error:
        code = _code_of(error)
    finally:
        sys.stdout, sys.stderr = before
    return _delivered(code, out)


def _run(command: click.Command, program: str, arguments: Sequence[str] | None, signals: list[Terminated]) -> int:
    try:
        result = command.main(args=arguments, prog_name=program, standalone_mode=False)
    except KeyboardInterrupt as error:
        return _code_of(error)
    except Exception as error:
        return signals[0].exit_code if signals else _code_of_failure(program, error)
    return signals[0].exit_code if signals else result if isinstance(result, int) else OK


def _code_of_failure(program: str, error: Exception) -> int:
    """Say what went wrong, and give the exit code."""
    if isinstance(error, click.Abort):
        if not isinstance(error.__cause__, EOFError):
            return _code_of(error.__cause__)
        error = error.__cause__  # of any file: click takes it for the end of what it asks a person
    elif isinstance(error, click.ClickException):
        _refuse(error)
        return WRONG_USE
    if lack := words_of_lack(error):
        _refuse(Failure(f"{program}: {lack}"))
        return WRONG_USE
    lacking = (refusal_of_the_system(error) or _lost_directory()) if isinstance(error, OSError) else ""
    if lacking:
        _refuse(Failure(lacking))
        return WRONG_USE
    _apologise(program, error)
    return OUR_FAULT


def _lost_directory() -> str:
    """What to say where the working directory is gone, which the system tells without a name."""
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd is the same call
    except OSError:
        return "the working directory is not there any more; change to one that is"
    return ""


def _code_of(error: BaseException | None) -> int:
    """The exit code after a signal."""
    if isinstance(error, Failure):
        return WRONG_USE
    return error.exit_code if isinstance(error, Terminated) else INTERRUPTED


def _delivered(code: int, out: Guard) -> int:
    """The exit code, unless it says that all is well and nobody could read that."""
    if code != OK:
        return code
    return WRONG_USE if out.trouble else READER_GONE if out.is_gone else OK


def _undelivered(reason: str) -> Failure:
    return Failure(f"standard output cannot be written: {reason}")


def _refuse(error: click.ClickException) -> None:
    """Say what is wrong with the command line; lines that are too long for a log are cut."""
    if isinstance(error, Failure):
        error.show()
        return
    error.message = _fit(error.message)  # type: ignore[misc]
    with io.StringIO() as words:
        error.show(words)
        tell_lines(words.getvalue())


def _fit(line: str) -> str:
    """The line without what a terminal would obey, and cut in its middle where it is very long."""
    line = printable(line)
    return line if len(line) <= _LONG else f"{line[: _LONG - 150]}…{line[-149:]}"


def _speak_utf8() -> None:
    """Text leaves as UTF-8 whatever the locale; what UTF-8 cannot hold is escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")


def _apologise(program: str, error: Exception) -> None:
    if os.environ.get("TRAINSPEC_DEBUG"):
        import traceback  # noqa: PLC0415

        tell_lines("".join(traceback.format_exception(error)))
    told = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    system = f"Python {sys.version.split()[0]} on {sys.platform}"
    lines = [
        f"{program} failed. The mistake is ours: nothing was concluded about your documents.",
        *(f"  {_fit(part)}" for part in told),
        f"  {version_text(program)}, {system}",
        "Please report these lines, with the file if you can share it, to the issue tracker of the project.",
        "TRAINSPEC_DEBUG=1 shows the traceback.",
    ]
    tell_lines("\n".join(lines))


def say(line: str) -> None:
    """Write one line to standard output, whatever is in it."""
    emit(f"{printable(line)}\n")


def emit(text: str, notation: Notation = "text", *, color: bool = False) -> None:
    """Write lines to standard output, safe for a log; a reader that has gone away is no mistake, a full disk is.

    Raises:
        Failure: standard output cannot be written.
    """
    _write(neutral(text, notation, color=color))


def emit_document(text: str) -> None:
    """Write to standard output what another program reads, just as it is.

    Raises:
        Failure: standard output cannot be written, or a log would obey the text.
    """
    found = hazard(text)
    if found:
        message = f"the text holds {found!r}, which a terminal or a build system would obey"
        raise Failure(f"{message}; write it to a file with --output")
    _write(text)


def or_standard_output(_: click.Context, __: click.Parameter, file: str | None) -> str | None:
    """The file that an option names; None for `-`, as where the option is absent."""
    return None if file == "-" else file


def no_standard_output(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """The name that an option gives to what cannot go to standard output.

    Raises:
        click.BadParameter: it is `-`.
    """
    if name == "-":
        raise click.BadParameter("this cannot go to standard output; write ./- for what is called -")
    return name


def tell(line: str) -> None:
    """Write one line to standard error, whatever is in it."""
    tell_lines(printable(line))


def tell_lines(text: str) -> None:
    """Write lines to standard error; where no one can read them, the exit code says the reason."""
    if text:
        stream = _guarded(sys.stderr)
        stream.write(neutral(text) if text.endswith("\n") else f"{neutral(text)}\n")
        stream.flush()


def _write(text: str) -> None:
    if text:
        with suppress(OSError, ValueError, AttributeError):
            os.set_blocking(sys.stdout.fileno(), True)  # a pipe that does not wait would take a part of the text
        stream = _guarded(sys.stdout, _undelivered)
        stream.write(text)
        stream.flush()


def _guarded(stream: Any, refuse: Callable[[str], Exception] | None = None) -> Guard:
    return stream if isinstance(stream, Guard) else Guard(stream, refuse)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person reads the stream at a terminal that understands more than plain text."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def use_color(choice: str) -> bool:
    """Whether to colour: the option, then NO_COLOR, then FORCE_COLOR, then whether a terminal listens."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR")
    return forced != "0" if forced else is_terminal(sys.stdout)


class Bar:
    """A progress bar on standard error, at a terminal, for work that takes longer than a second."""

    def __init__(self, *, wanted: bool, doing: str = "reading") -> None:
        self._doing = doing
        self._wanted = wanted and is_terminal(sys.stderr)
        self._start = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self._bar is None and self._wanted and time.monotonic() - self._start > _PATIENCE_SECONDS:
            from rich.console import Console  # noqa: PLC0415 - most runs end before it is needed
            from rich.progress import Progress  # noqa: PLC0415

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._doing, total=total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def paused_collector() -> Iterator[None]:
    """Cyclic collection is off inside: it would visit every new container again, and none are in cycles.

    For the programs alone: the collector belongs to the process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
