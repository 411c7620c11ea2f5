"""Writes the page of scenarios: which level each belongs to, what it needs of a stack, and how often it is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from committed_reports import table
from msgspec import to_builtins
from trainspec_conformance.criteria import all_checks
from trainspec_conformance.drawing import num_kinds
from trainspec_conformance.formats.reasons import ACTS
from trainspec_conformance.judging import REPORTS, judge_acts, needs
from trainspec_conformance.reporting import most_ranks
from trainspec_conformance.suite import damages_pointer

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.conformance import Capability
from trainspec_validate.documents.types.scenario import Criterion, Scenario, Trials
from trainspec_validate.performance.costs.detection import trials_needed

PAGE = "reference/scenarios.md"
"""Its place in the site."""
_LEVELS = ("observable", "recoverable", "efficient")
_TIERS = {"core": "core", "extended": "full"}
"""The profile that a tier comes with."""
_OF_ALL = "trace"
_MEANINGS = {
    "trace": "writes the [trace](../v1/14-conformance.md#the-trace): one file of JSON Lines for each process",
    "stream": (
        "writes a [metric stream](../v1/09-telemetry.md) into `stream_directory`, with the [required "
        "metrics](../v1/09-expected-metrics.md#TS-TEL-004) of the scopes job and rank"
    ),
    "checkpoints": "saves checkpoints into `checkpoint_directory` at the interval of the task",
    "resume": "continues from the newest complete checkpoint when `resume` of the task is true",
    "in-job-recovery": "begins the next attempt in processes that run already: ranks that survive a fault do not end",
    "grace-signal": "saves and ends after SIGTERM to its command, within `claims.grace_seconds`",
    "reshard": "resumes from a checkpoint with another number of ranks than the one that wrote it",
    "sample-ids": "names the samples of each step in the trace, as `sample_ids`",
    "state-digest": (
        "puts a digest of model and optimizer state into records `save` and `restore`: equal for equal values, "
        "different for different ones"
    ),
    "deterministic": "repeats losses bitwise in the same layout",
    "manifest": "writes a `CheckpointManifest` into each checkpoint",
    "asynchronous-saves": "continues to train while a checkpoint is written, when the task has `asynchronous_saves`",
    "save-stages": "writes a record `save` at begin, snapshot, written and committed, when each is reached",
    "fault-reports": (
        "writes a record `fault` for each fault that it detects, with its kind and, where known, its rank; "
        "and an event in its stream, where it writes one"
    ),
    "straggler-reports": (
        "writes a record `fault` of kind `slow` with the rank, where one rank is at half the speed of the others"
    ),
    "replica-checks": (
        "compares its data-parallel replicas every `claims.replica_check_steps`, and reports a difference as "
        "`corruption`"
    ),
    "loss-scale": "scales the loss, and writes the scale of each step into the trace",
    "batch-ramp": "changes the batch at the steps of `job.batch_ramp`",
    "evaluation": "evaluates every `job.evaluation_interval_steps`",
    "gradient-noise": (
        "reports `train.gradient.signal` and `train.gradient.variance`, averaged with the half-life of the task"
    ),
    "utilisation": "reports model FLOPs utilization against `job.peak_flops_per_second`",
    "several-hosts": (
        "spreads ranks in equal parts over `job.num_hosts` names, writes them as `host` into records `process`, "
        "and recovers where all ranks of one name are killed; one machine is enough"
    ),
    "separate-hosts": (
        "starts its ranks with the words `enter` of the hosts that the task names, which have networks of their own"
    ),
    "planted-exception": "raises an exception at the step that the task names, in each attempt if asked",
    "planted-nan-gradient": "makes a gradient of one rank NaN at the steps that the task names",
    "planted-inf-gradient": "makes a gradient of one rank infinite at the steps that the task names",
    "planted-parameter-flip": "flips a bit of a parameter on one replica at the step that the task names",
    "planted-livelock": "lets the training thread of one rank spin without end, while its other threads continue",
    "planted-slow-rank": "delays one rank at the steps that the task names",
    "planted-data-delay": "delays the input at the steps that the task names",
    "sequential-order": "reads samples in the order of their numbers, when `job.sample_order` is `sequential`",
    "learning-rate-factor": "multiplies the learning rate by `job.learning_rate_factor`",
    "resealed-checkpoints": (
        "keeps all values in formats that the suite rewrites, and no digest of them but in [manifest and "
        "containers](../guide/conformance.md#changes-that-losses-must-follow)"
    ),
    "probe-noise": (
        "is given gradients of steps and groups, with group sizes, loss scale and clipping; gives signal and "
        "noise of each step, and their averages"
    ),
    "probe-accumulate": (
        "is given sample ids and several divisions over ranks and micro-batches; gives gradient and loss of the "
        "batch for each division"
    ),
    "probe-compress": (
        "is given gradients of steps and a method, `top-k` or `fp16`; gives what is sent, the residual, and the "
        "bytes on the wire"
    ),
    "probe-converge": "is given a method, `top-k`, and seeds; gives the losses of its own job, dense and compressed",
    "probe-reduce": "is given gradients of ranks and micro-batches, and the formats of the sum; gives the sum",
    "probe-quantise": (
        "is given values and a format, BF16 with stochastic rounding, FP8 E4M3 and E5M2, MXFP8 or MXFP4; gives "
        "the values after the conversion, and the scales"
    ),
    "probe-stochastic-rounding": (
        "is given a parameter in BF16 and an increment below its resolution; gives the parameter after many "
        "increments, rounded stochastically and to nearest"
    ),
    "probe-loss-scale": (
        "is given a loss-scaler setting and the steps that overflow; gives the scale, the skipped steps and the "
        "learning rate of each step"
    ),
    "probe-update": (
        "is given factors of the loss and a clipping norm; gives the change of all parameters for each factor"
    ),
    "probe-elastic": (
        "is given a global batch with micro-batch sizes and bounds of accelerators, and gives the world sizes; or "
        "is given speeds of workers, and gives their shares"
    ),
    "probe-flops": "is given a model shape, a convention and a sequence length; gives the operations of one token",
    "probe-memory": (
        "is given a model shape and a batch; gives the predicted bytes, and trains so that the suite measures the "
        "bytes taken"
    ),
    "probe-shards": (
        "is given a number of parameters and a sharding, none or parameters; trains a few steps on two ranks and "
        "gives the losses, while the suite measures the memory taken"
    ),
    "probe-peaks": "is given a model shape and a number of steps; gives the peak memory of each step",
    "probe-kernels": (
        "is given nothing; gives times of matmul, attention, normalization and activation, and of a matrix "
        "product and a copy as rooflines, on one device"
    ),
    "probe-energy": (
        "is given seconds of load and an interval; runs the load, and gives readings of an energy counter and of "
        "a power meter with their times"
    ),
}
"""What a stack does that declares a capability."""
_CAPABILITIES = """## Capabilities

