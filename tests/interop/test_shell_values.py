"""Values of variables are those that the shell itself gives them, or open."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.interop.shell_scripts import scripts
from trainspec_validate.interop.readers._shell_commands import read_script
from trainspec_validate.interop.readers._shell_options import options_of_script
from trainspec_validate.interop.readers._shell_variables import Script
from trainspec_validate.interop.readers._shell_words import without_joints

BASH = shutil.which("bash")
PRINTED = '''prog 1 "=$A"
prog 2 "=$B"
prog 3 "=$C"
prog 4 "=$((A + B))"
prog 5 "=${L[@]}"
prog 6 "=$L"'''
PROG = 'prog() { local IFS=" "; printf "%s\\0" "$*"; }'
"""Prints its words; the first is the number of the place from which it is called."""
MISCOUNTED = re.compile(r"division by 0|syntax error|error token|invalid arithmetic|operand expected|value too great")
"""bash gives up the whole command around a sum that is none."""


def last(script: str) -> list[str]:
    return [word.text for word in read_script(f"{script}\n").commands[-1]]


def may_be(script: Script, text: str) -> tuple[set[str], bool]:
    """The texts that a word may become, and whether it is open: another may come from outside."""
    values, more = script.choices.flat(text)
    texts = {without_joints(value.text) for value in values}
    return texts, more or any("$" in text or "`" in text for text in texts)


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


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("( TP=8 )", "2"),
        ("{ TP=8; } | cat", "2"),
        ("TP=8 &", "2"),
        ("TP=8 && PP=4 &", "2"),
        ("echo 8 | while read -r TP; do :; done", "2"),
        (': "$(TP=8)"; cat <(TP=8)', "2"),
        ("lay() ( TP=8 )\nlay", "2"),
        ("declare TP", "2"),
        ("set TP=8", "2"),
        ("eval TP=8", "8"),
        ("N=TP\nexport $N=8", "8"),
        ("TP=(8 4)", "8"),
        ("TP=(8 4)\nunset TP\nTP=2", "2"),
        ("lay() { if true; then TP=8; return; fi; TP=4; }\nlay", "8"),
        ("for TP in 8; do break; TP=4; done", "8"),
        ("TP=4 &> log", "4"),
    ],
)
def test_assignments_count_where_the_shell_makes_them(script: str, value: str) -> None:
    assert last(f"TP=2\n{script}\nprog $TP") == ["prog", value]


@pytest.mark.parametrize(
    "script",
    [
        *("declare -i TP; TP+=2", "let TP*=2", "((TP*=2))", ": $((TP++))", "for ((TP=0; TP<3; TP++)); do :; done"),
        *(
            "readonly TP; TP=8",
            "printf -v TP %s 8",
            "local_() { local -n to=TP; to=8; }\nlocal_",
            "declare -n to=TP; to=8",
        ),
        *("read TP <<< 8", "mapfile -t TP < list", "getopts a: TP", 'eval "$1=8"', "source absent.sh", "TP[0]=8"),
        *(
            "command eval $1",
            "builtin read TP",
            "trap 'TP=8' DEBUG",
            "exec {TP}> log",
            'declare "$1=8"',
            "unset $1",
            "$1 TP=8",
        ),
        *("if [ $1 ]; then lay() { TP=8; }; else lay() { TP=4; }; fi\nlay", "while [ $1 ]; do TP=8; break; done"),
        *(
            "IFS=$1; L=4,8; for TP in $L; do :; done",
            "for TP in $(seq 8); do :; done",
            "for V in 1 $1; do TP+=$V; :; done",
        ),
        *("shopt -s lastpipe; echo 8 | read TP", "shopt -s expand_aliases; alias q=TP=8; q", ": <<< $((TP = 8))"),
    ],
)
def test_what_is_not_followed_exactly_leaves_a_variable_open(script: str) -> None:
    script = f"TP=2\n{script}\nprog $TP\n"
    found = read_script(script)
    values, is_open = may_be(found, found.commands[-1][-1].text)
    assert is_open or len(values) > 1


@pytest.mark.parametrize(
    "script",
    [
        "TP=2; TP=${!V}; TP=4",
        "V=; TP=2; : ${!V}; TP=4",
        "lay() { TP=2; : ${!V}; TP=4; }\nlay",
        "if true; then TP=2; : ${!V}; TP=4; fi",
        "readonly V=1\nTP=2; V=3; TP=4",
        "readonly V=1\nlay() { TP=2; V=3; TP=4; }\nlay",
    ],
)
def test_a_line_that_is_given_up_may_assign_no_more(script: str) -> None:
    found = read_script(f"{script}\nprog $TP\n")
    assert may_be(found, found.commands[-1][-1].text)[0] >= {"2", "4"}


@pytest.mark.parametrize(
    "script",
    [
        "V=\n: ${V:?}",
        "unset V\n: ${V?is needed}",
        "set -u\nunset V\nN=$V",
        "set -euo pipefail\nlay() { N=$2; }\nlay 1",
        "V=\nif [ ${V:?} = 1 ]; then N=1; fi",
        "V=\nfor N in ${V:?}; do :; done",
        "V=\nlay() { N=${V:?}; }\nlay",
    ],
)
def test_nothing_is_known_behind_the_error_that_ends_a_script(script: str) -> None:
    assert not any(command[0].text == "prog" for command in read_script(f"{script}\nprog --tp 4\n").commands)


@pytest.mark.parametrize(
    "script",
    [
        "V=\n( : ${V:?} )",
        "V=\n{ : ${V:?}; } | cat",
        "V=\nif [ $1 ]; then : ${V:?}; fi",
        "V=\nlay() { if [ $1 ]; then return; fi; : ${V:?}; }\nlay $X",
        ": ${V:?}",
        "set -u\nset +u\nunset V\nN=$V",
        "set -u\nunset V\nN=${V:-1}",
    ],
)
def test_an_error_that_ends_no_more_than_a_way_leaves_the_script(script: str) -> None:
    assert [word.text for word in read_script(f"{script}\nprog --tp 4\n").commands[-1]] == ["prog", "--tp", "4"]


def test_a_script_that_ends_with_an_error_gives_no_options() -> None:
    script = "ARGS='--num-layers 2 --lr 3'\nV=\n: ${V:?}\npython pretrain_gpt.py $ARGS\n"
    assert options_of_script(script, re.compile("--"), 1) is None


def test_a_part_of_an_array_leaves_its_options_open() -> None:
    found = options_of_script(
        "A=(--tensor-model-parallel-size 4 --num-layers 24)\npython pretrain_gpt.py --tensor-model-parallel-size 2 "
        '"${A[@]/4/8}" --hidden-size 1024\n',
        re.compile("--"),
        1,
    )
    assert found is not None
    assert str(found.values["tensor_model_parallel_size"]) == "2 (line 2) or what the caller or the environment sets"
    assert found.values["hidden_size"] == 1024


def printed(script: str, outside: str | None) -> list[str] | None:
    """What bash prints at each place; None where it gives up in a sum, or does not reach the end."""
    environment = {"PATH": "/usr/bin:/bin"} | ({} if outside is None else {"FROM_OUTSIDE": outside})
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        file.write(f"{PROG}\n{script}\n{PRINTED}\n")
        file.flush()
        command = [BASH or "", "--norc", "--noprofile", file.name]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5, check=False)
        except subprocess.TimeoutExpired:
            return None
    whole = ran.stdout.endswith("\0") and not MISCOUNTED.search(ran.stderr)
    return ran.stdout.split("\0")[:-1] if whole else None


def wrong(text: str, outside: str | None) -> list[tuple[str, object]]:
    """What bash prints where the values that were read have no room for it."""
    found: dict[str, list[tuple[set[str], bool]]] = {}
    script = read_script(f"{text}\n{PRINTED}\n")
    for command in script.commands:
        words = [word.text for word in command]
        if "prog" in words and len(words) > words.index("prog") + 1:
            start = words.index("prog") + 1
            found.setdefault(words[start], []).append(may_be(script, " ".join(words[start + 1 :])))
    bad = list[tuple[str, object]]()
    for line in printed(text, outside) or []:
        place, _, value = line.rpartition("\n")[2].partition(" ")
        ways = found.get(place, [])
        if ways and not any(is_open or value.split() in [one.split() for one in some] for some, is_open in ways):
            bad.append((line, ways))
    return bad


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@example("B=\nL=($B 4)", None)
@example("A=1\nreadonly B=0\nfor B in 1 2 3; do\nA=0\nbreak\ndone", None)
@given(scripts(), st.sampled_from([None, "", "3", "2"]))
def test_a_value_is_that_of_the_shell(text: str, outside: str | None) -> None:
    assert not wrong(text, outside)
