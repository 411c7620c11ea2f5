"""Names the code in a checkpoint that loaders run besides that of pickles, by default or where they are asked to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.functions import is_class, runs_by_name, runs_when_called
from trainspec_validate.checkpoints.libraries import FRAMEWORKS
from trainspec_validate.checkpoints.limits import UnreadableError
from trainspec_validate.checkpoints.opening import open_file, read_json, read_small
from trainspec_validate.checkpoints.pickle_values import Inert, Pairs
from trainspec_validate.checkpoints.view import Checkpoint

_LIBRARIES: Final = sys.stdlib_module_names | {
    *("torch", "numpy", "safetensors", "transformers", "jax", "keras", "tensorflow")
}
_CONFIG_BYTES: Final = 1_000_000
_AUTO_MAP: Final = re.compile(rb'"auto_map"')
_OBJECTS: Final = re.compile(rb"(?:!!|tag:yaml\.org,2002:)python/(?:object|name|module)")
_TARGET: Final = re.compile(rb"[\"']?_target_[\"']?\s{0,9}:\s{0,9}[\"']?([A-Za-z_][\w.]{0,200})")
_OF_LOADERS: Final = re.compile(
    r"(?:^|/)(?:(?:modeling|configuration|tokenization|processing|(?:image|video)_processing|feature_extraction|generation)"
    r"_\w+|pipeline|handler)\.py$"
)
"""Names that Transformers, Diffusers and servers of models give to the programs that they import with a model."""
_GENERATES: Final = re.compile(r"(?:^|/)custom_generate/generate\.py$")
_HELP: Final = "keep programs out of checkpoints, and name classes that are installed where it is loaded"
_INSTANTIATOR: Final = "_instantiator"
_OF_LIGHTNING: Final = frozenset(
    f"{name}.cli.instantiate_module" for name in ("lightning.pytorch", "pytorch_lightning")
)
_SETTINGS: Final = ("hyper_parameters", "datamodule_hyper_parameters", "hparams", "module_arguments")
"""Where `load_from_checkpoint` of Lightning finds the function that it imports and calls in place of the class:
https://github.com/Lightning-AI/pytorch-lightning/blob/2.5.0/src/lightning/pytorch/core/saving.py, _load_state"""


def name_programs(checkpoint: Checkpoint) -> None:
    """Note programs that loaders import by default, which refuse it, and those that they import when asked to."""
    for path, program, loader in (*_of_diffusers(checkpoint), *_of_sentence_transformers(checkpoint)):
        words = f"{program}, which {loader} imports by default"
        checkpoint.note_functions(path, [words])
        checkpoint.report("code", path, f"loading it would run {words}", _HELP)
    _name_modules(checkpoint)
    generating = [path for path in checkpoint.files if _GENERATES.search(path)]
    _name_once(checkpoint, generating, "holds code that generate() of Transformers runs with trust_remote_code=True")
    words = "holds code that yaml.unsafe_load runs, and other loaders of YAML where they are asked to (!!python/…)"
    _name_once(checkpoint, _having(checkpoint, (".yaml", ".yml"), _OBJECTS), words)
    _name_targets(checkpoint)


def instantiators(state: Any) -> Iterator[str]:
    """Functions that Lightning imports and calls when it restores a state, other than its own, in words."""
    held = dict(_pairs(state))
    for key in _SETTINGS:
        for name, value in _pairs(held.get(key)):
            if name == _INSTANTIATOR and not (isinstance(value, str) and value in _OF_LIGHTNING):
                shown = value if isinstance(value, str) else "a value that is no text"
                yield f"{shown}, which load_from_checkpoint of Lightning imports and calls ({key}.{_INSTANTIATOR})"


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """The pairs with a text as their key in a mapping, or in an object that is filled as one."""
    if isinstance(value, Pairs):
        yield from value.texts().items()
    elif isinstance(value, Inert):
        for part in (value.items, value.arguments, value.state):
            pairs = part if isinstance(part, list | tuple) else (part,)
            yield from (
                pair for pair in pairs if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
            )
            yield from (pair for one in pairs if isinstance(one, Pairs) for pair in one.texts().items())


