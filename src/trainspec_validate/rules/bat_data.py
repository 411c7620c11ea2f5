"""Rules on the training data of a plan: weights of the mixture, digests, epochs, and the order after a recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trainspec_validate.documents.types import CheckpointPolicy, TrainingPlan
from trainspec_validate.documents.types.data import Data, Dataset
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.plan import job_steps, job_tokens
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, at_key, require, rule

WEIGHT_TOLERANCE = 1e-3
"""Published weights are rounded to a tenth of a per cent."""
LENGTH_TOLERANCE = 0.01
MOST_EPOCHS = 40
"""After which repeated tokens were worth nothing (arXiv:2305.16264, figure 1), and as many as BERT took."""


def _data(plan: TrainingPlan) -> Data:
    return require(plan.data, "the plan has no data section")


@rule("TS-BAT-036")
def mixture_weights(plan: TrainingPlan) -> Iterator[Violation]:
    """Weights of the datasets add up to one, and no dataset is listed twice."""
    datasets = _data(plan).datasets
    names = Counter(dataset.name for dataset in datasets)
    for position, dataset in enumerate(datasets):
        if names[dataset.name] > 1:
            yield Violation(
                at(plan, "data", "datasets", position, "name"),
                f"{dataset.name} is listed {names[dataset.name]} times",
                "list each dataset once, with the sum of its weights",
            )
    yield from _same_files(plan, datasets)
    weights = [dataset.weight for dataset in datasets]
    stated = [weight for weight in weights if weight is not None]
    if not stated:
        return
    if len(stated) < len(weights):
        yield Violation(
            at(plan, "data", "datasets", weights.index(None)),
            f"{number(len(stated))} of {number(len(weights))} datasets have a weight, and this one has none",
            "give all datasets a weight, or none",
        )
    elif abs(sum(stated) - 1) > WEIGHT_TOLERANCE:
        yield Violation(
            at_key(plan, "data", "datasets"),
            f"the weights add up to {number(round(sum(stated), 6))}",
            "let the weights add up to 1; divide each by their sum",
        )


def _same_files(plan: TrainingPlan, datasets: Sequence[Dataset]) -> Iterator[Violation]:
    """Datasets of several names whose digest is one, so that they are the same files."""
    first: dict[str, int] = {}
    for position, dataset in enumerate(datasets):
        if dataset.digest is None:
            continue
        known = datasets[first.setdefault(dataset.digest, position)]
        if known.name != dataset.name:
            yield Violation(
                at(plan, "data", "datasets", position, "digest"),
                f"{dataset.name} has the digest of {known.name}, so both are the same files",
                "correct the digest, or list the dataset once, with the sum of the weights",
                related=((at(plan, "data", "datasets", first[dataset.digest], "digest"), known.name),),
            )


@rule("TS-BAT-037")
def dataset_digest(plan: TrainingPlan) -> Iterator[Violation]:
    """Each dataset has a digest."""
    for position, dataset in enumerate(_data(plan).datasets):
        if dataset.digest is None:
            yield Violation(
                at(plan, "data", "datasets", position),
                f"{dataset.name} has no digest, so a changed file is read without notice",
                "add digest: sha256:<64 hexadecimal digits> of the files that the job reads",
            )


@rule("TS-BAT-038")
def order_seed(plan: TrainingPlan) -> Iterator[Violation]:
    """A shuffled order has a seed."""
    data = _data(plan)
    if data.order != "shuffled":
        raise NotApplicable("the samples are not shuffled")
    if data.seed is None and (plan.job is None or plan.job.seed is None):
        yield Violation(
            at(plan, "data", "order"),
            "samples are shuffled, but no seed is given, so the order cannot be read again",
            "set data.seed or job.seed",
        )


@rule("TS-BAT-039")
def dataset_epochs(plan: TrainingPlan) -> Iterator[Violation]:
    """A dataset holds what its weight takes in the epochs that are allowed."""
    data = _data(plan)
    limits = [dataset.max_epochs for dataset in data.datasets]
    none = "no dataset states its size and its largest number of epochs, or the job no length"
    for position, epochs in _overruns(plan, data, limits, none):
        if position is None:
            yield _too_small(plan, epochs, "their largest numbers of epochs allow")
            continue
        dataset = data.datasets[position]
        yield Violation(
            at(plan, "data", "datasets", position, "max_epochs"),
            f"the job takes {number(round(epochs, 3))} epochs of {dataset.name}, but "
            f"{number(dataset.max_epochs or 0)} are allowed",
            "lower its weight or the length of the job, or allow more epochs",
        )


@rule("TS-BAT-045")
def repeated_data(plan: TrainingPlan) -> Iterator[Violation]:
    """A language model does not repeat a dataset so often that more of it is worth nothing, unless the plan says so."""
    data = _data(plan)
    if plan.model.vocabulary_size is None or plan.lora or plan.num_parameters_trained:
        raise NotApplicable("the job does not train a language model from its start")
    limits = [MOST_EPOCHS if one.max_epochs is None and one.num_tokens else None for one in data.datasets]
    none = "no dataset states its tokens without its largest number of epochs, or the job no length"
    for position, epochs in _overruns(plan, data, limits, none):
        if position is None:
            yield _too_small(plan, epochs, f"{MOST_EPOCHS} epochs of each have")
            continue
        dataset = data.datasets[position]
        yield Violation(
            at(plan, "data", "datasets", position, "num_tokens"),
            f"the job takes {number(float(f'{epochs:.3g}'))} epochs of {dataset.name}, whose "
            f"num_tokens is {number(dataset.num_tokens or 0)}",
            f"correct num_tokens, weight or job; where more than {MOST_EPOCHS} are intended, state max_epochs",
        )


def _too_small(plan: TrainingPlan, times: float, limit: str) -> Violation:
    return Violation(
        at_key(plan, "data", "datasets"),
        f"whatever the weights of the datasets, the job takes {number(float(f'{times:.3g}'))} times what {limit}",
        "correct the sizes or the length of the job, or state max_epochs where more are intended",
    )


def _overruns(
    plan: TrainingPlan, data: Data, limits: Sequence[float | None], none: str
) -> Iterator[tuple[int | None, float]]:
    """Each dataset that the job takes more epochs of than its limit: its position and the epochs.

    A mixture without weights is over its limits where all of them together hold less than the job takes: without a
    position, and how many times as much it takes. Where one dataset could be over its limit, the weights decide.
    """
    is_open = len(data.datasets) > 1 and all(dataset.weight is None for dataset in data.datasets)
    whole = 1.0 if is_open or len(data.datasets) == 1 else None
    taken = [_epochs(plan, dataset, whole) for dataset in data.datasets]
    known = [(at, epochs, limit) for at, (epochs, limit) in enumerate(zip(taken, limits, strict=True))]
    judged = [(at, epochs, limit) for at, epochs, limit in known if epochs is not None and limit is not None]
    if not judged:
        raise NotApplicable(none)
    over = [(at, epochs) for at, epochs, limit in judged if epochs > limit * (1 + LENGTH_TOLERANCE)]
    if not is_open:
        yield from over
        return
    held = sum(limit / epochs for _, epochs, limit in judged)
    if len(judged) == len(known) and held * (1 + LENGTH_TOLERANCE) < 1:
        yield None, 1 / held
    elif over:
        reason = "gives datasets without weights, which decide how often each is read"
        raise Unresolved(at_key(plan, "data", "datasets"), reason, "give each dataset its weight")


def _epochs(plan: TrainingPlan, dataset: Dataset, whole: float | None) -> float | None:
    """Epochs of a dataset that the job takes, with a weight of `whole` where it has none; None without a length."""
    weight = whole if dataset.weight is None else dataset.weight
    if weight is None:
        return None
    tokens = job_tokens(plan)
    if dataset.num_tokens and tokens:
        return weight * tokens / dataset.num_tokens
    steps = job_steps(plan)
    same = not plan.batch.ramp and not plan.batch.controller
    if dataset.num_samples and steps and same:
        return weight * steps * plan.batch.global_sequences / dataset.num_samples
    return None


@rule("TS-BAT-040")
def data_resume(plan: TrainingPlan, checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """After a recovery the job reads the samples that it would have read without the failure."""
    data = _data(plan)
    if any(omitted.item == "data-position" for omitted in checkpoint.state.omitted):
        raise NotApplicable("the policy leaves the data position out, with a reason")
    if data.resume == "same-order":
        return
    place = at_key(plan, "data") if data.resume is None else at(plan, "data", "resume")
    yield Violation(
        place,
        "checkpoints hold the data position, but the plan "
        + ("does not say that it is used" if data.resume is None else "reads in a new order after a recovery"),
        "set resume: same-order, or omit data-position in the policy, with a reason",
        related=((at(checkpoint, "state", "items"), "the state of a checkpoint"),),
    )


@rule("TS-BAT-041")
def elastic_order(plan: TrainingPlan) -> Iterator[Violation]:
    """A job that changes its data degree reads in an order that does not depend on the ranks."""
    data, elastic = _data(plan), plan.batch.elastic
    if elastic is None or len(set(elastic.data_degrees)) < 2:
        raise NotApplicable("the data degree of the job stays")
    if data.order_scope != "global":
        yield Violation(
            at(plan, "data", "order_scope") if data.order_scope else at_key(plan, "data"),
            f"the job may run with {' or '.join(map(str, elastic.data_degrees))} data ranks, but the order of samples "
            + ("belongs to each rank" if data.order_scope else "is not said to be independent of them"),
            "set order_scope: global, and read by the position in the job",
            related=((at(plan, "batch", "elastic", "data_degrees"), "the degrees"),),
        )
