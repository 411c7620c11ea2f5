"""Makes shell scripts that assign variables in every way that bash has."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = ("A", "B", "C", "FROM_OUTSIDE")


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
        *(shape.format(name=name, number=number) for shape in WRITTEN),
    )
    return draw(st.sampled_from(shapes))


WRITTEN = (
    "${{L[1]}}",
    "${{L[@]:0:2}}",
    "${{L[@]/4/8}}",
    "${{#L[@]}}",
    "${{L[*]}}",
    "$L",
    "${{{name}^^}}",
    "${{{name}/2/4}}",
    "${{{name}#2}}",
    "${{#{name}}}",
    "${{{name}:0:1}}",
    "${{!V}}",
    "${{{name}:?}}",
    "${{{name}?}}",
    "${{{name}@Q}}",
    "$(({name} = {number}))",
    "$(({name}++))",
    "$(({name} > 2 ? 4 : 8))",
    "$(echo ${name} 1)",
    "$1",
    "$#",
    "$@",
    "$({name}={number}; echo ${name})",
    "{number},{number}",
    "$(({name} % 3 == {number}))",
)

TESTS = (
    '[ -z "${0}" ]',
    '[ -n "${0}" ]',
    '[ "${0}" = "2" ]',
    "[[ ${0} == 3* ]]",
    "(( {0} > 2 ))",
    '[ "${0}" -ge 3 ]',
    "true",
    "! true",
    "(( {0} = 3 ))",
    "(( {0}++ ))",
    "let {0}=2",
    "read -r {0} <<< 4",
    "( {0}=7 )",
    "[[ ${0} -lt 3 ]]",
    "[[ -z ${0} && -n $A ]]",
    "[[ ${0} = 2 || $A = 3 ]]",
    '[ "${0}" = 2 -o "$A" = 3 ]',
    "! {{ {0}=2; }}",
)

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

SUBSHELLS = (
    "(\n{body}\n)",
    "{{ {body}\n}} | cat",
    "{{ {body}\n}} &\nwait",
    "true | {{ {body}\n}}",
    "{name}={number} &\nwait",
    "{name}={number} | cat",
    ': "$({name}={number})"',
    "cat <({name}={number})",
    "echo 4 | read {name}",
    "echo 4 | while read -r {name}; do\n{body}\ndone",
    "while read -r {name}; do\n{body}\ndone < <(echo 4)",
    "coproc {{ {body}\n}}\nwait",
    "( {body}\n) && {name}={number}",
    "sub() (\n{body}\n)\nsub",
    "({name}=5) || {name}=6",
    "{name}={number} && B=2 &\nwait",
    "{{ {body}\n}} &> /dev/null",
    "{name}={number} |& cat",
    "time {{ {body}\n}}",
    "( {name}={number}; exit 3 )",
    "( false ) || {name}={number}",
    "{{ {body}\n}} > /dev/null 2>&1",
    "`{name}={number}`",
)
ARITHMETIC = (
    "declare -i {name}\n{name}+={number}",
    "declare -i {name}={number}+1",
    "set_i() {{ local -i {name}={number}+1; }}\nset_i",
    "let {name}*=2",
    "let '{name} = B + {number}' C=2",
    "(({name}*=2))",
    "(( {name}++ ))",
    "(( {name} = {number}, B = 2 ))",
    ": $(({name} = {number}))",
    ": $(({name}++))",
    "for (({name}=0; {name}<3; {name}++)); do\n{body}\ndone",
    "[[ 1 -eq $((B=4)) ]]",
    ": ${{L[{name}={number}]}}",
    "declare -u {name}\n{name}=a{number}",
    "declare -i B=${name}",
    "(( {name} > 2 ? (B={number}) : 0 ))",
    "while (( {name} < 3 )); do {name}=$(({name} + 1)); done",
    "(( {name}<<=1 ))",
)
ARRAYS = (
    'L=(1 2 "{text}")',
    "L+=({number})",
    "L[1]={number}",
    "L[1]+=2",
    "unset 'L[1]'",
    "unset L[0]",
    "L=([2]=4 [0]={number})",
    "declare -a L=(4 5)",
    "declare -A M=([x]={number})\n{name}=${{M[x]}}",
    "{name}[1]={number}",
    "{name}+=({number})",
    "read -a L <<< '1 {number}'",
    "mapfile -t L <<< '1 {number}'",
    'for {name} in "${{L[@]}}"; do\n{body}\ndone',
    'set -- "${{L[@]}}"\n{name}=$1',
    "L={number}",
    "L=(2 4 {number} 8)",
    "L[0]={number}",
    "L=()",
    "unset L",
    "L=({{1..3}})",
    'L=("1 2" 3)\nfor {name} in "${{L[@]}}"; do :; done',
    "L=($B 4)",
    'L=("${{L[@]}}" 5)',
    "readarray L < <(echo 5)",
    "L[{name}]=4",
    "declare -A L\nL[x]=4\nL[y]=5",
    "local_l() {{ local L=(7 8); {body}\n}}\nlocal_l",
    "export L={number}",
)
SPLITTING = (
    "IFS=,",
    "unset IFS",
    "IFS=$B",
    'IFS=, read -r {name} B <<< "1,2"',
    "for {name} in 1,2 ${name}; do\n{body}\ndone",
    "OLD=$IFS\nIFS=,\nIFS=$OLD",
    "X=1,2\nL=($X)\nIFS=,\nL=($X)",
    'X="1,2"\nIFS=,\nfor {name} in $X; do :; done',
    'for {name} in "1 2"; do :; done',
    "for {name} in {{1..3}}; do\n{body}\ndone",
    "for {name} in a{{1,2}}; do :; done",
    "for {name} in $(echo 1 2); do\n{body}\ndone",
    "for {name} in *; do :; done",
    "X='1 2'\nfor {name} in $X; do :; done",
    'f_s() {{ local IFS=,; {name}="${{L[*]}}"; }}\nf_s',
    "for {name}; do :; done",
    "X='1 2'\nfor {name} in \"$X\"; do :; done",
)
BUILT_INS = (
    "readonly {name}={number}",
    "readonly {name}\n{name}=8",
    "declare -r {name}={number}\n{name}=7",
    "printf -v {name} %s {number}",
    "eval {name}={number}",
    'eval "{name}=\\$B"',
    'eval "{name}=$B; B=2"',
    'set_v() {{ eval "$1={number}"; }}\nset_v {name}',
    "set_n() {{ local -n ref=$1; ref={number}; }}\nset_n {name}",
    "declare -n ref={name}\nref={number}",
    "declare -n ref={name}\n{name}=3\nB=$ref",
    "set_g() {{ declare -g {name}={number}; }}\nset_g",
    'declare "{name}={number}"',
    "set_l() {{ local {name}=1; declare -g {name}={number}; }}\nset_l",
    'export "{name}={number}"',
    "V={name}",
    "export -n {name}={number}",
    'V={name}\ndeclare "$V={number}"',
    "V={name}\nexport $V={number}",
    "V={name}\nread -r $V <<< 4",
    "V={name}\nunset $V",
    "V={name}\nprintf -v $V 5",
    "export -n {name}",
    "export {name}",
    "declare {name}",
    "typeset {name}",
    "unset -v {name}",
    'read -r {name} B <<< "{number} 4"',
    "read {name} < <(echo 4)",
    "read <<< 4\n{name}=$REPLY",
    'getopts "a:" {name} -a {number}',
    "OPTIND=1\nwhile getopts 'a:' V -a {number}; do {name}=$OPTARG; done",
    "set -- 4 5 {number}\n{name}=$1\nshift\nB=$1",
    "set -- $B 3\n{name}=$#",
    "set {name}=5 4",
    "set_s() {{ shift; {name}=$1; }}\nset_s 1 {number}",
    "set -e",
    "set -u\nset +u",
    "trap '{name}={number}' DEBUG",
    "trap '{name}={number}' EXIT",
    "trap '{name}={number}' ERR\nfalse",
    "exec 3>&1",
    "exec {{{name}}}>/dev/null",
    "command export {name}={number}",
    "builtin export {name}={number}",
    "\\export {name}={number}",
    "builtin declare {name}={number}",
    "command eval {name}={number}",
    "command read {name} <<< 4",
    "command unset {name}",
    "source ./absent.sh",
    ". ./absent.sh {name}=4",
    "env {name}={number} true",
    "{name}={number} export B=${name}",
    "{name}={number} eval 'B=${name}'",
    "{name}={number} :",
    "{name}={number} read B <<< 3",
    "W='{name}={number}'\nexport $W",
    "command -v {name}",
    "wait -n -p {name}",
    "[[ a2 =~ ([0-9]) ]] && {name}=${{BASH_REMATCH[1]}}",
    "{name}={number} B={number}",
    "E='export {name}={number}'\n$E",
    "E='{name}={number}'\neval $E",
    "D=declare\n$D {name}={number}",
    "set_d() {{ declare {name}=7; }}\nset_d",
    "unset -f prog2",
    "shopt -s lastpipe\necho 4 | read {name}",
    "alias q={name}=4\nshopt -s expand_aliases\nq",
    "set -- 1 2\n: ${{1}}",
    "{name}=$'4'",
    '{name}=$"4"',
    "{name}=`echo {number}`",
    "LINENO={number}\n{name}=$LINENO",
    "SECONDS={number}\n{name}=$SECONDS",
    "{name}=(3)",
    "unset {name}\n{name}=4",
    "set_u() {{ local {name}=4; unset {name}; {name}=5; }}\nset_u",
    "let {name}",
    "V=; {name}={number}; B=${{!V}}; {name}=7",
    "fn() {{ {name}=1; : ${{!V}}; {name}={number}; }}\nfn",
    "readonly {name}; {name}={number}; B={number}",
    "fn() {{ B=1; {name}={number}; C=3; }}\nreadonly {name}\nfn; B=2",
    "( : ${{{name}:?}}; B=2 )",
    "if {test}; then : ${{{name}:?}}; {name}=3; fi",
    "unset {name}\n( set -u; B=${name} )",
    "fn() {{ B=$2; }}\n( set -u; fn 1 )",
    "fn() {{ {test} && return; : ${{{name}?}}; {name}={number}; }}\nfn",
    "for V in ${{{name}:?}} 2; do {name}=$V; :; done",
    "case ${{{name}:?}} in\n2) B=3 ;;\nesac",
)
CONTROL = (
    "for {name} in 1 2 3; do\n{body}\nbreak\nB=7\ndone",
    "for {name} in 1 2 3; do\nif {test}; then {name}=5; break; fi\n{body}\ndone",
    "for V in 1 2 3; do\n{test} && continue\n{name}=$V\ndone",
    "for V in 1 2 3; do\n{name}+=$V\n:\ndone",
    "ret() {{ if {test}; then {name}={number}; return; fi; {name}=8; }}\nret",
    "ret() {{ {body}\nreturn\n{name}=8\n}}\nret",
    'case "${name}" in\n2) B=3 ;&\n3) {body} ;;\n*) B=4 ;;&\n*) {name}=8 ;;\nesac',
    "until {test}; do {name}=2; break; done",
    "if {test}; then fn() {{ {name}=1; }}; else fn() {{ {name}=2; }}; fi\nfn",
    "while {test}; do {body}\nbreak\ndone",
    "fn() {{ {body}\n}}\nfor V in 1 2; do fn; done",
    "fn() {{ {name}=4; }}\nF=fn\n$F",
    "fn() {{ {name}=$1; }}\nfn $B",
    "for V in 1 2; do for {name} in 3 4; do\n{test} && break 2\nB=$V\ndone; done",
    "fn() {{ {body}\n}}\nif fn; then {name}=2; fi",
    "if {name}={number} | cat; then {name}=4; fi",
    "if {name}=3 && {test}; then B=2; fi",
    "! {name}={number}",
    "{{ {body}\n}}",
    "rec() {{ if [ $1 -lt 3 ]; then rec $(($1 + 1)); fi; {name}=$1; }}\nrec 1",
    "export {name}=3 B=${name}",
    "{name}=3 B=${name}",
    'prog {place} "=${name}"',
    '( {name}={number}; prog {place} "=${name}" )',
    "for {name} in 1 2; do prog {place} =${name}; done",
    'fn() {{ prog {place} "=$1" ; }}\nfn "{text}"',
    "{name}={number} eval 'prog {place} \"=${name}\"'",
    "fn() {{ exit_not; {body}\n}}\nfn",
)
EVERY = (*SUBSHELLS, *ARITHMETIC, *ARRAYS, *SPLITTING, *BUILT_INS, *CONTROL)


@st.composite
def lines(draw: st.DrawFn, depth: int = 2) -> str:
    shape = draw(st.sampled_from(draw(st.sampled_from([SHAPES, EVERY])))) if depth else SHAPES[0]
    while "{body}" in shape:
        shape = shape.replace("{body}", draw(lines(depth - 1)).replace("{", "{{").replace("}", "}}"), 1)
    name, tested = draw(st.sampled_from(NAMES[:3])), draw(st.sampled_from(NAMES))
    test = draw(st.sampled_from(TESTS)).format(tested) if "{test}" in shape else ""
    text = draw(texts()) if "{text}" in shape else ""
    place = draw(st.integers(10, 10**6))
    return shape.format(name=name, text=text, test=test, number=draw(st.integers(0, 9)), place=place)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    first = [f"{name}={draw(st.integers(0, 4))}" for name in draw(st.sampled_from(["", "AB", "ABC"]))]
    first += draw(st.sampled_from([[], ["L=(2 4 8)"]]))
    first += draw(st.sampled_from([["V=A"], ["V=A"], [], ["V="], ["unset B"], ["set -u", "unset C"]]))
    return "\n".join([*first, *draw(st.lists(lines(), min_size=1, max_size=6))])


OPTION_LISTS = (
    "--LR 4",
    "--lr=4",
    "lr=4",
    "X--lr=4",
    "--tp=5 --lr 6",
    "7",
    "",
    "--lr=4X",
    "L=R",
)
BLANKS_INSIDE = ("W=(--x '')", "W=(--x 'b --lr 7')", 'W=(--x "$E --lr 7")', "W=(--lr ${@: -1} '--x=a --lr 2')")
OPTION_WORDS = (
    *(
        '"$@"',
        "$@",
        "$*",
        "${{@:2}}",
        '"${{@:1:1}}"',
        "${{@}}",
        "${{@: -1}}",
        "${{@/3/--lr=3}}",
        "${{*,,}}",
        "${{@:-x}}",
    ),
    *("--lr {number}", "--lr={number}", "--tp $A", "--lr ${{B:-5}}", "$FROM_OUTSIDE", "$E", "${{B:+--lr=5}}"),
    *("${{E,,}}", "${{E^^}}", "${{E@Q}}", "${{E#X}}", "${{E%X}}", "${{E/lr/--lr}}", "${{E//R/}}", "${{E:0:6}}"),
    *(
        "${{L[@]}}",
        "${{L[0]}}",
        "${{L[@]:1}}",
        "${{L[@],,}}",
        "${{!V}}",
        "${{!A}}",
        "${{B:?}}",
        "${{L[@]/#/--lr=}}",
        "${{L[*]}}",
        "${{L[@]@Q}}",
    ),
    *(
        "--{{lr,tp}}={number}",
        "--lr={{1,2}}",
        "--{{l,t}}{{r,p}}={number}",
        "{{--lr=4,}}",
        "--lr={{1..3}}",
        "--{{lr,tp}}={{$A,$B}}",
    ),
    *(
        "--{{lr=1,tp}}{{,=2}}",
        "'--{{lr,tp}}=1'",
        "--lr={{1}}",
        "--lr={{1..03}}",
        '--lr="{{1,2}}"',
        "--l{{r=1,r=$E}}",
        "--{{lr,{{tp,x}}}}=8",
    ),
    *(
        "--${{O,,}}={number}",
        "--${{O}}={number}",
        "$(echo --lr 4)",
        "`# remark`",
        "`echo --tp 4`",
        "$'--lr=4'",
        '$"--tp=4"',
        "$'\\x2d-lr=9'",
    ),
    *("--lr=$1", "--tp=${{2:-6}}", "$2", "--lr=$#", "${{O@L}}"),
    *('--tp "${{@: -1}}"', '"${{E:-7 --lr 8}}"', "--lr ${{B:-5 --tp 4}}", '--tp "$(echo 3 --lr 4)"', '"${{@: 2}}"'),
    *('--x "a --lr {number}"', "--x='a --lr {number}'", '--x "$A --lr {number}"', '"${{W[@]}}"', "${{W[@]}}"),
    *('--x "${{W[*]}}"', '"${{W[@]:1}}"', '--tp "${{W[1]}}"', '--x "$E"'),
)
"""Words that are options, that make them, or that hold them."""
CALLS = (
    *(["prog.py {place} {words}"] * 2),
    *(["fn() {{ prog.py {place} {words}; }}\nfn {args}"] * 3),
    "fn() {{ shift; prog.py {place} {words}; }}\nfn {args}",
    "fn() {{ local A=$1; shift 2; prog.py {place} {words}; }}\nfn x {args}",
    "fn() {{ set -- --tp 9 {args}; prog.py {place} {words}; }}\nfn --lr 8",
    'inner() {{ prog.py {place} {words}; }}\nfn() {{ inner "$@" --tp 7; }}\nfn {args}',
    'inner() {{ prog.py {place} {words}; }}\nfn() {{ inner "${{@:2}}" $1; }}\nfn {args}',
    'fn() {{ ARGS=("$@"); prog.py {place} {words} "${{ARGS[@]}}"; }}\nfn {args}',
    "fn() {{ local ARGS=$*; prog.py {place} {words} $ARGS; }}\nfn {args}",
    'fn() {{ if {test}; then set -- --lr 1 "$@"; fi; prog.py {place} {words}; }}\nfn {args}',
    'fn() {{ "$@"; }}\nfn prog.py {place} {words}',
    "fn() {{ while [ $# -gt 1 ]; do shift; done; prog.py {place} {words}; }}\nfn {args}",
    'fn() {{ for W in "$@"; do prog.py {place} {words} $W; done; }}\nfn {args}',
    "fn() {{ for W in a b; do prog.py {place} {words}; shift; done; }}\nfn {args}",
    "fn() {{ prog.py {place} {words}; }}\nF=fn\n$F {args}\nfn --tp 3",
    "fn() {{ prog.py {place} {words}; }}\nCMD='fn {args}'\n$CMD",
    "fn() {{ prog.py {place} {words}; }}\neval 'fn {args}'",
    'fn() {{ IFS=,; prog.py {place} {words} "$*"; }}\nfn {args}',
    "set -- {args}\nprog.py {place} {words}",
    'set -- {args}\nset -- "$@" --tp 8\nprog.py {place} {words}',
    "set -- {args}\nshift\nprog.py {place} {words}",
    "if {test}; then set -- {args}; fi\nprog.py {place} {words}",
    "echo {args} | xargs prog.py {place} {words}",
    "echo {args} | xargs -n 1 prog.py {place} {words}",
    "echo {number} | xargs -I % prog.py {place} --lr % {words}",
    "echo {number} | xargs -I{{}} prog.py {place} {words} --tp={{}}",
    "echo --lr=8 | xargs -I{{}} prog.py {place} {words} {{}}",
    "find . -maxdepth 0 -exec prog.py {place} {words} --lr 3 {{}} +",
    'L=({args})\nfn() {{ prog.py {place} {words}; }}\nfn "${{L[@]}}"',
    'L=(prog.py {place} {words})\n"${{L[@]}}"',
    'L=({words})\nL+=({args})\nprog.py {place} "${{L[@]}}"',
    "CMD='prog.py {place}'\n$CMD {words}",
    "P=({{prog.py,}})\n$P {place} {words}",
)
"""Ways to a command with options."""


@st.composite
def commands(draw: st.DrawFn) -> str:
    """A script that calls `prog` with options."""
    name, number = draw(st.sampled_from(NAMES)), draw(st.integers(0, 9))
    first = [f"{each}={draw(st.integers(0, 4))}" for each in draw(st.sampled_from(["", "A", "AB"]))]
    listed = draw(st.sampled_from(OPTION_LISTS))
    first += ["O=LR", "V=E", f"E='{listed}'", draw(st.sampled_from([f"L=({listed})", "L=(lr --lr=2 3)"]))]
    first.append(draw(st.sampled_from(BLANKS_INSIDE)))
    more = draw(
        st.sampled_from(
            [[], ["if [ $B ]; then E=--lr=1; fi"], ["if [ $B ]; then O=TP; fi"], ["if [ $B ]; then E=; fi"]]
        )
    )
    words = draw(st.lists(st.sampled_from(OPTION_WORDS), min_size=1, max_size=4))
    start = draw(st.sampled_from(["--num-layers 2 --lr 3", "--num_layers 2 --lr=3 --tp 1", "--num-layers=2"]))
    given = draw(
        st.lists(
            st.sampled_from(("--lr 4", "--tp=2", "3", "$A", "$E", "--lr=5", "$FROM_OUTSIDE", '""', '--x ""', '"$E"')),
            max_size=3,
        )
    )
    call = draw(st.sampled_from(CALLS)).format(
        place=draw(st.integers(10, 10**6)),
        words=" ".join([start, *(word.format(number=number) for word in words)]),
        args=" ".join(given),
        number=number,
        test=draw(st.sampled_from(TESTS)).format(name),
    )
    return "\n".join([*first, *more, call])
