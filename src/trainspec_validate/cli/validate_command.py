"""Executes the command line: judge, write, record, choose the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainspec_validate.checking.selection import Selection
from trainspec_validate.checking.suppress import is_below
from trainspec_validate.cli import terminal
from trainspec_validate.cli.inputs import is_found, is_input
from trainspec_validate.cli.request import Request, fails, selection_of, threshold_of, words_of
from trainspec_validate.cli.settings import UNCOVERED, UNJUDGED, broken_settings
from trainspec_validate.cli.target import of_target, original, silently_new
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.model.finding import Report, Unjudged
from trainspec_validate.model.requirements import Index, load_index
from trainspec_validate.pipeline.detect import detect, holds_document, search
from trainspec_validate.pipeline.excluded import EXCLUDED, MOST_PATTERNS, excluding, idle, passed_over, takes
from trainspec_validate.pipeline.files import STDIN, STDIN_NAME, is_document_name
from trainspec_validate.pipeline.outside import without_links_out
from trainspec_validate.pipeline.overlooked import is_passed_over, passed_by, why_left_out
from trainspec_validate.pipeline.validation import PartialInputError, Terms, examine
from trainspec_validate.report import NOTATIONS, render
from trainspec_validate.report.outputs import FOR_PEOPLE, Output, OutputError, outputs
from trainspec_validate.system.atomic import refuse_unwritable, standard_stream, write_all
from trainspec_validate.system.boundary import InputError, reason_of, untrusted
from trainspec_validate.system.neutral import printable
from trainspec_validate.system.repository import top_of

if TYPE_CHECKING:
    from trainspec_validate.checking.suppress.baseline import Baseline
    from trainspec_validate.telemetry.user_rules import RuleSet


def run(request: Request) -> int:
    """Do it, and return the exit code.

    Raises:
        Failure: wrong use, or nothing could be read.
    """
    settings = request.settings if "exclude" in request.from_settings else ""
    if len(request.exclude) > MOST_PATTERNS.most:
        whose = f"exclude in {settings}" if settings else "--exclude"
        raise Failure(f"{whose}: {len(request.exclude):,} patterns, where a run has at most {MOST_PATTERNS.most:,}")
    with excluding(request.exclude, settings):
        code = _run(request)
        for words in idle(request.paths or (".",)):
            terminal.tell(f"Note: {words}")
        return code


def _run(request: Request) -> int:
    paths = request.paths or (".",)
    _refuse_command(paths[0])
    if request.stdin_filename is not None and STDIN not in paths:
        raise click.UsageError("--stdin-filename names standard input; add - as PATH")
    if request.dependents:
        paths, request = _without_left_out(request, paths)
        if not (paths or request.left_out):
            for kept_out in passed_over():
                terminal.tell(f"nothing to judge: {kept_out}")
            return terminal.OK
    tree = request.settings_from
    if tree is not None:
        _refuse_own_state(tree, paths)
        request = _of_target(request, tree)
        _tell_changes(request, tree)
    if request.follow:
        return _follow(request)
    if request.list_files:
        return _list_files(paths, request)
    wanted = _outputs(request)
    recorded = request.baseline if request.write_baseline or request.prune_baseline else None
    _refuse_inputs([file for file in (recorded, *(output.file for output in wanted)) if file is not None], request)
    rules, index = _rules(request)
    selection, baseline = selection_of(request, index), _baseline(request)
    report, failures = _judge(_with_progress_for(wanted, request), paths, selection, baseline, rules)
    is_recorded = baseline is not None and baseline.mode != "use" and not failures
    if baseline is not None and is_recorded:
        _write_baseline(baseline, request)  # first, since the report calls findings recorded
    _write(report, wanted, index, recorded if is_recorded else None)  # first, since a closed stream ends the run
    for output in wanted:
        if output.file is None:
            _print(report, output, request, index)
    if failures:
        Failure(*failures).show()
        return terminal.WRONG_USE
    return terminal.FINDINGS if _breaks_settings(request) or fails(report, request.fail_on) else terminal.OK


def _without_left_out(request: Request, paths: Sequence[str]) -> tuple[tuple[str, ...], Request]:
    """Changed files without those of other programs, and the request with what is not judged of them."""
    kept = [path for path in paths if not takes(path)]
    for path in paths:
        if path not in set(kept):
            terminal.tell(f"passed over: {path}: {EXCLUDED}")
    own = _without_foreign(kept, UNJUDGED in words_of(request.fail_on))
    reasons = {path: why_left_out(path) for path in own}
    left_out = tuple(Unjudged(path, reason, "", ()) for path, reason in reasons.items() if reason)
    return tuple(path for path, reason in reasons.items() if not reason), replace(request, left_out=left_out)


def _with_progress_for(wanted: Sequence[Output], request: Request) -> Request:
    """The request, without progress where standard output has a format for machines."""
    is_for_people = all(output.format in FOR_PEOPLE for output in wanted if output.file is None)
    return replace(request, no_progress=request.no_progress or not is_for_people)


def _breaks_settings(request: Request) -> bool:
    """Whether a change leaves settings with which each later run ends with exit code 2, which is said."""
    reason = broken_settings() if request.settings_from is not None else ""
    if reason:
        terminal.tell(f"error: {reason}; with these settings no later run can judge anything")
    return bool(reason) and threshold_of(request.fail_on) is not None


def _without_foreign(paths: Sequence[str], refuses_unjudged: bool) -> list[str]:
    """The paths without files of other programs, which whoever lists changed files names too.

    One that holds a document stays where what is not judged fails.
    """
    others = [path for path in paths if is_passed_over(path)]
    held = {path for path in others if holds_document(path)}
    foreign = [path for path in others if not (path in held and refuses_unjudged)]
    for path in foreign:
        why = "holds a document in a text of another program" if path in held else "no TrainSpec document"
        terminal.tell(f"passed over: {path}: {why}")
    return [path for path in paths if path not in set(foreign)]


def _follow(request: Request) -> int:
    if request.rules:
        raise click.UsageError("own rules look at a run as a whole; use --rules without --follow")
    if request.formats not in ((), ("concise",)):
        raise click.UsageError("--follow prints each finding in a line of its own; use --format concise with it")
    if STDIN in request.paths:
        raise click.UsageError("--follow reads files that grow; name a file or a directory in place of standard input")
    others = {
        "--statistics": request.statistics,
        "--write-baseline": request.write_baseline,
        "--prune-baseline": request.prune_baseline,
        "--baseline": request.baseline is not None,
        "--list-files": request.list_files,
        "--quiet": request.quiet,
        "--engine": request.engine != "local",
        "--values": request.values,
        "--dependents": request.dependents,
    }
    others = {option: is_given for option, is_given in others.items() if option[2:] not in request.from_settings}
    if given := [option for option, is_given in others.items() if is_given]:
        raise click.UsageError(f"--follow has no {' and no '.join(given)}; judge the run again without --follow")
    from trainspec_validate.cli.following import follow  # noqa: PLC0415

    return follow(request, request.interval_seconds)


def _refuse_command(word: str) -> None:
    """Refuse a command of the toolbox that was given to this program, unless a file has that name."""
    if os.path.lexists(word):
        return
    from trainspec_validate.cli.toolbox import COMMANDS, PROGRAM  # noqa: PLC0415 - a path that does not exist

    if word in COMMANDS:
        raise click.UsageError(f"no file is called {word}; the command is `{PROGRAM} {word}`")


def _never_fails(request: Request) -> bool:
    """Whether the settings file, and not the command line, keeps everything from failing."""
    is_set = bool(request.settings) and bool({"fail-on", "fail_on"} & request.from_settings)
    return is_set and threshold_of(request.fail_on) is None and not {UNJUDGED, UNCOVERED} & {*words_of(request.fail_on)}


def _of_target(request: Request, tree: str) -> Request:
    """The request with the files of `tree` in place of those of the working directory."""
    rules = [of_target("--rules", file, tree) for file in request.rules]
    return replace(
        request,
        waivers=of_target("--waivers", request.waivers, tree),
        baseline=of_target("--baseline", request.baseline, tree),
        rules=tuple(file for file in rules if file is not None),
    )


def _refuse_own_state(tree: str, paths: Sequence[str]) -> None:
    """Refuse settings that the change itself can write: in or around what is judged, or in the same checkout."""
    real, here = Path(os.path.realpath(tree)), Path(os.path.realpath("."))
    if here.is_relative_to(real):
        raise click.UsageError("--settings-from names the state before the change: a copy outside of this directory")
    # not behind links: a named link out of the repository is refused by itself
    judged = (Path(os.path.abspath(path)) for path in paths if path not in {"", STDIN})  # noqa: PTH100
    for place in (here, top_of(here) or here, *judged):
        if real.is_relative_to(place):
            words = "--settings-from names the state before the change: a copy that the change cannot write"
            raise click.UsageError(f"{words}, but {tree} is in {os.path.relpath(place)}, which is judged")


def _tell_changes(request: Request, tree: str) -> None:
    """Name the files in the working directory that do not count, because they differ from those of `tree`."""
    from trainspec_validate.cli.settings_file import changed  # noqa: PLC0415 - runs that judge a change request

    files = [file for file in (request.config, request.waivers, request.baseline, *request.rules) if file is not None]
    named = [os.path.relpath(file, tree) for file in files if is_below(file, tree)]
    for name in changed(Path(tree), original(tree), named, nearest=request.config is None):
        note = f"Note: {name} differs between the working directory and {tree}; this run uses {tree}"
        terminal.tell(note)


def _outputs(request: Request) -> list[Output]:
    at_terminal = terminal.is_terminal(sys.stdout)
    try:
        wanted = outputs(request.formats, os.environ, terminal=at_terminal, statistics=request.statistics)
    except OutputError as error:
        raise click.BadParameter(str(error), param_hint="'--format'") from error
    wanted = [replace(one, file=None) if one.file and standard_stream(one.file) == 1 else one for one in wanted]
    recorded = request.baseline if request.write_baseline or request.prune_baseline else None
    for file in (*(output.file for output in wanted), recorded):
        try:
            if file is not None:
                refuse_unwritable(file)
        except OSError as error:
            raise _undelivered(file or "", "baseline" if file == recorded else "report", error) from error
    return wanted


def _refuse_inputs(outputs: Sequence[str], request: Request) -> None:
    """Refuse to write over what is judged, whatever name of it was given.

    Raises:
        Failure: an output is a file of the input.
    """
    named = [*request.paths, *request.rules, request.waivers, request.config, request.settings]
    named += [] if request.write_baseline or request.prune_baseline else [request.baseline]
    for output in outputs:
        if is_input(output, filter(None, named)) or is_found(output, request.paths or (".",)):
            raise Failure(f"{output}: this is a file of the input, which a report would replace; name another file")


def _rules(request: Request) -> tuple[RuleSet | None, Index]:
    """The rules that are named, and the index with them."""
    if not request.rules:
        return None, load_index()
    from trainspec_validate.telemetry.user_rules import RuleError, read_rules  # noqa: PLC0415 - most runs have none

    try:
        with untrusted(lambda reason, remedy: Failure(f"--rules: {reason}; {remedy}")):
            rules = read_rules(request.rules, request.rules_engine)
        return rules, rules.known_to(load_index())
    except RuleError as error:
        raise Failure(str(error)) from error


def _baseline(request: Request) -> Baseline | None:
    if request.write_baseline and request.prune_baseline:
        raise click.UsageError("--write-baseline and --prune-baseline exclude each other; the first also prunes")
    if request.settings_from is not None and (request.write_baseline or request.prune_baseline):
        raise click.UsageError("--settings-from takes a baseline as it is; record findings without it")
    if not (request.baseline or request.write_baseline or request.prune_baseline):
        return None
    from trainspec_validate.checking.suppress.baseline import DEFAULT_NAME, Baseline, Mode  # noqa: PLC0415

    mode: Mode = "write" if request.write_baseline else "prune" if request.prune_baseline else "use"
    try:
        takes_unjudged = bool({UNJUDGED, UNCOVERED} & {*words_of(request.fail_on)})
        return Baseline(request.baseline or DEFAULT_NAME, mode, request.settings_from, takes_unjudged=takes_unjudged)
    except InputError as error:
        raise Failure.of(error) from error


def _judge(
    request: Request, paths: Sequence[str], selection: Selection, baseline: Baseline | None, rules: RuleSet | None
) -> tuple[Report, tuple[str, ...]]:
    """The report on whatever could be read, and why the rest could not."""
    bar = terminal.Bar(wanted=not request.no_progress)
    try:
        terms = Terms(
            selection,
            stdin_name=request.stdin_filename or STDIN_NAME,
            waivers=request.waivers,
            baseline=baseline,
            today=request.today.date() if request.today else None,
            progress=bar,
            engine=request.engine,
            num_workers=request.workers,
            rules=rules,
            values=request.values,
            dependents=request.dependents,
            left_out=request.left_out,
            settings=request.settings,
            from_settings=request.from_settings,
            settings_from=request.settings_from,
        )
        with terminal.paused_collector():
            report, failures = examine(paths, terms), tuple[str, ...]()
    except PartialInputError as error:
        report, failures = error.report, error.args
    except InputError as error:
        raise Failure.of(error) from error
    finally:
        bar.close()
    for line in silently_new(report, request.settings_from) if request.settings_from is not None else ():
        terminal.tell(f"Note: {line}")
    return replace(report, never_fails=_never_fails(request)), failures


def _write(report: Report, wanted: Sequence[Output], index: Index, recorded: str | None = None) -> None:
    """Write the reports that go to files, all or none; `recorded` is what was written before them."""
    texts = {Path(output.file): partial(_text, report, output, index) for output in wanted if output.file is not None}
    try:
        write_all({path: partial(_encoded, text) for path, text in texts.items()}, with_directories=False)
    except OSError as error:
        failure = _undelivered(str(error.filename or next(iter(texts))), "report", error)
        raise Failure(failure.message + (f"; {recorded} was written" if recorded else "")) from error


def _encoded(text: Callable[[], str]) -> bytes:
    return text().encode("utf-8", "backslashreplace")


def _text(report: Report, output: Output, index: Index, *, color: bool = False) -> str:
    return render(
        report,
        output.format,
        color=color,
        hyperlinks=color and terminal.is_terminal(sys.stdout),
        base=Path.cwd().as_posix(),
        requirements=index.by_id,
    )


def _print(report: Report, output: Output, request: Request, index: Index) -> None:
    told = bool(report.findings or report.unjudged) or any(entry.settings for entry in report.left_out)
    told = told or any(entry.settings for entry in report.passed_over)
    told = told or ("quiet" in request.from_settings and bool(report.suppressed))
    silent = request.quiet and not told
    if silent and output.format in FOR_PEOPLE:
        return
    color = terminal.use_color(request.color)
    text = _text(report, output, index, color=color)
    terminal.emit(text, NOTATIONS.get(output.format, "text"), color=color)


def _undelivered(file: str, what: str, error: OSError) -> Failure:
    return Failure(f"{file}: the {what} cannot be written: {reason_of(error)}")


def _write_baseline(baseline: Baseline, request: Request) -> None:
    try:
        number = baseline.write()
    except OSError as error:
        raise _undelivered(baseline.path, "baseline", error) from error
    if not request.quiet:
        num_open = len(baseline.remaining_open)
        of_open = f" and {num_open} entr{'y' if num_open == 1 else 'ies'} on what is not judged" if num_open else ""
        terminal.tell(f"{baseline.path}: {number} finding{'' if number == 1 else 's'}{of_open} recorded")
    if baseline.unrecorded:
        names = ", ".join(baseline.unrecorded)
        terminal.tell(
            f"{baseline.path}: not recorded: {names}, which report files that were not read; fix or remove them"
        )


def _joined(names: Sequence[str]) -> tuple[list[str], list[Unjudged]]:
    """The documents that are judged together with those of some files, and what may refer to these and was not read."""
    given = [name for name in names if is_document_name(name)]
    if not given:
        return [], []
    try:
        report = examine(given, Terms(dependents=True))
    except PartialInputError as error:
        report = error.report
    except InputError:
        return [], []
    left_out = [entry for entry in report.unjudged if not entry.requirements and entry.path not in names]
    return sorted({document.path for document in report.documents} - set(names)), left_out


def _list_files(paths: Sequence[str], request: Request) -> int:
    judges_change = request.dependents or request.settings_from is not None
    kept, refused = without_links_out(paths) if judges_change else (list(paths), [])
    found = search(kept)
    failures = [str(failure) for failure in (*refused, *found.failures)]
    for entry in request.left_out:
        terminal.tell(f"left out: {entry.path}: it {entry.reason}")
    names = [request.stdin_filename or STDIN_NAME] if STDIN in paths else []
    names += sorted(member.as_posix() for group in found.checkpoints for member in group.members)
    for file in found.files:
        try:
            source = detect(file)
        except InputError as error:
            failures.append(str(error))
            continue
        if source.kind != "other":
            names.append(file.name)
        elif source.unread:
            terminal.tell(f"left out: {file.name}: it {source.unread}")
    joined, unreached = _joined(names) if request.dependents else ([], [])
    names += joined
    for entry in unreached:
        terminal.tell(f"left out: {entry.path}: it {entry.reason}")
    for path, reason, _ in passed_by(kept, found, names):
        terminal.tell(f"left out: {path}: it {reason}")
    for kept_out in passed_over():
        terminal.tell(f"left out: {kept_out}")
    terminal.emit("".join(f"{printable(name)}\n" for name in names))
    if failures:
        raise Failure(*failures)
    return terminal.OK
