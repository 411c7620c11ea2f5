"""Rules on how checkpoints are committed and kept whole, and on their contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.checkpoint import StateItem
from trainspec_validate.model.units import bytes_, bytes_per_second, number, seconds
from trainspec_validate.performance.derived.policy import durable_seconds
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, rule
from trainspec_validate.rules._policy import storage_of

NEEDED_STATE: tuple[StateItem, ...] = (
    "model",
    "optimizer",
    "learning-rate-schedule",
    "rng",
    "data-position",
    "step",
    "samples-or-tokens",
    "layout",
    "config-digest",
)
TAMPER_EVIDENT = frozenset({"sha256", "sha512", "blake3"})
DIGEST_RATES: Mapping[str, float] = {"sha256": 1.4e9, "crc32c": 12.9e9, "blake3": 5.2e9, "xxh3": 29.5e9}
"""Bytes per second that count for one thread; benchmarks/measured/hash_rates.py measures those of a machine."""


@rule("TS-CKP-024")
def no_overwrite(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A committed checkpoint is never written into."""
    if checkpoint.commit.protocol == "overwrite-in-place":
        message = "a save that is cut short leaves new shards under the old index"
        help_text = "set protocol to rename, mark-last or transaction, which write to a new place"
        yield Violation(at(checkpoint, "commit", "protocol"), message, help_text)


