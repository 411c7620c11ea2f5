"""Compares the acts of a scenario with what the history of a trial says was done, so that no act is left out unseen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainspec_conformance.records import Damaged, Ended, Injected, Probed, Started, Waited
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Act, Damage, Inject, Probe, Scenario, Start, Wait


def left_out(scenario: Scenario, view: View) -> Iterator[str]:
    """Each act that a trial came to, of which the history has no record; the order counts."""
    done = list(_done(view))
    for act in _reached(scenario, view):
        wanted = _wanted(act)
        if not wanted:
            continue
        place = next((number for number, words in enumerate(done) if words in wanted), None)
        if place is None:
            yield f"the scenario has the act {' or '.join(sorted(wanted))}, and the history has no record of it"
        else:
            del done[: place + 1]


def _reached(scenario: Scenario, view: View) -> Sequence[Act]:
    """Acts of a trial that came to its end, else those up to the last thing that was waited for."""
    if [record.reason for _, record in view.of(Ended)][-1:] == ["done"]:
        return scenario.acts
    num_waited = sum(record.until != "target" for _, record in view.of(Waited))
    places = [number for number, act in enumerate(scenario.acts, start=1) if isinstance(act, Wait)]
    return scenario.acts[: places[num_waited - 1]] if 0 < num_waited <= len(places) else ()


def _wanted(act: Act) -> set[str]:
    """Records of which one shows the act; none where another record shows that it came about."""
    match act:
        case Start():
            return {"start"}
        case Inject():
            return {f"inject {act.kind}"}
        case Damage():
            return {f"damage {kind}" for kind in act.kinds}
        case Probe():
            return {f"probe {act.case}"}
        case _:
            return set()


def _done(view: View) -> Iterator[str]:
    for entry in view.entries:
        match entry.record:
            case Started(by_platform=False):
                yield "start"
            case Injected(kind=kind):
                yield f"inject {kind}"
            case Damaged(kind=kind):
                yield f"damage {kind}"
            case Probed(case=case):
                yield f"probe {case}"
