"""The only place that writes figures and comments into starter documents."""

from __future__ import annotations

from trainspec_validate.schema import schema_file

SITE = "https://trainspec.org/schemas/v1"


def head(kind: str, title: str) -> str:
    """The first lines: what editors read, what the comments mean, and what selects the schema."""
    return f"""\
# yaml-language-server: $schema={SITE}/{schema_file(kind)}
# {title}
# Comments tell where a figure comes from. catalog: published, with source in `trainspec catalog`.
# derived: follows from other figures here. replace: a customary value; put in your own.
apiVersion: trainspec/v1
kind: {kind}
"""


def figure(value: float) -> str:
    """A number that a person can read: whole and small as it is, large in powers of a thousand."""
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    if abs(value) < 1e6:
        return f"{value:.4g}"
    exponent = 3
    while abs(value) >= 1000 * 10**exponent:
        exponent += 3
    return f"{value / 10**exponent:.6g}e{exponent}"


def body(lines: list[tuple[str, str]]) -> str:
    """Lines with their comments, the comments of neighbouring lines one below the other."""
    width = min(72, max((len(text) for text, comment in lines if comment), default=0))
    written = (f"{text:<{width}}  # {comment}".rstrip() if comment else text for text, comment in lines)
    return "".join(f"{line}\n" for line in written)
