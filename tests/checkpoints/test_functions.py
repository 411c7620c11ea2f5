"""A checkpoint that would run a function is passed over, and one with classes of a program is not."""

from __future__ import annotations

import argparse
import bz2
import collections
import datetime as dt
import enum
import functools
import gzip
import io
import math
import operator
import os
import pickle
import sys
import types
import uuid
import zipfile
import zlib
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.torch_saves import saved
from trainspec_validate.checkpoints.functions import runs_by_name, runs_when_called
from trainspec_validate.cli.toolbox import command as toolbox

torch = pytest.importorskip("torch")


def newest(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory), *options])


def placed(module: str, kind: type) -> type:
    """A class under the name of a module that is not installed."""
    made = types.ModuleType(module)
    for end in range(len(module.split("."))):
        sys.modules.setdefault(".".join(module.split(".")[: end + 1]), types.ModuleType(module))
    kind.__module__ = module
    sys.modules[module] = made
    setattr(made, kind.__qualname__, kind)
    return kind


class ModelType(enum.Enum):
    encoder_or_decoder = 1


class RerunState(enum.IntEnum):
    NOT_RUNNING = 0


@dataclass
class Settings:
    width: int = 8
    activation: Any = torch.nn.functional.gelu


class Outer:
    class Inner:
        __module__ = "my_trainer.nested"

    class Kind(enum.Enum):
        __module__ = "my_trainer.nested"
        large = 1


class AttributeDict(dict[str, Any]):
    pass


class TrainingArguments:
    def __init__(self) -> None:
        self.output_dir = Path("out")
        self.scheduler = ModelType.encoder_or_decoder


def _trained() -> tuple[Any, Any, Any]:
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.rand(3, 1, 8)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    return model, optimizer, schedule


def states() -> Any:
    model, optimizer, schedule = _trained()
    scaler = torch.amp.GradScaler("cpu").state_dict()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "lr": schedule.state_dict(), "s": scaler}


def whole_objects() -> Any:
    model, optimizer, _ = _trained()
    half = torch.nn.Linear(4, 4).to(torch.bfloat16)
    return {"model": model, "optimizer": optimizer, "half": half, "version": torch.__version__}


def random_states() -> Any:
    import random

    generator = np.random.default_rng(7)
    older = np.random.RandomState(7)
    return {
        "python": random.getstate(),
        "own": random.Random(7),
        "numpy": np.random.get_state(),
        "objects": (generator, older, np.random.PCG64(3)),
        "cpu": torch.get_rng_state(),
        "generator": torch.Generator().get_state(),
    }


def arrays() -> Any:
    masked = np.ma.masked_array([1.0, 2.0], [0, 1])
    scalars = [kind(1) for kind in (np.int64, np.float16, np.longdouble, np.complex64, np.bool_, np.str_)]
    return {"masked": masked, "scalars": scalars, "when": np.datetime64("2026-01-01"), "dtype": np.dtype("<f4")}


def tensors() -> Any:
    sparse = torch.eye(3).to_sparse()
    quantized = torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.quint8)
    nested = torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])
    meta = torch.rand(2, device="meta")
    of_type = [torch.rand(4).to(kind) for kind in (torch.float8_e4m3fn, torch.complex64, torch.int8, torch.float64)]
    buffer = torch.nn.Buffer(torch.rand(2))
    return {"a": sparse, "b": quantized, "c": nested, "d": meta, "e": of_type, "f": buffer}


def settings() -> Any:
    namespace = argparse.Namespace(
        model_type=ModelType.encoder_or_decoder,
        params_dtype=torch.bfloat16,
        activation=torch.nn.functional.silu,
        warm_up=functools.partial(max, 1),
        method=[1, 2].count,
        kinds=(list[int], Literal["a"], dt.timedelta(1), uuid.UUID(int=1), iter([1]), math.cos),
        none=type(None),
        nested=(Outer.Inner(), Outer.Kind.large),
        when=dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        unions=(int | None, Settings | list[int], operator.attrgetter("a.b"), operator.methodcaller("item")),
        records=np.rec.array([(1, 2.0)]),
        table=collections.defaultdict(list, {"a": [1]}),
    )
    return {"args": namespace, "hyper_parameters": AttributeDict(width=8), "config": Settings(), "state": RerunState(0)}


def arguments() -> Any:
    return TrainingArguments()


