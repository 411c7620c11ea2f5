"""Follows a shell script from assignment to command; nothing of it is ever run.

A value that a branch, a loop or the caller decides becomes a choice between every value that it may have
(`_shell_choices`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers import _shell_tree as tree
from trainspec_validate.interop.readers._shell_arguments import Arguments, arguments_of, hand_over
from trainspec_validate.interop.readers._shell_assignments import ASSIGNS, assignment, take
from trainspec_validate.interop.readers._shell_builtins import DECLARES, built_in, is_alias, name_at, sets_variables
from trainspec_validate.interop.readers._shell_choices import Value
from trainspec_validate.interop.readers._shell_conditions import decide, matches
from trainspec_validate.interop.readers._shell_items import items_of, quoted_glob, test_words
from trainspec_validate.interop.readers._shell_runners import with_read_words
from trainspec_validate.interop.readers._shell_variables import (
    NAME,
    POSITIONAL,
    Scope,
    Script,
    Word,
    changed_names,
    is_settled,
    prepares_alone,
    unknown_words,
)
from trainspec_validate.interop.readers._shell_words import Token

MAX_STEPS = 200_000
MAX_ITEMS = 256
"""Items of a loop that are followed one by one."""
_MAX_CALLS = 16
_MAX_PASSES = 5
_MAX_NESTED = 3
"""Loops in each other that are followed several times, to find what they assign."""
_READS = frozenset({"source", "."})
_TESTS = frozenset({"[", "[[", "test"})
_PREPARING = re.compile(
    r"[\"']*\$\([\"']*(?:[^\s\"']*/)?(?:conda|mamba|micromamba|ssh-agent|direnv|pyenv|brew|modulecmd|dircolors)\b[^;&|]*\)[\"']*"
)
"""Commands that print settings of paths for `eval`."""
_LATER = re.compile(rf"(?:^|[;&|\s(])({NAME})\+?=")


def read_script(text: str, slurm: dict[str, int] | None = None) -> Script:
    r"""Assignments and commands of a script; `slurm` are sizes that its lines for Slurm ask for.

    >>> script = read_script('N=4\nARGS="--num-layers $N"\npython pretrain_gpt.py $ARGS\n')
    >>> [word.text for word in script.commands[0]]
    ['python', 'pretrain_gpt.py', '--num-layers', '4']

    Raises:
        ForeignFormatError: the script is cut off in a quote or bracket, or grows beyond bounds.
    """
    script = Script()
    for name, size in (slurm or {}).items():
        script.scopes[0][name] = Value(str(size), 0)
    body = tree.tree_of(text)
    script.defined = tree.functions_in(body)
    for line in body:
        if script.follow("line", lambda line=line: _step(script, line)):  # type: ignore[misc]
            break
    for name in [name for name in script.functions if name not in script.called and not script.failed]:
        script.branch([lambda name=name: _call(script, name, None, 0), lambda: False])  # type: ignore[misc]
    return script


def _run(script: Script, body: Sequence[tree.Node]) -> bool:
    """Follow commands in order; whether the script ends among them."""
    return any(_step(script, node) for node in body)


def _step(script: Script, node: tree.Node) -> bool:
    script.steps += 1
    if script.steps > MAX_STEPS:
        raise ForeignFormatError("the script takes too many steps", help="give the launch script alone")
    return _follow(script, node) or script.failed


def _follow(script: Script, node: tree.Node) -> bool:
    match node:
        case tree.Simple():
            return _simple(script, node.tokens)
        case tree.Group():
            return _run(script, node.body)
        case tree.Function():
            others = script.functions.get(node.name, (None,)) if script.is_inside else ()
            script.functions[node.name] = (*others, node.body)
        case tree.If():
            return _if(script, node)
        case tree.Case():
            return _case(script, node)
        case tree.Loop():
            return _loop(script, node)
        case tree.Joined():
            return _joined(script, node)
        case tree.Negated():
            return _step(script, node.node)
        case tree.Subshell() | tree.Pipeline():
            _apart(script, node)
    return False


def _apart(script: Script, node: tree.Subshell | tree.Pipeline) -> None:
    """Commands whose variables end with them."""
    if isinstance(node, tree.Subshell):
        script.follow("shell", lambda: _run(script, node.body))
        if node.coprocess:
            script.open(node.coprocess)
        return
    for part in node.parts[:-1]:
        script.follow("shell", lambda part=part: _step(script, part))  # type: ignore[misc]
    if "lastpipe" in script.options:
        script.branch([lambda: _step(script, node.parts[-1]), lambda: False])
    else:
        script.follow("shell", lambda: _step(script, node.parts[-1]))


def _status(script: Script, node: tree.Node) -> bool | None:
    """Whether a condition holds; None where the script does not tell."""
    if isinstance(node, tree.Negated):
        status = _status(script, node.node)
        return None if status is None else not status
    if isinstance(node, tree.Joined):
        left, right = _status(script, node.left), _status(script, node.right)
        if left is None or right is None:
            known = left if right is None else right
            return known if known is not None and known is not node.on_success else None
        return (left and right) if node.on_success else (left or right)
    if not isinstance(node, tree.Simple) or not node.tokens or node.tokens[0].kind != "word":
        return None
    if _assigns(script, node):
        return True
    words = test_words(script, node.tokens)
    return None if words is None else decide(words, script.choices)


def _assigns(script: Script, node: tree.Simple) -> bool:
    """Whether a command does nothing but assign, with no other command in it that could fail."""
    first, *others = (token.text for token in node.tokens if token.kind == "word")
    words = others if first in DECLARES else [first, *others]
    found = [ASSIGNS.match(word) for word in words]
    failing = script.fixed | script.shaped | script.opaque | script.references
    return bool(words) and all(
        name and name[1] not in failing and "`" not in word and "$(" not in word and "${" not in word
        for name, word in zip(found, words, strict=True)
    )


def _holds(script: Script, condition: tree.Body) -> tuple[bool | None, bool]:
    """Whether a condition holds, and whether the script ends in it."""
    for node in condition[:-1]:
        if _step(script, node):
            return None, True
    if not condition:
        return None, False
    status = _status(script, condition[-1])
    is_test = isinstance(condition[-1], tree.Simple) and condition[-1].tokens and condition[-1].tokens[0].text in _TESTS
    return status, not is_test and _step(script, condition[-1])


def _joined(script: Script, node: tree.Joined) -> bool:
    status = _status(script, node.left)
    if _step(script, node.left):
        return True
    if status is not None and status is not node.on_success:
        return False
    if status is not None:
        return _step(script, node.right)
    return script.branch([lambda: _step(script, node.right), lambda: False])


def _if(script: Script, node: tree.If, at: int = 0) -> bool:
    """The branches from one on: each condition runs only where those before it did not hold."""
    if at == len(node.branches):
        return _run(script, node.otherwise)
    condition, body = node.branches[at]
    holds, stopped = _holds(script, condition)
    if stopped or script.failed:
        return True
    ways: list[Callable[[], bool]] = []
    if holds is not False:
        ways.append(lambda: _run(script, body))
    if not holds:
        ways.append(lambda: _if(script, node, at + 1))
    return script.branch(ways)


def _case(script: Script, node: tree.Case) -> bool:
    if node.falls:
        return any(script.branch([lambda body=body: _run(script, body), lambda: False]) for _, body in node.branches)  # type: ignore[misc]
    subject = script.value(node.subject.pieces, node.subject.line)
    if script.failed:
        return True
    ways: list[Callable[[], bool]] = []
    for patterns, body in node.branches:
        found = [
            None if quoted_glob(token) else matches(subject, script.value(token.pieces, token.line), script.choices)
            for token in patterns
        ]
        if True in found or None in found:
            ways.append(lambda body=body: _run(script, body))  # type: ignore[misc]
        if True in found:
            break
    else:
        ways.append(lambda: False)
    return script.branch(ways)


def _loop(script: Script, node: tree.Loop) -> bool:
    # A loop over a variable that is read-only is an error, and its body does not run.
    items, sure, whole = list[str](), bool(node.items) and node.variable not in script.fixed, True
    for token in node.items:
        found = items_of(script, token)
        items, sure, whole = [*items, *found.texts], sure and found.sure, whole and found.whole
    line = node.items[0].line if node.items else 0
    if script.failed:
        return True
    if sure and tree.appends_alone(node.body) and len(items) <= MAX_ITEMS:
        for item in items:
            script.assign(node.variable, Value(item, line))
            _run(script, node.body)
        return False
    texts = [Value(item, line) for item in items] if whole and items else _may_be(script, node, items, line)
    appended = tree.appended(node.body)
    repeats = len(items) > 1 or not sure

    def once(names: set[str]) -> bool:
        for name in sorted(names - {node.variable}) if repeats else ():
            _may_have_changed(script, name, appended.get(name))
        if node.variable:
            script.assign(node.variable, Value(script.choices.mark(texts, f"${{{node.variable}}}"), line))
        stopped = script.follow("loop", lambda: _run(script, node.condition) or _run(script, node.body))
        if node.condition and not stopped:
            _quietly(script, lambda: _run(script, node.condition))
        return stopped

    def all_of_it() -> bool:
        return once(_changed(script, node, once)) if repeats else once(set())

    if sure:
        return script.branch([all_of_it]) if items else False
    return script.branch([all_of_it, lambda: _run(script, node.condition)])


def _may_be(script: Script, node: tree.Loop, items: Sequence[str], line: int) -> list[Value]:
    """What a variable of a loop may be whose items are not known: one of those that are, or another."""
    flat = [[one.text for one in script.choices.flat(item)[0]] for item in items]
    holds_options = any(text.startswith("--") for texts in flat for text in texts)
    single = [item for item, texts in zip(items, flat, strict=True) if all(text.split() == [text] for text in texts)]
    other = unknown_words(node.variable) if holds_options else f"${node.variable}"
    return [*(Value(item, line) for item in single), Value(other, line)]


def _changed(script: Script, node: tree.Loop, once: Callable[[set[str]], bool]) -> set[str]:
    """Names that a loop assigns, found by following it until a further pass assigns no other."""
    names = script.loops.setdefault(id(node), set())
    is_deep = sum(frame.kind == "loop" for frame in script.frames) >= _MAX_NESTED
    for _ in range(0 if is_deep else _MAX_PASSES):
        scopes: list[Scope] = []

        def run(names: set[str] = names, scopes: list[Scope] = scopes) -> bool:
            script.scopes.append({})
            once(names)
            scopes.append(script.scopes.pop())
            return True

        _quietly(script, lambda run=run: script.follow("shell", run))  # type: ignore[misc]
        found = changed_names(scopes)
        if found <= names:
            return names
        names |= found
    return names | changed_names(script.scopes)


def _quietly(script: Script, run: Callable[[], bool]) -> bool:
    """Follow commands for what they assign, without listing them again."""
    places = len(script.commands), len(script.sourced), len(script.called)
    stopped = run()
    del script.commands[places[0] :], script.sourced[places[1] :], script.called[places[2] :]
    return stopped


def _may_have_changed(script: Script, name: str, spaced: bool | None) -> None:
    """What an earlier pass of a loop may have assigned; `spaced` where it only appended, with a blank or without."""
    before = script.get(name)
    if before is None:
        return
    if spaced is not None and name not in script.opaque:
        rest = f"{before.text}{' ' if spaced else ''}${{{name}[@]}}"
        script.scopes[-1][name] = Value(rest, before.line)
        return
    values = [before, Value(f"${name}", 0)]
    script.scopes[-1][name] = Value(script.choices.mark(values, f"${{{name}}}"), before.line)
    first = script.get(f"{name}[0]")
    if first is not None:
        script.scopes[-1][f"{name}[0]"] = Value(f"${name}", first.line)


def _call(script: Script, name: str, args: Arguments | None, line: int) -> bool:
    """Follow a function with its own `$1` and so on; whether the script ends in it. None for unknown arguments."""
    script.called.append(name)
    if script.called.count(name) > _MAX_CALLS:
        script.unsettle()
        return False
    script.outer.append({key: script.get(key) for key in POSITIONAL})
    hand_over(script, args, name, line)

    def way(body: tree.Body | None) -> bool:
        return body is not None and _run(script, body)

    ways = script.functions[name]
    stopped = script.follow("function", lambda: script.branch([lambda body=body: way(body) for body in ways]))  # type: ignore[misc]
    for key, value in script.outer.pop().items():
        script.scopes[-1][key] = value or (None if key.endswith("]") else Value(f"${key}", 0))
    return stopped


def _simple(script: Script, tokens: tuple[Token, ...]) -> bool:
    """One command; whether the script ends with it."""
    if tokens and tokens[0].kind == "sum":
        script.value(tokens[0].pieces, tokens[0].line)
        script.open_in_sum(tokens[0].text)
        return False
    command: list[Word] = []
    position = 0
    script.scopes.append({})
    while position < len(tokens) and (tokens[position].kind != "word" or assignment(tokens[position])):
        position = take(script, command, tokens, position)
    assigned = script.scopes.pop()
    own = {found[1] for token in tokens[:position] if token.kind == "word" and (found := assignment(token))}
    before = position
    changed = position < len(tokens) and tokens[position].bare and is_alias(script, tokens[position].text)
    if changed:
        script.unsettle()
    while position < len(tokens):
        position = take(script, command, tokens, position)
    if changed:
        command.append(Word(unknown_words("alias"), tokens[before].line))
    while script.declared:
        script.declared.pop(0)()
    if script.failed:
        return True
    if not command:
        if any(name in script.fixed for name in own):
            script.leave("line")
        script.scopes[-1].update(assigned)
        return False
    others = {name: value for name, value in assigned.items() if name.removesuffix("[0]") not in own}
    script.scopes[-1].update(others)
    mine = {name: value for name, value in assigned.items() if name not in others}
    script.prefixed.update(mine)
    return _command(script, command, tokens[before:], mine)


def _command(script: Script, command: list[Word], tokens: tuple[Token, ...], assigned: Scope) -> bool:
    """A command, for which alone some variables were assigned before its name; whether the script ends with it."""
    first = command[0].text
    if first in script.functions:
        return _with(script, assigned, lambda: _call(script, first, arguments_of(script, tokens), command[0].line))
    script.commands.append(with_read_words(command))
    place = name_at(command)
    name, words = command[place].text, command[place + 1 :]
    if name in _READS and words:
        script.sourced.append((_shown_file(script, words[0].text, tokens), command[0].line))
        if not prepares_alone(words[0].text):
            script.unsettle()
    elif name == "eval":
        return _with(script, assigned, lambda: _evaluate(script, words))
    elif name == "trap":
        _trap(script, tokens)
    else:
        built_in(script, command)
    if name in {"break", "continue"}:
        return script.leave("loop", every=bool(words))
    if name == "return":
        return script.leave("function") or not script.outer
    return name == "exit" or (name == "exec" and any(word.text[:1] not in {"-", "{"} for word in words))


def _with(script: Script, assigned: Scope, run: Callable[[], bool]) -> bool:
    """Follow commands for which alone some variables are assigned."""
    before = {name: script.get(name) for name in assigned}
    script.scopes[-1].update(assigned)
    stopped = run()
    for name, value in before.items():
        changed = script.get(name) is not assigned[name]
        again = Value(f"${name}", 0) if changed or (value is None and not name.endswith("]")) else value
        script.scopes[-1][name] = again
    return stopped


def _evaluate(script: Script, words: Sequence[Word]) -> bool:
    """`eval`: a text that is known is followed; any other may assign what it names, or everything."""
    text = " ".join(word.text for word in words)
    texts, more = script.choices.flat(text)
    if not more and all(is_settled(one.text) for one in texts):
        try:
            bodies = [tree.tree_of(one.text) for one in texts]
        except ForeignFormatError:
            script.unsettle()
            return False
        ways = [lambda body=body: _run(script, body) for body in bodies]
        return _quietly(script, lambda: script.branch(ways))
    if not _PREPARING.fullmatch(text):
        for one in texts:
            _evaluate_open(script, one.text)
        if more:
            script.unsettle()
    return False


def _evaluate_open(script: Script, text: str) -> None:
    names = {found[1] for found in _LATER.finditer(text)}
    first = next((word for word in text.split() if not ASSIGNS.match(word)), "")
    if not first or not is_settled(first) or sets_variables(script, first):
        script.unsettle()
    for name in sorted(names):
        if script.get(name) is not None:
            script.open(name)


def _trap(script: Script, tokens: tuple[Token, ...]) -> None:
    """What runs when a signal comes may set what it names at any time."""
    words = [token for token in tokens if token.kind == "word"]
    place = next((k for k, token in enumerate(words) if token.text == "trap"), 0)
    texts = [script.value(token.pieces, token.line) for token in words[place + 1 :]]
    if not texts or texts[0][:1] == "-" or {text.upper() for text in texts[1:]} <= {"EXIT", "0"}:
        return
    try:
        body = tree.tree_of(texts[0])
    except ForeignFormatError:
        script.unsettle()
        return
    scopes: list[Scope] = []
    functions = dict(script.functions)
    script.functions = {**{name: (body,) for name, body in script.defined.items()}, **functions}

    def run() -> bool:
        script.scopes.append({})
        _run(script, body)
        scopes.append(script.scopes.pop())
        return True

    _quietly(script, lambda: script.follow("shell", run))
    script.functions = functions
    script.opaque |= {name for name in changed_names(scopes) if re.fullmatch(NAME, name)}


def _shown_file(script: Script, value: str, tokens: tuple[Token, ...]) -> str:
    """The file that a command reads in, as the script writes it where a command of its own makes the name."""
    shown = script.choices.shown(value)
    written = [token.text for token in tokens if token.kind == "word"]
    place = next((k for k, word in enumerate(written[:-1]) if word in _READS), None)
    return shown if place is None or "$(" not in shown else written[place + 1]
