"""Holds a search to what its user has fixed: degrees of parallelism, their limits and the split of layers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from trainspec_validate.performance.costs.layout import Layout

_LIMIT = "max_"


@dataclass(frozen=True, slots=True)
class Constraints:
    """Degrees that a layout has, and limits that it keeps; None leaves the planner free.

    Raises:
        ValueError: a degree or a limit is below 1, or a degree is above its limit.
    """

    tensor: int | None = None
    context: int | None = None
    pipeline: int | None = None
    expert: int | None = None
    micro_sequences: int | None = None
    """Sequences of a micro-batch."""
    max_tensor: int | None = None
    max_context: int | None = None
    max_pipeline: int | None = None
    max_expert: int | None = None
    max_micro_sequences: int | None = None
    even_stages: bool = False
    """Every chunk of a pipeline has the same number of layers."""

    def __post_init__(self) -> None:
        for name, value in self.asked.items():
            if value < 1:
                raise ValueError(f"{value} is no {name}; write 1 or more")
            least = self.asked.get(name.removeprefix(_LIMIT)) if name.startswith(_LIMIT) else None
            if least is not None and least > value:
                raise ValueError(f"{least} {name.removeprefix(_LIMIT)} ranks are asked for, and at most {value}")

    @property
    def asked(self) -> dict[str, int]:
        """Every degree and limit that is set, by its name."""
        names = (field.name for field in fields(self) if field.name != "even_stages")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def words(self) -> str:
        """The constraints as options of the command line; empty where there are none."""
        options = [f"--{name.replace('_', '-')} {value}" for name, value in self.asked.items()]
        return " ".join([*options, *(["--even-stages"] if self.even_stages else [])])

    def allow(self, layout: Layout) -> bool:
        """Whether a layout keeps to them.

        >>> Constraints(tensor=8).allow(Layout(data=2, tensor=8)), Constraints(max_tensor=4).allow(Layout(tensor=8))
        (True, False)
        """
        if self.even_stages and layout.stage_layers:
            return False
        for name, value in self.asked.items():
            degree = getattr(layout, name.removeprefix(_LIMIT))
            if degree > value or (degree < value and not name.startswith(_LIMIT)):
                return False
        return True


FREE = Constraints()
"""No constraint."""
