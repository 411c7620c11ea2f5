"""Options of commands are those that the shell itself hands over, or open."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.shell_scripts import commands
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER
from trainspec_validate.interop.readers._shell_choices import ABSENT
from trainspec_validate.interop.readers._shell_commands import read_script
from trainspec_validate.interop.readers._shell_found import PROGRAM, Found
from trainspec_validate.interop.readers._shell_options import Reader, options_of_script

BASH = shutil.which("bash")
PROG = r"""#!/bin/sh
printf '%s\037' "$@"
printf '\0'
"""
"""Prints its words; the first is the number of the place from which it is called."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that prints its words."""
    made = tmp_path_factory.mktemp("programs")
    (made / "prog.py").write_text(PROG)
    (made / "prog.py").chmod(0o755)
    return made


def called(script: str, outside: str | None, folder: Path) -> list[list[str]]:
    """The words of every call of the program; none where the script does not end well in time."""
    environment = {"PATH": f"{folder}:/usr/bin:/bin"} | ({} if outside is None else {"FROM_OUTSIDE": outside})
    command = [BASH or "", "--norc", "--noprofile", "-c", script]
    try:
        ran = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=5, check=False
        )
    except subprocess.TimeoutExpired:
        return []
    return [call.split("\x1f")[:-1] for call in ran.stdout.split("\0")[:-1]]


def options_of(words: Sequence[str]) -> dict[str, str] | None:
    """What a program takes from its words: of an option that is given several times the last.

    None where several words follow an option, which none of its options takes.
    """
    found: dict[str, str] = {}
    name = before = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, sign, value = word[2:].partition("=")
            name = name.replace("-", "_")
            found[name] = value or "True"
            name, before = ("", word) if sign else (name, "")
        elif name:
            found[name], name, before = word, "", word
        elif before:
            return None
    return found


def fits(found: Found, words: dict[str, str]) -> bool:
    """Whether what was read leaves room for the options that a program got."""
    for name in {*found.options, *words} - {PROGRAM, LAUNCHER}:
        values = [option.value for option in found.options.get(name, [])]
        texts = {text for value in values for text in (("", "True") if value is None else (str(value),))}
        if any("$" in text or "`" in text for text in texts) or (not values and found.outside):
            continue
        if name not in words and ABSENT not in values:
            return False
        if name in words and words[name] not in texts:
            return False
    return True


def wrong(text: str, outside: str | None, folder: Path) -> list[tuple[list[str], object]]:
    """Calls of the program that differ from what was read."""
    script = read_script(f"{text}\n")
    reader = Reader(script)
    read: dict[str, list[Found]] = {}
    for command in script.commands:
        texts = [word.text for word in command]
        if "prog.py" in texts and len(texts) > texts.index("prog.py") + 1:
            read.setdefault(texts[texts.index("prog.py") + 1], []).append(reader.read(command))
    bad = list[tuple[list[str], object]]()
    for place, *words in called(text, outside, folder):
        pairs = any(word[:2] == "--" and " " in word.partition("=")[0] for word in words)
        got = None if pairs else options_of(words)
        if got is None:
            continue  # the program refuses them
        ways = read.get(place, [])
        if ways and not any(fits(found, got) for found in ways):
            bad.append((words, [found.options for found in ways]))
    return bad


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(text=commands(), outside=st.sampled_from([None, "", "3"]))
def test_options_are_those_of_the_shell(text: str, outside: str | None, folder: Path) -> None:
    assert not wrong(text, outside, folder)


def settings_of(script: str) -> dict[str, str]:
    found = options_of_script(f"{script}\n", re.compile("--"), 1)
    assert found is not None
    return {name: str(value) for name, value in found.values.items() if name[0] != "$"}


TRAIN = "python pretrain_gpt.py --num-layers 2 --lr 3"