MODULES = {
    "megatron.core.enums_made": ModelType,
    "megatron.core.rerun_made": RerunState,
    "my_trainer.settings": Settings,
    "my_trainer.nested": Outer,
    "lightning.fabric.utilities.data": AttributeDict,
    "transformers.made_args": TrainingArguments,
}


@pytest.mark.parametrize(
    "state",
    [states, whole_objects, random_states, arrays, tensors, settings, arguments],
    ids=lambda made: made.__name__,
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_what_trainers_save_is_whole(state: Callable[[], Any], protocol: int, tmp_path: Path) -> None:
    for module, kind in MODULES.items():
        placed(module, kind)
    torch.save(state(), tmp_path / "ckpt_30.pt", pickle_protocol=protocol)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'ckpt_30.pt'}\n"), result.stderr


class Calling:
    """Unpickled, it calls a function."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.call = function, given

    def __reduce__(self) -> Any:
        return self.call


def _named(module: str, name: str, protocol: bytes = b"\x80\x02") -> bytes:
    """A pickle that calls a name which is not looked up while it is made."""
    return protocol + b"c" + f"{module}\n{name}\n".encode() + b"(X\x01\x00\x00\x00xtR."


def _stored(name: str, function: str) -> bytes:
    """A namespace that is given a function as an attribute, and then a state; without a name it is computed."""
    text = b"X" + len(name).to_bytes(4, "little") + name.encode()
    key = text if name else b"c__builtin__\nstr\n(X\x0c\x00\x00\x00__setstate__tR"
    return b"\x80\x02cargparse\nNamespace\n)\x81}" + key + function.encode() + b"sbX\x01\x00\x00\x00xb."


HOSTILE: dict[str, Callable[[], bytes]] = {
    "system": lambda: _named("posix", "system"),
    "eval": lambda: _named("__builtin__", "eval"),
    "popen": lambda: _named("subprocess", "Popen"),
    "older name": lambda: _named("commands", "getoutput"),
    "file": lambda: _named("_io", "FileIO"),
    "run": lambda: _named("runpy", "run_path"),
    "dotted": lambda: b"\x80\x04\x8c\x13torch.serialization\x8c\x09os.system\x93(X\x01\x00\x00\x00xtR.",
    "nested": lambda: pickle.dumps(Calling(torch.storage._load_from_bytes, b"x")),
    "hub": lambda: pickle.dumps(Calling(torch.hub.load, "x", "y")),
    "handed": lambda: pickle.dumps(Calling(torch._tensor._rebuild_from_type_v2, torch.load, torch.Tensor, ("x",), {})),
    "attribute": lambda: b"\x80\x02c__builtin__\ngetattr\n(cbuiltins\nobject\nX\x01\x00\x00\x00xtR(tR.",
    "numpy": lambda: _named("numpy.testing._private.utils", "runstring"),
    "tests of Python": lambda: _named("test.support.script_helper", "run_python_until_end"),
    "another interpreter": lambda: _named("_xxsubinterpreters", "run_string"),
    "installer": lambda: _named("pip", "main"),
    "class that starts a process": lambda: _named(
        "torch.distributed.elastic.multiprocessing.subprocess_handler", "SubprocessHandler"
    ),
    "class that writes a file": lambda: pickle.dumps(Calling(torch._C.PyTorchFileWriter, "x")),
    "the same by another name": lambda: _named("torch", "PyTorchFileWriter"),
    "new object that writes": lambda: b"\x80\x02ctorch._C\nPyTorchFileWriter\n(X\x01\x00\x00\x00xt\x81.",
    "store": lambda: _named("torch.distributed", "FileStore"),
    "exporter": lambda: _named("torch.package.package_exporter", "PackageExporter"),
    "array from a file": lambda: _named("numpy.core.multiarray", "fromfile"),
    "records from a file": lambda: _named("numpy.core.records", "fromfile"),
    "masked array from a file": lambda: _named("numpy.ma.core", "fromfile"),
    "seed": lambda: _named("numpy.random", "seed"),
    "function of a module of values": lambda: _named("uuid", "_get_command_stdout"),
    "hidden module of a newer version": lambda: _named("_pyrepl.pager", "pipe_pager"),
    "module that another imports": lambda: _named("collections", "_sys"),
    "decoder": lambda: _named("_codecs", "decode"),
    "power": lambda: pickle.dumps(Calling(pow, 9, 10**9)),
    "product of values": lambda: pickle.dumps(Calling(operator.mul, b"x", 10**12)),
    "variables of a module": lambda: pickle.dumps(
        Calling(getattr, Calling(getattr, argparse.Namespace, "__init__"), "__globals__")
    ),
    "built-in of the main module": lambda: (
        b"\x80\x04\x8c\x08__main__\x8c\x11__builtins__.eval\x93(X\x01\x00\x00\x00xtR."
    ),
    "loader of a program": lambda: b"\x80\x04\x8c\x0bclick.utils\x8c\x13__loader__.set_data\x93(X\x01\x00\x00\x00xtR.",
    "method of a class that a program imports": lambda: (
        b"\x80\x04\x8c\x0btrainer.set\x8c\x0aPath.touch\x93(X\x01\x00\x00\x00xtR."
    ),
    "generator of code of PyTorch": lambda: _named("torchgen.utils", "FileManager"),
    "array in a file, made by copyreg": lambda: b"\x80\x02ccopyreg\n__newobj__\n(cnumpy\nmemmap\nX\x01\x00\x00\x00xtR.",
    "method of a path": lambda: pickle.dumps(Calling(getattr, Path("x"), "write_text")),
    "function that loaders call": lambda: _stored("__setstate__", "cmy.program\nwrite\n"),
    "function that loaders call for items": lambda: _stored("append", "cmy.program\nwrite\n"),
    "function under a computed name": lambda: _stored("", "cmy.program\nwrite\n"),
    "function for each item": lambda: b"\x80\x02c__builtin__\niter\n(cmy\nwrite\nK\x00tR.",
    "factory of a mapping": lambda: (
        b"\x80\x02c_operator\ngetitem\n(ccollections\ndefaultdict\n(cmy\nwrite\ntRX\x01\x00\x00\x00xtR."
    ),
    "class that is made": lambda: pickle.dumps(Calling(type, "A", (object,), {})),
    "function of a requirement of PyTorch": lambda: _named("sympy", "sympify"),
    "class that evaluates a text": lambda: _named("sympy", "Poly"),
    "new object that evaluates a text": lambda: b"\x80\x02csympy\nPoly\n(X\x01\x00\x00\x00xt\x81.",
    "new object by copyreg": lambda: b"\x80\x02ccopyreg\n__newobj__\n(csympy\nPoly\nX\x01\x00\x00\x00xtR.",
    "loader of YAML": lambda: _named("yaml", "unsafe_load"),
    "loader of joblib": lambda: _named("joblib", "load"),
    "function of a program": lambda: _named("__main__", "start"),
    "function of a module of a program": lambda: _named("my_trainer.tools", "open_stream"),
    "function that a program imports": lambda: _named("my_trainer.tools", "update_wrapper"),
    "function that a rebuilding one calls": lambda: (
        b"\x80\x02cjax._src.array\n_reconstruct_array\n(cmy.tools\nstart\nX\x01\x00\x00\x00x\x85tR."
    ),
    "function for pairs of values": lambda: pickle.dumps(Calling(functools.reduce, operator.mul, [9, 9])),
    "function of a program for pairs": lambda: b"\x80\x02c_functools\nreduce\n(cmy\nwrite\n](K\x01K\x02etR.",
    "method that is called": lambda: b"\x80\x02coperator\nmethodcaller\n(X\x01\x00\x00\x00xtR(K\x01tR.",
    "handed in an older way": lambda: pickle.dumps(
        Calling(torch._tensor._rebuild_from_type, torch.load, torch.Tensor, ("x",), {})
    ),
    "function with the name of a type": lambda: _named("torch", "float_power"),
    "function with the start of a type": lambda: _named("numpy", "interp"),
    "items of a loader": lambda: b"\x80\x02c__builtin__\nlist\n(ctorch.utils.data.dataloader\nDataLoader\n)\x81tR.",
    "group of processes": lambda: _named("torch.distributed.device_mesh", "DeviceMesh"),
    "class of Python that a program imports": lambda: _named("my_trainer.tools", "Popen"),
    "instance": lambda: b"\x80\x02(X\x01\x00\x00\x00xios\nsystem\n.",
    "object": lambda: b"\x80\x02(cos\nsystem\nX\x01\x00\x00\x00xo.",
    "after others": lambda: b"".join(
        [b"\x80\x02(", *(f"cmine.n{number}\nKind\n".encode() for number in range(2_000)), _named("os", "system")[2:]]
    ),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("place", ["model.pt", "rng_state.pth"])
def test_what_would_run_a_function_is_passed_over(name: str, place: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "step_10", tmp_path / "step_20"
    for root in (good, bad):
        root.mkdir()
        torch.save({"w": torch.rand(4)}, root / "model.pt")
        torch.save({"r": torch.rand(4)}, root / "rng_state.pth")
    (bad / place).write_bytes(saved(HOSTILE[name]()))
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{good}\n"), result.stderr
    assert "loading it would run" in result.stderr
    assert newest(tmp_path, "--code", "any").stdout == f"{bad}\n"


def test_only_plain_state_is_taken_where_that_is_asked(tmp_path: Path) -> None:
    placed("my_trainer.settings", Settings)
    for step, state in ((10, states()), (20, {"args": Settings()})):
        torch.save(state, tmp_path / f"ckpt_{step}.pt")
    assert newest(tmp_path).stdout == f"{tmp_path / 'ckpt_20.pt'}\n"
    assert newest(tmp_path, "--code", "listed").stdout == f"{tmp_path / 'ckpt_10.pt'}\n"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("importlib", "import_module"),
        ("typing", "_eval_type"),
        ("operator", "call"),
        ("imp", "load_source"),
    ],
)
def test_names_that_run_what_they_are_given(module: str, name: str) -> None:
    assert runs_by_name(module, name)
    assert not runs_when_called(module, name)


@pytest.mark.parametrize("number", [20_000, 2**32 - 1])
def test_a_number_for_which_a_loader_reserves_memory_is_refused(number: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ckpt_30.pt", "w") as file:
        file.writestr("ckpt/data.pkl", b"\x80\x02}r" + number.to_bytes(4, "little") + b".")
        file.writestr("ckpt/version", "3\n")
    result = newest(tmp_path)
    assert result.exit_code != 0
    assert result.stdout == ""
    assert f"it remembers a value under the number {number}" in result.stderr


def test_the_state_of_a_class_is_refused(tmp_path: Path) -> None:
    state = b"N}X\x08\x00\x00\x00__init__cmy\nwrite\ns\x86b."
    torch.save({"step": 10}, tmp_path / "ckpt_10.pt")
    (tmp_path / "ckpt_20.pt").write_bytes(b"\x80\x02cargparse\nNamespace\n" + state)
    assert newest(tmp_path).stdout == f"{tmp_path / 'ckpt_10.pt'}\n"


@pytest.mark.parametrize("mark", [b"ustar\x0000", bytes(8)], ids=["ustar", "older"])
@pytest.mark.parametrize("name", ["optimizer.bin", "model.ckpt", "optimizer.pth.tar", "rng_state"])
def test_a_tar_archive_that_pytorch_unpickles_is_passed_over(name: str, mark: bytes, tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"step_{step}").mkdir()
        torch.save({"w": torch.rand(4)}, tmp_path / f"step_{step}" / "model.pt")
    head = bytearray(512)
    head[:8], head[100:108], head[124:136], head[257:265] = b"storages", b"0000644\0", b"00000000000\0", mark
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    (tmp_path / "step_20" / name).write_bytes(bytes(head) + bytes(1024))
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step_10'}\n"), result.stderr


def pickle_of(function: str, *arguments: bytes) -> bytes:
    """A state with the call of one function, whose arguments are given as operations."""
    module, _, name = function.rpartition(".")
    return b"\x80\x04}X\x05\x00\x00\x00modelc%s\n%s\n(%stRs." % (module.encode(), name.encode(), b"".join(arguments))


def given(value: object) -> bytes:
    """The operations of a value."""
    return pickle.dumps(value, protocol=2)[2:-1]


def held(directory: Path, content: bytes) -> None:
    directory.mkdir()
    with zipfile.ZipFile(directory / "model.pt", "w") as container:
        container.writestr("archive/data.pkl", content)
        container.writestr("archive/version", "3\n")


MADE = b"cmy.tools\n_rebuild\n(X\x02\x00\x00\x00osX\x06\x00\x00\x00systemtR"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("numba.core.serialize._unpickle__CustomPickled", [b"C\x04\x80\x04N."]),
        ("my.tools.unpickle_object", [b"X\x01\x00\x00\x00a"]),
        ("my.tools._rebuild", [b"C\x04\x80\x04N."]),
        ("my.tools._rebuild", [b"C\x14cos\nsystem\n(S'x'\ntR."]),
        ("my.tools._rebuild", [MADE, b"}"]),
        ("numpy.random._pickle.__generator_ctor", [b"X\x01\x00\x00\x00a", MADE]),
        ("numpy.random._pickle.__bit_generator_ctor", [b"cmy.tools\nrun\n"]),
        ("my.tools.Code", [*[b"K\x00"] * 6, b"C\x02d\x00", b")", b")", b")", b"X\x01\x00\x00\x00n", b"K\x01"]),
        ("my.tools.BaseZipFile", [b"X\x01\x00\x00\x00a", b"X\x01\x00\x00\x00w"]),
    ],
)
def test_functions_that_call_or_unpickle_what_they_are_given(
    function: str, arguments: list[bytes], tmp_path: Path
) -> None:
    held(tmp_path / "step-1", pickle_of(function, *arguments))
    result = newest(tmp_path)
    assert (result.exit_code, "loading it would run" in result.stderr) == (1, True), result.output


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("pandas._libs.internals._unpickle_block", [b"C\x02ab", b"K\x01"]),
        ("my.arrays.__pyx_unpickle_Array", [b"cmy.arrays\nArray\n", b"K\x01", b"N"]),
        ("my.tools._rebuild", [b"cmy.tools\nImage\n", b"C\x03\x80\x04N", b"C\x03ab."]),
        ("my.tools._rebuild_table", [b"(", MADE, b"t"]),
        ("numpy.random._pickle.__generator_ctor", [given(np.random.PCG64(1))]),
        ("my.tools.Kind", [b"K\x01"]),
    ],
)
def test_functions_that_make_an_object_of_its_parts(function: str, arguments: list[bytes], tmp_path: Path) -> None:
    held(tmp_path / "step-1", pickle_of(function, *arguments))
    result = newest(tmp_path)
    assert result.exit_code == 0, result.stderr


EVIL = b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00x\x85R."


def of_torch(value: object, *, is_old: bool = False) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not is_old)
    return file.getvalue()


def arrays(*values: Any) -> bytes:
    file = io.BytesIO()
    for value in values:
        np.save(file, value, allow_pickle=True)
    return file.getvalue()


class Runs:
    """Calls a function when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("x",)


