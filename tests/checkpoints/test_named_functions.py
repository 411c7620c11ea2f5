"""A function that a pickle only names is judged as one that it calls: an object of a library may call it later."""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import operator
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints.test_functions import held, newest
from trainspec_validate.checkpoints.functions import runs_by_name
from trainspec_validate.checkpoints.held import is_only_called
from trainspec_validate.checkpoints.libraries import is_kind
from trainspec_validate.checkpoints.pickle_values import Name

torch = pytest.importorskip("torch")


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def name(path: str) -> bytes:
    module, _, own = path.rpartition(".")
    return f"c{module}\n{own}\n".encode()


def partial(function: bytes, *given: bytes) -> bytes:
    return name("functools.partial") + b"(" + function + b"".join(given) + b"tR"


def new(path: str, *pairs: tuple[str, bytes]) -> bytes:
    """An object that is made without arguments, and is given its fields."""
    return name(path) + b")\x81}(" + b"".join(text(key) + value for key, value in pairs) + b"ub"


def layer(function: bytes, part: str = "_modules", kind: str = "torch.nn.modules.linear.Linear") -> bytes:
    """A layer that finds a function as its method, and is given an item."""
    return new(kind, (part, b"}" + text("append") + function + b"s")) + text("x") + b"a"


NAMESPACE, START = "argparse.Namespace", name("my.tools.start")
MAPPING, ADAM = name("collections.OrderedDict"), "torch.optim.adam.Adam"
PIPES = "torch.utils.data.datapipes.datapipe"
HUB = partial(name("torch.hub.load"), text("."), text("entry"))
HOSTILE = {
    "state that is unpickled": name(f"{PIPES}._IterDataPipeSerializationWrapper") + b")\x81(C\x04\x80\x04N.\x89tb",
    "the same, as the base": name(f"{PIPES}._DataPipeSerializationWrapper") + b")\x81(C\x04\x80\x04N.\x89tb",
    "runner of PyTorch": layer(name("torch.utils.collect_env.run")),
    "function of parameters": layer(name("torch.utils.collect_env.run"), "_parameters"),
    "evaluation of NumPy": layer(name("numpy.f2py.crackfortran.myeval")),
    "nested pickle": layer(name("torch.storage._load_from_bytes")),
    "module that another imports": layer(name("torch.os")),
    "method by its name": layer(name("operator.methodcaller") + b"(" + text("write_text") + b"tR"),
    "function of a program": layer(START),
    "partial function of a program": layer(partial(START), kind="torch.nn.modules.container.ModuleDict"),
    "made by copyreg": name("copyreg._reconstructor") + b"(" + name("torch.nn.modules.linear.Linear")
    + name("builtins.object") + b"NtR}" + text("_modules") + b"}" + text("append") + START + b"ssb" + text("x") + b"a",
    "namespace as a mapping": MAPPING + b"(" + new("types.SimpleNamespace", ("keys", START)) + b"tR",
    "another as a mapping": MAPPING + b"(" + new(NAMESPACE, ("keys", START)) + b"tR",
    "namespace of an optimizer": new(ADAM, ("defaults", new(NAMESPACE, ("setdefault", partial(START))))),
    "hub of PyTorch": new(ADAM, ("defaults", new(NAMESPACE, ("a", HUB)))),
    "item that loaders call": name("lightning.fabric.utilities.data.AttributeDict") + b")\x81" + text("__setstate__")
    + START + b"s" + text("x") + b"b",
    "items of a layer": new("torch.nn.modules.linear.Linear") + text("a") + text("b") + b"s",
    "items of an object of Python": new(NAMESPACE) + b"(" + text("b") + b"e",
    "attribute in a partial function": partial(name("builtins.getattr"), name("my.tools.Settings"), text("a")),
    "sum of values in a list": b"](" + name("functools.reduce") + b"e",
    "rebuilder in a partial function": partial(name("torch._tensor._rebuild_from_type_v2"), START),
    "class of a pickling library": b"](" + name("sympy.Poly") + b"e",
    "loader of a library": b"](" + name("pandas.read_pickle") + b"e",
    "runner of Lightning": b"](" + name("lightning.fabric.cli.main") + b"e",
    "file of a storage": name("builtins.getattr") + b"(" + name("torch.UntypedStorage") + text("from_file") + b"tR",
    "name of an extension": b"\x82\x01",
    "longer name of an extension": b"\x83\x01\x01",
    "longest name of an extension": b"\x84\x01\x01\x01\x00",
    "instance": b"(" + text("x") + b"itorch.hub\nload\n",
    "object with named arguments": name("torch.package.PackageImporter") + b"(" + text("x") + b"t}\x92",
    "name on the stack": text("torch.hub") + text("load") + b"\x93",
    "module through a program": text("my.tools") + text("torch.load") + b"\x93",
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(HOSTILE))
@pytest.mark.parametrize("is_bare", [False, True], ids=["archive", "pickle"])
def test_what_a_library_would_call_is_passed_over(case: str, is_bare: bool, tmp_path: Path) -> None:
    content = b"\x80\x04}(" + text("model") + HOSTILE[case] + b"u."
    held(tmp_path / "step-1", content)
    if is_bare:
        torch.save({"w": torch.rand(2)}, tmp_path / "step-1" / "model.pt")
        (tmp_path / "step-1" / "extra.pkl").write_bytes(content)
    result = newest(tmp_path)
    assert (result.exit_code, "loading it would run" in result.stderr) == (1, True), result.output