@pytest.mark.parametrize(
    ("script", "rate"),
    [
        (f'f() {{ {TRAIN} "$@"; }}\nf --lr 4', "4"),
        (f'f() {{ {TRAIN} "$@"; }}\nf', "3"),
        (f"f() {{ shift; {TRAIN} $*; }}\nf 1 --lr 4", "4"),
        (f'f() {{ {TRAIN} "${{@:2}}"; }}\nf 1 --lr 4', "4"),
        (f'f() {{ "$@"; }}\nf {TRAIN}', "3"),
        (f'set -- --lr 4\n{TRAIN} "$@"', "4"),
        (f"E='--LR 4'\n{TRAIN} ${{E,,}}", "4"),
        (f"{TRAIN} --l{{r=4,s=5}}", "4"),
        (f"{TRAIN} --lr={{5,6}}", "6"),
        (f"{TRAIN} $'--lr=4'", "4"),
        (f"{TRAIN} `# the rate` --tp 2", "3"),
    ],
)
def test_words_that_are_handed_over_count(script: str, rate: str) -> None:
    assert settings_of(script)["lr"] == rate


@pytest.mark.parametrize(
    "script",
    [
        f'f() {{ {TRAIN} "$@"; }}',
        f"cat words | xargs {TRAIN}",
        f"cat words | xargs -I% {TRAIN} %",
        f"find . -name '*.txt' -exec {TRAIN} {{}} +",
        f"parallel {TRAIN} ::: --lr=4 --lr=5",
        f"E=X--lr=4\n{TRAIN} ${{E#X}}",
        f"E=lr=4\n{TRAIN} ${{E/lr/--lr}}",
        f"E=--lr=4\nV=E\n{TRAIN} ${{!V}}",
        f"{TRAIN} $(echo --lr 4)",
        f"{TRAIN} $'\\x2d-lr=4'",
        f"{TRAIN} --lr={{1..03}}",
        f'W=(--x "--lr=4 --lr 7")\n{TRAIN} --tp "${{W[1]}}"',
        f'W=(--x "1 --lr 7")\n{TRAIN} --tp ${{W[1]}}',
        f"V=E\nE='--LR 4'\n{TRAIN} --tp= ${{!V}}",
    ],
)
def test_words_that_are_not_known_may_give_an_option_again(script: str) -> None:
    assert settings_of(script)["lr"] == "3 (line 1) or what the caller or the environment sets".replace(
        "line 1", f"line {script[: script.index(TRAIN)].count(chr(10)) + 1}"
    )


@pytest.mark.parametrize(
    ("script", "rate"),
    [
        (f'ARGS=(--tp 2 --name "a --lr 5")\n{TRAIN} "${{ARGS[@]}}"', "3"),
        (f"ARGS=(--tp 2 '--name=a --lr 5')\n{TRAIN} \"${{ARGS[@]}}\"", "3"),
        (f'ARGS=(--tp 2 --name "a --lr 5")\n{TRAIN} ${{ARGS[@]}}', "5"),
        (f'ARGS=(--name "a --lr 5")\nf() {{ {TRAIN} "$@"; }}\nf "${{ARGS[@]}}"', "3"),
        (f'set -- --name "a --lr 5"\n{TRAIN} "$@"', "3"),
        (f'{TRAIN} --name "$A --lr 5"', "3"),
        (f'E=1\nif [ $B ]; then E=2; fi\n{TRAIN} --lr "x $E" --tp 2', "x 2 (line 2) or x 1 (line 1)"),
        (f'E=\nif [ $B ]; then E=2; fi\n{TRAIN} --lr "a --tp 3" $E', "a --tp 3"),
        (f'ARGS=("--tp 2" "--lr 5")\n{TRAIN} ${{ARGS[*]}}', "5"),
        (f'E="--tp=5 --lr 6"\nif [ $B ]; then E=--tp=4; fi\n{TRAIN} "$E"', "3"),
        (f'ARGS=(--lr "${{@: -1}}" --tp 2)\n{TRAIN} "${{ARGS[@]}}"', "${@: -1}"),
        (f'ARGS=(--lr "${{A: -1:1}}")\n{TRAIN} "${{ARGS[@]}}"', "${A: -1:1}"),
        (f'A=B\nARGS=(--lr ${{!A:-4 --tp 5}})\n{TRAIN} "${{ARGS[@]}}"', "${!A:-4 --tp 5}"),
        (f'ARGS=(--lr "$(echo ")" --lr 5)")\n{TRAIN} "${{ARGS[@]}}"', '$(echo ")" --lr 5)'),
    ],
)
def test_a_word_with_blanks_inside_is_one_word(script: str, rate: str) -> None:
    assert settings_of(script)["lr"].startswith(rate)