A `StackDescriptor` names under `capabilities` what its stack does, and under `missing` what it does not, with the
reason. A capability decides which scenarios can pass, so it gates the levels and profiles of those scenarios: a level
that has a scenario with this need is not reached without it. A *planted* capability plants a fault into the stack
itself when the task asks for it. A *probe* is a test hook: the suite gives the numbers, and the stack computes with the
code that it trains with ([test hooks](../v1/14-numbers.md#test-hooks)).

A capability that gates nothing is information for readers of a report: no scenario needs it, and nothing about it is
tested.
"""
_NOTHING = "nothing"
_CRITERIA = """## Criteria

What each scenario is judged by. A trial passes when every criterion of its scenario holds. `{acts}` is judged in every
scenario; the requirements of all others are named with the numbers that differ between scenarios. `steps` is the least
number of steps that are compared. Names such as `recovery_seconds` are [claims](../documents/StackDescriptor.md) of the
stack. The *baseline run* is the same job without a fault.
"""
_ALL_SCENARIOS = "all"
_NOT_SHOWN = ("check", "case")
MOST_LINKED = 12
"""Requirements of a criterion that are linked; the tables above link all, and links make a page large."""
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_HEAD = """<!-- Generated by tools/scenario_page.py from the scenarios; never edited. To make it: make generate -->

# Scenarios by level

The levels are in rising order: described, observable, recoverable, efficient. A stack reaches a level when it passes
every scenario of that level and of the lower ones, in the profile that it claims: `full` has those of `core` and
further ones. The level [described](../v1/00-levels.md) has no scenario. This page is informative; the requirement of
each scenario is normative, with its [criteria](#criteria).

- *Word*: of the requirement. A scenario counts for its level also where the word is SHOULD.
- *Needs*: the capabilities without which a scenario is `unsupported`. All but those of a probe alone need `{of_all}`
  too. Where `{reports}` is named, a recovery can be judged without it, but is `unsupported` at best. Words that are no
  code are [privileges on the machine](../guide/conformance.md#hosts-that-can-be-cut-off): root has `mounts`;
  with `--over` [filters on the nodes](../guide/conformance.md#faults-of-nodes) replace them.
- *Ranks*: the most that train at once; a report states them as `num_ranks`. The verdict says nothing about other sizes.
- *Trials*: for a claim about half of the faults (`quantile` of at most 0.5), about 90 of 100, and about more. Each kind
  of damage has trials of its own; the numbers here are of all kinds together.

A share of faults is shown by 5, 29 or 59 trials without a miss. These scenarios have so many: {timed}.
The others repeat less often, or once: they show that a behaviour exists, and not the claimed share of faults.

`trainspec-conformance run --dry-run` prints the same for one descriptor, with the sum of the time limits.
"""
_TOTALS = """## Needs of each level

A claim of the profile `core` needs this for each level, and what the lower levels need, which are the rows above it.
Numbers of scenarios and trials include those of the lower levels.
"""
_DOCUMENTS = "`documents`: a cluster profile, a training plan or a checkpoint policy, none with an error"
_COLUMNS = {
    "Scenario": "---",
    "Word": "---",
    "About": "---",
    "Needs": "---",
    "Ranks": "---:",
    "50 of 100": "---:",
    "90 of 100": "---:",
    "95 of 100": "---:",
}


def page(directory: Path, entries: Sequence[Mapping[str, object]]) -> str:
    """The text of the page.

    Args:
        directory: that of the scenarios.
        entries: the requirements, with their `id`, `level`, `title` and `chapter`.
    """
    scenarios = [part(Scenario, load_file(path).data) for path in sorted(directory.glob("*/scenario.yaml"))]
    by_id = {str(entry["id"]): entry for entry in entries}
    timed = ", ".join(f"`{one.metadata.name}`" for one in scenarios if _shows_share(one.trials))
    head = _HEAD.format(of_all=_OF_ALL, reports=REPORTS, timed=timed)
    return "\n".join(
        [
            head,
            *_totals(scenarios),
            *_sections(scenarios, by_id),
            *_criteria(scenarios, by_id),
            *_capabilities(scenarios, by_id),
        ]
    )


def meanings_of_criteria() -> dict[str, str]:
    """The docstring of each check of the suite, by the name of the check."""
    functions = {ACTS: judge_acts, **dict(sorted(all_checks().items()))}
    return {name: " ".join((one.__doc__ or "").split()) for name, one in functions.items()}


def _criteria(scenarios: Sequence[Scenario], by_id: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    rows = [[f"`{name}`", words, _belongs_to(name, scenarios, by_id)] for name, words in meanings_of_criteria().items()]
    yield _CRITERIA.format(acts=ACTS)
    yield "\n".join(table({"Criterion": "---", "Holds when": "---", "Requirements": "---"}, rows)) + "\n"


def _belongs_to(name: str, scenarios: Sequence[Scenario], by_id: Mapping[str, Mapping[str, object]]) -> str:
    if name == ACTS:
        return _ALL_SCENARIOS
    links = []
    for one in sorted(scenarios, key=lambda one: one.requirement):
        mine = [criterion for criterion in one.criteria if criterion.check == name]
        numbers = list(dict.fromkeys(filter(None, map(_numbers, mine))))
        link = f"[{one.requirement}](../v1/{by_id[one.requirement]['chapter']}.md#{one.requirement})"
        links += [link + (f" ({'; '.join(numbers)})" if numbers else "")] if mine else []
    return ", ".join(links) if len(links) <= MOST_LINKED else LINK.sub(r"\1", ", ".join(links))


def _numbers(criterion: Criterion) -> str:
    given = {key: value for key, value in to_builtins(criterion).items() if key not in _NOT_SHOWN and value}
    shown = {key: " ".join(value) if isinstance(value, list | tuple) else f"{value:g}" for key, value in given.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _capabilities(scenarios: Sequence[Scenario], by_id: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    rows = []
    for name in get_args(Capability):
        needing = [one for one in scenarios if name in needs(one)]
        gated = sorted({(_LEVELS.index(one.level), one.tier) for one in needing})
        links = [
            f"[`{one.metadata.name}`](../v1/{by_id[one.requirement]['chapter']}.md#{one.requirement})"
            for one in needing
        ]
        levels = ", ".join(f"{_LEVELS[level]} {_TIERS[tier]}" for level, tier in gated)
        listed = "all but those of a probe alone" if name == _OF_ALL else ", ".join(links)
        rows.append([f"`{name}`", _MEANINGS[name], levels or _NOTHING, listed])
    yield _CAPABILITIES
    columns = {"Capability": "---", "A stack with it": "---", "Gates": "---", "Scenarios": "---"}
    yield "\n".join(table(columns, rows)) + "\n"


def _sections(scenarios: Sequence[Scenario], by_id: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    for level in _LEVELS:
        for tier, profile in _TIERS.items():
            rows = [
                _row(one, by_id[one.requirement])
                for one in sorted(scenarios, key=lambda one: one.requirement)
                if (one.level, one.tier) == (level, tier)
            ]
            further = "" if tier == "core" else "further "
            noun = "scenario" if len(rows) == 1 else "scenarios"
            yield f"## {level.capitalize()}, {profile}\n\n{len(rows)} {further}{noun}.\n"
            yield "\n".join(table(_COLUMNS, rows)) + "\n"


def totals(scenarios: Sequence[Scenario], level: str) -> tuple[int, int, int, int]:
    """Scenarios of `core` up to a level, and trials for half of the faults, for 90 of 100 and for 95 of 100."""
    upto = _LEVELS[: _LEVELS.index(level) + 1]
    chosen = [one for one in scenarios if one.tier == "core" and one.level in upto]
    sums = zip(*map(_num_trials, chosen), strict=True)
    half, most, nearly_all = map(sum, sums)
    return len(chosen), half, most, nearly_all


def _totals(scenarios: Sequence[Scenario]) -> Iterator[str]:
    """What a stack declares for each level of the profile core, and how many trials that is."""
    rows, before = [["described", _DOCUMENTS, "0", "0", "0", "0"]], set[str]()
    for level in _LEVELS:
        mine = {need for one in scenarios if (one.level, one.tier) == (level, "core") for need in _needs(one)}
        allowed = {one for s in scenarios if (s.level, s.tier) == (level, "core") for one in s.privileges}
        further = ", ".join([*(f"`{need}`" for need in sorted(mine - before)), *sorted(allowed)])
        rows.append([level, further, *map(str, totals(scenarios, level))])
        before |= mine
    trials = dict(list(_COLUMNS.items())[-3:])
    yield _TOTALS
    yield "\n".join(table({"Level": "---", "Needs": "---", "Scenarios": "---:", **trials}, rows)) + "\n"


def _needs(one: Scenario) -> list[str]:
    """The capabilities that a scenario needs, and the pointer where it damages that."""
    return [*needs(one), *(["store.pointer"] if damages_pointer(one) else [])]


def _num_trials(one: Scenario) -> tuple[int, int, int]:
    """Trials of all kinds of damage: for half of the faults, for 90 of 100 and for 95 of 100."""
    kinds, trials = num_kinds(one), one.trials
    return kinds * trials.basic, kinds * trials.standard, kinds * trials.strict


def _shows_share(trials: Trials) -> bool:
    wanted = tuple(trials_needed(share) for share in (0.5, 0.9, 0.95))
    return (trials.basic, trials.standard, trials.strict) == wanted


def _row(one: Scenario, entry: Mapping[str, object]) -> list[str]:
    needed = [f"`{need}`" for need in _needs(one) if need != _OF_ALL]
    link = f"[`{one.metadata.name}`](../v1/{entry['chapter']}.md#{one.requirement})"
    return [
        link,
        str(entry["level"]),
        str(entry["title"]),
        ", ".join([*needed, *one.privileges]),
        str(most_ranks(one)),
        *map(str, _num_trials(one)),
    ]