@pytest.mark.parametrize("made", [b"(" + text("load") + b"tR", b")R"], ids=["text", "empty"])
def test_a_name_that_a_call_makes_is_refused(made: bytes, tmp_path: Path) -> None:
    held(tmp_path / "step-1", b"\x80\x04}" + text("a") + text("torch.hub") + name("builtins.str") + made + b"\x93s.")
    assert newest(tmp_path).exit_code == 1


def functions() -> Any:
    torch_ones = [torch.nn.functional.gelu, torch.relu, torch.tanh, torch.nn.functional.cross_entropy, torch.sigmoid]
    others = [torch.nn.init.xavier_uniform_, torch.utils.data.default_collate, np.mean, np.float32, np.exp, np.add]
    return {"torch": torch_ones, "others": others, "python": [max, operator.add, functools.partial(int, 3), dict]}


def layers() -> Any:
    layer = torch.nn.ModuleDict({"append": torch.nn.Linear(2, 2), "add": torch.nn.ReLU()})
    layer.activation = torch.nn.functional.silu
    layer.register_forward_hook(torch.nn.functional.relu)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    rows = torch.utils.data.TensorDataset(torch.rand(3, 2))
    batches = torch.utils.data.DataLoader(rows, batch_size=2, shuffle=True)
    return {"model": layer, "optimizer": optimizer, "rows": torch.utils.data.Subset(rows, [1]), "batches": batches}


@pytest.mark.parametrize("made", [functions, layers], ids=lambda made: made.__name__)
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_models_hold_is_whole(made: Any, protocol: int, tmp_path: Path) -> None:
    torch.save({"w": torch.rand(2), "x": made()}, tmp_path / "ckpt_30.pt", pickle_protocol=protocol)
    result = newest(tmp_path)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("path", ["my.models.relu", "gluonts.time_feature._base.day_of_week", "my.tools.Settings"])
def test_functions_of_programs_that_are_only_named_are_noted(path: str, tmp_path: Path) -> None:
    held(tmp_path / "step-1", b"\x80\x04}(" + text("f") + b"](" + name(path) + b"e" + text("w") + text("a") + b"u.")
    result = newest(tmp_path)
    assert (result.exit_code, path in result.stderr) == (0, True), result.stderr


NAMES = """torch.load torch.jit.load torch.utils.cpp_extension.load torch.fx.graph_module._exec_with_source numpy.load
torch.multiprocessing.spawn torch.package.PackageImporter numpy.os torch.from_file torch.nn.functional.importlib
lightning.fabric.utilities.cloud_io._load cloudpickle.loads"""


@pytest.mark.parametrize("path", NAMES.split())
def test_names_that_a_state_has_no_need_of(path: str) -> None:
    module, _, own = path.rpartition(".")
    assert runs_by_name(module, own) or is_only_called(Name(module, own))


@pytest.mark.parametrize("own", ["IterDataPipe", "_DataPipeSerializationWrapper", "_MapDataPipeSerializationWrapper"])
def test_classes_of_pytorch_that_unpickle_their_state_are_none_of_the_listed(own: str) -> None:
    assert hasattr(torch.utils.data.datapipes.datapipe, own)
    assert not is_kind(PIPES, own)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bz2.compress, lzma.compress])
def test_what_follows_an_array_in_a_packed_pickle_is_refused(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """joblib writes the bytes of an array inside of its pickle, and goes on behind them."""
    held(tmp_path / "step-1", b"\x80\x04}" + text("w") + text("a") + b"s.")
    array = b"\x80\x04](" + new("joblib.numpy_pickle.NumpyArrayWrapper", ("subclass", name("numpy.ndarray")))
    (tmp_path / "step-1" / "s.joblib").write_bytes(pack(array + b"\xff" * 64 + name("os.system") + b"(tRe."))
    result = newest(tmp_path)
    assert (result.exit_code, "what follows in its pickle" in result.stderr) == (1, True), result.output