def test_an_empty_word_is_the_value_of_its_option() -> None:
    assert settings_of(f'{TRAIN} --name "" $(echo 8)')["name"].startswith("null")


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (f'f() {{ {TRAIN} "$@"; }}\nf --name "" --tp 5', "None"),
        (f"set -- --name '' --tp 4\n{TRAIN} \"$@\"", "None"),
        (f'W=(--name "" --tp 4)\n{TRAIN} "${{W[@]}}"', "None"),
        (f"W=(--name '' --tp 4)\n{TRAIN} ${{W[@]}}", "True"),
        (f'E=\nif [ $B ]; then E=--lr=1; fi\n{TRAIN} --name "$E"', "null"),
        (f'W=(--x 1)\nfor W in a b; do {TRAIN} --name "${{W[*]}}"; done', "${W[*]}"),
        (f'f() {{ for W in a b; do {TRAIN} "$@"; shift; done; }}\nf "" --name x', "x"),
        (f"E=\nif [ $B ]; then E=--lr=1; fi\n{TRAIN} --name $E", "True"),
    ],
)
def test_an_empty_word_stays_a_word_where_it_is_handed_over(script: str, name: str) -> None:
    found = settings_of(script)["name"]
    assert name in found
    assert found == name or "if [" in script or "shift" in script


def test_a_list_of_values_ends_with_the_words_of_a_command() -> None:
    found = settings_of("python pretrain_gpt.py --num-layers 2 --lr 3 --sizes 1 2 4 $(seq 8 8 64)")
    assert (found["num_layers"], found["lr"]) == ("2", "3")


def test_words_after_unknown_ones_are_certain() -> None:
    assert settings_of(f"{TRAIN} $(cat options) --lr 5")["lr"] == "5"


COUNT = "N=$(($(ssh host nvidia-smi --lr=9 --format=csv | wc -l) - 2))"


def test_options_of_a_command_that_prints_a_value_are_its_own() -> None:
    found = settings_of(f'{COUNT}\nif [ "$N" -lt 8 ]; then N=8; fi\n{TRAIN} --tp $N')
    assert (found["num_layers"], found["lr"]) == ("2", "3")
    assert found["tp"] == "8 (line 2) or what the caller or the environment sets"


def test_a_choice_for_a_value_may_give_options_again() -> None:
    found = settings_of(f"N=8\nif [ $A -lt 8 ]; then N='8 --lr 4'; fi\n{TRAIN} --tp=$N")
    assert found["lr"] == "3 (line 3) or what the caller or the environment sets"


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (("8", "8 --lr 4"), "8"),
        (("9", "8 --lr 4"), "8 (line 3) or 9 (line 3)"),
        (("--lr 5", "8 --lr 4"), "8 (line 3) or what the caller or the environment sets"),
        (("--lr 5", "--lr 4"), "True"),
    ],
)
def test_a_choice_of_options_may_begin_with_the_value_of_the_option_before(values: tuple[str, str], read: str) -> None:
    found = settings_of(f"N='{values[0]}'\nif [ $A -lt 8 ]; then N='{values[1]}'; fi\n{TRAIN} --tp $N")
    assert found["tp"] == read