BEHIND = {
    "two parts": lambda: gzip.compress(pickle.dumps(1)) + gzip.compress(EVIL),
    "two pickles": lambda: bz2.compress(pickle.dumps(1) + EVIL),
    "packed twice": lambda: zlib.compress(zlib.compress(EVIL)),
    "packed five times": lambda: zlib.compress(zlib.compress(zlib.compress(zlib.compress(zlib.compress(EVIL))))),
    "a container": lambda: gzip.compress(of_torch({"w": 1})),
    "a pickle after an array": lambda: arrays(np.zeros(3)) + EVIL,
    "an array of objects after an array": lambda: arrays(np.zeros(2), np.array([Runs()], dtype=object)),
    "a pickle after a file of old versions": lambda: of_torch({"w": torch.zeros(3)}, is_old=True) + EVIL,
    "pickles of protocol 0": lambda: pickle.dumps([1], protocol=0) + EVIL,
}


@pytest.mark.parametrize("content", BEHIND)
@pytest.mark.parametrize("name", ["state.dat", "s.npy", "x.bin"])
def test_pickles_behind_other_content_are_followed(content: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    torch.save({"w": torch.zeros(2)}, folder / "model.pt")
    (folder / name).write_bytes(BEHIND[content]())
    result = newest(tmp_path)
    assert (result.exit_code, "would run" in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize("name", ["state.dat", "s.npy"])
def test_what_follows_plain_arrays_and_compressed_values_is_whole(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    torch.save({"w": torch.zeros(2)}, folder / "model.pt")
    for number, content in enumerate((arrays(np.zeros(3), np.ones((2, 2))), gzip.compress(arrays(np.zeros(9))))):
        (folder / f"{number}{name}").write_bytes(content)
    (folder / "old.pt").write_bytes(of_torch({"w": torch.zeros(3)}, is_old=True))
    result = newest(tmp_path)
    assert result.exit_code == 0, result.stderr


def test_an_index_of_one_rank_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    torch.save({"w": torch.zeros(2)}, folder / "model.pt")
    (folder / "__0.metadata").write_bytes(EVIL)
    result = newest(tmp_path)
    assert (result.exit_code, "would run" in result.stderr) == (1, True), result.stderr


def test_kinds_of_quantized_tensors_are_plain(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    scales, zeros = torch.ones(2), torch.zeros(2)
    value = torch.quantize_per_channel(torch.rand(2, 3), scales, zeros, 0, torch.quint8)
    torch.save({"w": value, "kinds": [torch.per_tensor_symmetric, torch.bits8]}, folder / "model.pt")
    result = newest(tmp_path)
    assert result.exit_code == 0, result.stderr