def _of_diffusers(checkpoint: Checkpoint) -> Iterator[tuple[str, str, str]]:
    """Programs that `DiffusionPipeline.from_pretrained` imports from a directory.

    They are that of the pipeline, those of its parts, and `None.py` up to version 0.37 (CVE-2026-44827):
    https://github.com/huggingface/diffusers/blob/v0.37.0/src/diffusers/pipelines/pipeline_loading_utils.py,
    _resolve_custom_pipeline_and_cls and get_class_obj_and_candidates.
    """
    for path, index in _settings(checkpoint, "model_index.json"):
        folder = path.removesuffix("model_index.json")
        parts = index.items() if isinstance(index, dict) else ()
        modules = [f"{name}/{one[0]}" if name != "_class_name" else str(one[0]) for name, one in parts if _is_path(one)]
        programs = (f"{folder}{module}.py" for module in ("None", *modules))
        yield from ((path, program, "Diffusers") for program in programs if program in checkpoint.files)


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _of_sentence_transformers(checkpoint: Checkpoint) -> Iterator[tuple[str, str, str]]:
    """Programs of modules that are not its own, which SentenceTransformer imports from a directory.

    Later versions ask for trust_remote_code first (huggingface/sentence-transformers#3801):
    https://github.com/huggingface/sentence-transformers/blob/v5.1.0/sentence_transformers/SentenceTransformer.py,
    _load_module_class_from_ref.
    """
    for path, modules in _settings(checkpoint, "modules.json"):
        for module in modules if isinstance(modules, list) else ():
            kind = module.get("type") if isinstance(module, dict) else None
            if isinstance(kind, str) and not kind.startswith("sentence_transformers."):
                program = f"{path.removesuffix('modules.json')}{kind.rpartition('.')[0].replace('.', '/')}.py"
                if program in checkpoint.files:
                    yield path, program, "sentence-transformers"


def _settings(checkpoint: Checkpoint, name: str) -> Iterator[tuple[str, Any]]:
    """Files of JSON with a name, and what they say; those that are none are judged elsewhere."""
    for path, fact in checkpoint.files.items():
        if fact.kind == "file" and path.rpartition("/")[2] == name:
            try:
                yield path, read_json(read_small(checkpoint.root / path))
            except UnreadableError:
                continue


def _name_modules(checkpoint: Checkpoint) -> None:
    """Name programs next to weights by what imports them."""
    folders = {path.rpartition("/")[0] for path in checkpoint.files if path.lower().endswith(STATE_SUFFIXES)}
    programs = [path for path in checkpoint.files if path.endswith(".py") and not _GENERATES.search(path)]
    if mapped := _having(checkpoint, ".json", _AUTO_MAP):
        words = "holds code that Transformers runs with trust_remote_code=True (auto_map)"
        _name_once(checkpoint, programs or mapped, words)
        return
    modules = _LIBRARIES | {one.partition(".")[0] for names in checkpoint.code.values() for one in names}
    programs = [one for one in programs if one.rpartition("/")[0] in folders]
    imported = [one for one in programs if one.rpartition("/")[2].removesuffix(".py") in modules]
    _name_once(checkpoint, imported, "holds code that an interpreter started there runs in place of a library")
    programs = [one for one in programs if _OF_LOADERS.search(one) and one not in imported]
    _name_once(checkpoint, programs, "holds code next to weights that loaders of models run where they are asked to")


def _name_targets(checkpoint: Checkpoint) -> None:
    """Name the objects in settings that Hydra makes, those that run something first."""
    named: dict[str, list[str]] = {}
    for path in _having(checkpoint, (".yaml", ".yml", ".json"), _TARGET):
        for name in _TARGET.findall(_text(checkpoint, path)):
            named.setdefault(name.decode("ascii", "replace"), []).append(path)
    for name in sorted(named, key=_is_plain)[:1]:
        more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
        words = f"names code that hydra.utils.instantiate runs (_target_): {name}{more}"
        _name_once(checkpoint, dict.fromkeys(named[name]), words)


def _is_plain(name: str) -> bool:
    module, _, own = name.rpartition(".")
    if is_class(own) and module.partition(".")[0] in FRAMEWORKS:  # settings name classes by their short public paths
        return True
    return not (runs_by_name(module, own) or (not is_class(own) and runs_when_called(module, own)))


def _name_once(checkpoint: Checkpoint, paths: Iterable[str], words: str) -> None:
    found = list(paths)
    if found:
        more = f"; {len(found) - 1:,} more like it" if len(found) > 1 else ""
        checkpoint.unread[found[0]] = words + more
        checkpoint.programs.add(found[0])


def _having(checkpoint: Checkpoint, suffixes: str | tuple[str, ...], wanted: re.Pattern[bytes]) -> Sequence[str]:
    """The small texts in which a pattern is found."""
    texts = [path for path, fact in checkpoint.files.items() if fact.kind == "file" and path.endswith(suffixes)]
    return [path for path in texts if wanted.search(_text(checkpoint, path))]


def _text(checkpoint: Checkpoint, path: str) -> bytes:
    """The content of a small text; empty for any other file."""
    if checkpoint.files[path].size_bytes <= _CONFIG_BYTES:
        with judged(checkpoint, path), open_file(checkpoint.root / path) as file:
            return file.read(_CONFIG_BYTES)
    return b""
