"""Values of variables are those that the shell itself gives them, or open."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainspec_validate.interop.readers._shell_commands import Script, read_script

BASH = shutil.which("bash")
NAMES = ("A", "B", "C", "FROM_OUTSIDE")
PRINTED = 'prog "=$A"\nprog "=$B"\nprog "=$C"\nprog "=$((A + B))"'


def last(script: str) -> list[str]:
    return [word.text for word in read_script(f"{script}\n").commands[-1]]


def may_be(script: Script, text: str) -> tuple[set[str], bool]:
    """The texts that a word may become, and whether it is open: another may come from outside."""
    values, more = script.choices.flat(text)
    texts = {value.text for value in values}
    return texts, more or any("$" in text for text in texts)


def test_what_was_open_when_it_was_assigned_is_not_filled_in_later() -> None:
    assert last("X=${Y}2\nY=5\nprog ${X}") == ["prog", "${Y}2"]
    assert last("X=$((Y * 2))\nY=5\nprog $((X))") == ["prog", "$((X))"]
    assert last("X=${Y:-${Z}}\nZ=5\nprog $X")[1] != "5"


def test_a_sum_of_itself_that_stays_open_ends() -> None:
    assert last("X=$((X / 2))\nY=$((X / 3))\nprog $((Y + X))") == ["prog", "$((Y + X))"]


def test_the_value_of_a_bare_name_is_a_sum_of_its_own() -> None:
    assert last('X="2 + 3"\nprog $((X * 2)) $(($X * 2))') == ["prog", "10", "8"]


def test_defaults_nest() -> None:
    assert last("A=\nC=7\nprog ${A:-${A:-$C}} ${A:-$((C * 2))}") == ["prog", "7", "14"]


def test_a_variable_before_a_command_is_for_that_command_alone() -> None:
    assert last("N=2\nN=4 bash prepare.sh\nprog $N") == ["prog", "2"]
    script = read_script("run() { prog $N; }\nN=2\nN=4 run\nprog $N\n")
    assert [[word.text for word in command] for command in script.commands] == [["prog", "4"], ["prog", "2"]]


def test_a_local_variable_ends_with_its_function() -> None:
    assert last("N=2\nset_it() { local N=4; M=$N; }\nset_it\nprog $N $M") == ["prog", "2", "4"]


def test_an_addition_to_a_text_adds_no_blank() -> None:
    assert last("N=1\nN+=2\nprog $N") == ["prog", "12"]
    assert last('ITEMS=(--a)\nITEMS+=(--b "--c 1")\nprog ${ITEMS[@]}') == ["prog", "--a", "--b", "--c", "1"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    name, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    number = draw(st.integers(0, 9))
    shapes = (
        f"{number}",
        f"${name}",
        f"${{{name}}}{number}",
        f"${{{name}:-{number}}}",
        f"${{{name}-${other}}}",
        f"${{{name}:-${{{other}:-{number}}}}}",
        f"${{{name}:+${other}}}",
        f"$(({name} * 2))",
        f"$((${name} + {number}))",
        f"$(({number} - ({name} + $(({other} * 3)))))",
        f"${name}${{{other}}}",
    )
    return draw(st.sampled_from(shapes))


TESTS = ('[ -z "${0}" ]', '[ -n "${0}" ]', '[ "${0}" = "2" ]', "[[ ${0} == 3* ]]", "(( {0} > 2 ))", '[ "${0}" -ge 3 ]')


SHAPES = (
    *(['{name}="{text}"'] * 8),
    "{name}='{text}'",
    'export {name}="{text}"',
    '{name}+="{text}"',
    "if {test}; then\n{body}\nelse\n{body}\nfi",
    "if {test}; then\n{body}\nfi",
    "{test} && {name}={number} || true",
    "{test} || {name}={number}",
    'case "${name}" in\n2) {body} ;;\n3*|4) {body} ;;\n*) {body} ;;\nesac',
    "for {name} in 1 2 ${{B}}; do\n{body}\ndone",
    'set_it() {{ local B="$1"; {body}; C="$B$2"; }}\nset_it "{text}" 4',
    ": ${{{name}:={number}}}",
    'ITEMS=(1 "{text}")\n{name}="${{ITEMS[*]}}"',
    "unset {name}",
    '{name}="$(echo ${name})"',
    'read -r {name} <<< "{text}"',
    "{name}={number} true",
)


@st.composite
def lines(draw: st.DrawFn, depth: int = 2) -> str:
    shape = draw(st.sampled_from(SHAPES)) if depth else SHAPES[0]
    while "{body}" in shape:
        shape = shape.replace("{body}", draw(lines(depth - 1)).replace("{", "{{").replace("}", "}}"), 1)
    name, tested = draw(st.sampled_from(NAMES[:3])), draw(st.sampled_from(NAMES))
    test = draw(st.sampled_from(TESTS)).format(tested) if "{test}" in shape else ""
    text = draw(texts()) if "{text}" in shape else ""
    return shape.format(name=name, text=text, test=test, number=draw(st.integers(0, 9)))


@st.composite
def scripts(draw: st.DrawFn) -> str:
    first = [f"{name}={draw(st.integers(0, 4))}" for name in draw(st.sampled_from(["", "AB", "ABC"]))]
    return "\n".join([*first, *draw(st.lists(lines(), min_size=1, max_size=6))])


def printed(script: str, outside: str | None) -> list[str] | None:
    """The words that bash makes; None where it ends with an error, such as a division of a text."""
    environment = {} if outside is None else {"FROM_OUTSIDE": outside}
    body = f'prog() {{ printf "%s\\0" "$*"; }}\n{script}\n{PRINTED}\n'
    command = [BASH or "", "--norc", "--noprofile", "-c", body]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    return ran.stdout.split("\0")[:-1] if ran.returncode == 0 and ran.stdout else None


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(), st.sampled_from([None, "", "3", "2"]))
def test_a_value_is_that_of_the_shell(text: str, outside: str | None) -> None:
    expected = printed(text, outside)
    if expected is None:
        return
    script = read_script(f"{text}\n{PRINTED}\n")
    for command, value in zip(script.commands[-4:], expected[-4:], strict=True):
        found, is_open = may_be(script, " ".join(word.text for word in command[1:]))
        assert is_open or value.split() in [text.split() for text in found], (found, value)