@rule("TS-CKP-025")
def atomic_rename(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A commit by rename happens where renames are atomic."""
    if checkpoint.commit.protocol != "rename":
        raise NotApplicable("commits are not by rename")
    targets = [target for target in (storage_of(tier, cluster) for tier in checkpoint.tiers) if target]
    if not targets:
        raise NotApplicable("no tier is on a storage target of the cluster")
    for target in targets:
        unknown_object_store = target.kind == "object-store" and target.atomic_rename is None
        if target.atomic_rename is False or unknown_object_store:
            message = f"commits are by rename, but {target.name!r} does not rename in one step"
            place = at(cluster, "storage_targets", cluster.storage_targets.index(target))
            help_text = "set protocol to mark-last, or to transaction where the store has one"
            yield Violation(
                at(checkpoint, "commit", "protocol"),
                message,
                help_text,
                related=((place, f"{target.kind} without it"),),
            )


@rule("TS-CKP-026")
def pointer_after_commit(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The pointer to the newest checkpoint never leads to one that is not complete."""
    if checkpoint.commit.pointer == "none":
        raise NotApplicable("there is no pointer")
    if checkpoint.commit.pointer == "before-commit":
        message = "the pointer moves before the checkpoint is complete"
        yield Violation(at(checkpoint, "commit", "pointer"), message, "set pointer: after-commit")


@rule("TS-CKP-027")
def durable_before_commit(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Data reaches storage before the commit says so."""
    durable = checkpoint.commit.durable_before_commit
    if durable is None:
        message = "the policy does not say whether data is on storage when the commit is"
        yield Violation(at_key(checkpoint, "commit"), message, "set durable_before_commit: true, and sync files")
    elif not durable:
        message = "a power cut can leave the commit and lose the data"
        place = at(checkpoint, "commit", "durable_before_commit")
        yield Violation(
            place, message, "force files and their directory to storage first, and set durable_before_commit: true"
        )


@rule("TS-CKP-028")
def digest_manifest(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A manifest holds a digest of every file."""
    integrity = checkpoint.integrity
    if integrity.digest == "none":
        message = "no digest: loaders take a changed byte without a word"
        yield Violation(at(checkpoint, "integrity", "digest"), message, "set digest: sha256")
    elif not integrity.manifest:
        message = f"{integrity.digest} digests without a manifest do not show a missing or foreign file"
        yield Violation(at(checkpoint, "integrity", "manifest"), message, "write a manifest")


@rule("TS-CKP-111")
def signed_digests(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The digests under a signature resist tampering."""
    integrity = checkpoint.integrity
    if not integrity.signed or integrity.digest == "none":
        raise NotApplicable("the manifest is not signed, or has no digests")
    if integrity.digest not in TAMPER_EVIDENT:
        message = f"a signature over {integrity.digest} digests protects nothing: another file can have the same"
        yield Violation(at(checkpoint, "integrity", "digest"), message, "set digest: sha256")


@rule("TS-CKP-029")
def tamper_evident_digest(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The digest resists intent, not accident alone."""
    digest = checkpoint.integrity.digest
    if digest == "none":
        raise NotApplicable("there is no digest")
    if digest not in TAMPER_EVIDENT:
        message = f"{digest} shows accidents only"
        yield Violation(at(checkpoint, "integrity", "digest"), message, "set digest to sha256, sha512 or blake3")


@rule("TS-CKP-030")
def digest_time(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The writers can hash a checkpoint in the time that a save takes."""
    save, rate = checkpoint.save, DIGEST_RATES.get(checkpoint.integrity.digest)
    declared = durable_seconds(checkpoint)
    if rate is None or save.num_writers is None or declared == 0:
        raise NotApplicable("no digest with a known rate, number of writers and time of a save")
    hashing = save.size_bytes / (save.num_writers * rate)
    if hashing > declared:
        message = (
            f"{checkpoint.integrity.digest} of {bytes_(save.size_bytes)} takes {number(save.num_writers)} "
            f"writers {seconds(hashing)} at {bytes_per_second(rate)} each, longer than the save of "
            f"{seconds(declared)}"
        )
        enough = -int(-save.size_bytes // (rate * declared))
        help_text = f"let {number(enough)} or more writers hash their own files"
        yield Violation(at(checkpoint, "save", "num_writers"), message, help_text)


@rule("TS-CKP-031")
def verified_on_restore(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Digests are checked before training continues."""
    if not checkpoint.integrity.verified_on_restore:
        message = "digests that are never checked detect nothing"
        yield Violation(
            at(checkpoint, "integrity", "verified_on_restore"),
            message,
            "check them on restore, and set verified_on_restore: true",
        )


@rule("TS-CKP-032")
def no_pickle(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Reading a checkpoint does not run code."""
    if checkpoint.integrity.format is None:
        raise NotApplicable("the format is not stated")
    if checkpoint.integrity.format == "pickle":
        message = "whoever can write a pickle file can run code on every rank that loads it"
        yield Violation(
            at(checkpoint, "integrity", "format"), message, "store tensors only, and set format: tensor-only"
        )


@rule("TS-CKP-033")
def state_complete(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Every item that a resumed run needs is saved, or left out with a reason."""
    state = checkpoint.state
    left_out = {omission.item for omission in state.omitted}
    missing = [item for item in NEEDED_STATE if item not in state.items and item not in left_out]
    if missing:
        message = f"checkpoints lack {', '.join(missing)}"
        help_text = "save them, or name each under omitted with the reason"
        yield Violation(at(checkpoint, "state", "items"), message, help_text)


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


@rule("TS-CKP-034")
def named_once(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """State items, tiers, layers and faults are named once."""
    state = checkpoint.state
    for name in _twice([*state.items, *(omission.item for omission in state.omitted)]):
        omitted = any(omission.item == name for omission in state.omitted)
        message = f"{name} is both saved and left out" if omitted else f"{name} is listed twice"
        if omitted and name not in state.items:
            message = f"{name} is left out twice"
        place = at(checkpoint, "state", "omitted" if omitted else "items")
        yield Violation(place, message, "name it once")
    lists = {
        "tiers": [tier.name for tier in checkpoint.tiers],
        "detection": [layer.layer for layer in checkpoint.detection],
        "recovery": [str(path.fault) for path in checkpoint.recovery],
    }
    for section, names in lists.items():
        for name in _twice(names):
            last = len(names) - 1 - names[::-1].index(name)
            message = f"{section} has two entries for {name!r}"
            yield Violation(at(checkpoint, section, last), message, "keep one of them")


@rule("TS-CKP-035")
def rng_per_rank(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The random state of every rank is saved."""
    if "rng" not in checkpoint.state.items:
        raise NotApplicable("random state is not saved")
    if checkpoint.state.rng_scope == "global":
        message = "one random state for all ranks: after a resume they draw the same numbers"
        fix = "keep the state of each rank, or a key from which each derives its own, and set rng_scope to rank"
        yield Violation(at(checkpoint, "state", "rng_scope"), message, fix)


@rule("TS-CKP-036")
def bitwise_state(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A bitwise resume leaves nothing out."""
    state = checkpoint.state
    if state.resume_class != "bitwise":
        raise NotApplicable("the resume class is statistical")
    place = at(checkpoint, "state", "resume_class")
    if state.omitted:
        items = ", ".join(omission.item for omission in state.omitted)
        right = f"add {items} to state.items, or set resume_class: statistical"
        yield Violation(place, f"a bitwise resume without {items}", right)
    elif state.rng_scope != "rank":
        message = "a bitwise resume with one random state for all ranks"
        yield Violation(place, message, "set rng_scope: rank, or resume_class: statistical")


@rule("TS-CKP-037")
def bitwise_plan(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """A bitwise resume is promised for deterministic kernels only."""
    if checkpoint.state.resume_class != "bitwise":
        raise NotApplicable("the resume class is statistical")
    if not plan.precision.deterministic:
        message = "a bitwise resume, but the plan's kernels are not deterministic"
        help_text = "set precision.deterministic: true in the plan, or resume_class: statistical"
        related = ((at(plan, "precision"), "the plan's precision"),)
        yield Violation(at(checkpoint, "state", "resume_class"), message, help_text, related=related)
