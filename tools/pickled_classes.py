"""Lists the classes of PyTorch and NumPy that a pickle may name: those that hold layers, optimizers and values.

A class is listed under the module that defines it, never under one that imports it, and only where what makes its
objects and gives them their state opens, starts, loads, compiles and runs nothing. The list is of the installed
releases; names of other releases are in `OLDER`.

    python -m tools.pickled_classes
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

LIST: Final = Path(__file__).parents[1] / "src/trainspec_validate/data/pickled_classes.txt"
PACKAGES: Final = (
    *("torch.amp", "torch.ao.nn", "torch.ao.quantization", "torch.cuda.amp", "torch.distributed.algorithms"),
    *("torch.distributed.checkpoint", "torch.distributed.device_mesh", "torch.distributed.fsdp"),
    *("torch.distributed.optim", "torch.distributed._shard", "torch.distributed.tensor", "torch.distributions"),
    *("torch.nn", "torch.optim", "torch.utils.data", "torch.utils.hooks", "numpy.random", "numpy.ma"),
    *("numpy.dtypes", "numpy.polynomial", "numpy.matrixlib"),
)
_MODULES: Final = re.compile(
    r"torch\.(storage|_tensor|torch_version)|torch\.(cuda\.)?amp\.grad_scaler|torch\.utils\.hooks"
    r"|torch\.(ao\.)?nn(\.(modules|parameter|parallel|quantized|quantizable|qat|intrinsic|sparse|utils)(\.\w+)*)?"
    r"|torch\.ao\.quantization\.(observer|fake_quantize|_learnable_fake_quantize|qconfig|qconfig_mapping|stubs|quant_type)"
    r"|torch\.optim(\.\w+)*|torch\.distributions\.\w+|torch\.utils\.data\.(dataset|sampler|dataloader|distributed)"
    r"|torch\.distributed\.(tensor|_tensor)(\.(placement_types|_dtensor_spec|_api|api|device_mesh))?"
    r"|torch\.distributed\.(device_mesh|fsdp\.(api|fully_sharded_data_parallel|sharded_grad_scaler))"
    r"|torch\.distributed\.(optim\.zero_redundancy_optimizer|algorithms\.ddp_comm_hooks\.\w+)"
    r"|torch\.distributed\._shard\.(metadata|sharded_tensor(\.\w+)*|sharding_spec(\.\w+)*)"
    r"|torch\.distributed\.checkpoint\.(metadata|planner|default_planner|stateful)"
    r"|numpy\.(random(\.\w+)?|ma(\.core|\.mrecords)?|dtypes|polynomial\.\w+|matrixlib\.defmatrix)"
)
_BUILT_IN: Final = (
    "torch:Size",
    "torch:Generator",
    "torch._C:Generator",
    "torch._C:_TensorBase",
    "torch._C:TensorBase",
    "torch:Tensor",
)
OLDER: Final = (
    *("torch._C:_VariableFunctions", "torch._C:_VariableFunctionsClass", "torch._C:VariableFunctions"),
    *("torch._tensor:Tensor", "torch.tensor:Tensor", "torch.storage:_TypedStorage", "torch.storage:_UntypedStorage"),
    *("torch.storage:TypedStorage", "torch.storage:UntypedStorage", "torch:UntypedStorage", "torch:TypedStorage"),
    *("torch.optim.lr_scheduler:_LRScheduler", "torch.optim.lr_scheduler:LRScheduler"),
    *("torch.optim.optimizer:_RequiredParameter", "torch.nn.modules.linear:_LinearWithBias"),
    *("torch.nn.backends.thnn:THNNFunctionBackend", "torch.nn.modules.container:Container"),
    *("torch.backends.cudnn.rnn:Unserializable", "torch.cuda.amp.grad_scaler:OptState"),
    *("torch.distributed._tensor.placement_types:" + own for own in ("DTensorSpec", "TensorMeta", "_Partial")),
    *("torch.distributed._tensor.placement_types:" + own for own in ("Partial", "Replicate", "Shard", "Placement")),
    *("torch.distributed._tensor._dtensor_spec:" + own for own in ("DTensorSpec", "TensorMeta")),
    *("torch.distributed._tensor.api:DTensor", "torch.distributed.tensor:DTensor"),
    *("torch.distributed._shard.sharding_spec.api:" + own for own in ("EnumerableShardingSpec", "ShardingSpec")),
    *("numpy.random:RandomState", "numpy.random.mtrand:RandomState", "numpy.random._generator:Generator"),
    *("numpy.random.bit_generator:SeedSequence", "numpy.random.bit_generator:BitGenerator", "numpy.random:Generator"),
    *("numpy.random." + own for own in ("_mt19937:MT19937", "_pcg64:PCG64", "_pcg64:PCG64DXSM", "_philox:Philox")),
    *("numpy.random._sfc64:SFC64", "torch.serialization:LoadEndianness"),
    *("torch.nested._internal.nested_tensor:NestedTensor", "torch._dynamo.decorators:_DimRange"),
    *("torch._dynamo.eval_frame:OptimizedModule", "torchdata.stateful_dataloader:StatefulDataLoader"),
    *("torchdata.stateful_dataloader.stateful_dataloader:StatefulDataLoader", "numpy.ma.core:MaskedArray"),
    *(f"torchdata.stateful_dataloader.sampler:{own}" for own in ("BatchSampler", "RandomSampler")),
)  # fmt: skip
"""Names of other releases, and of types that are written in another language."""
# https://github.com/Lightning-AI/pytorch-lightning/tree/7f0c3436cd/src/lightning, and releases from 1.0 on
_LIGHTNING: Final = """
callbacks.callback:Callback callbacks.base:Callback callbacks.checkpoint:Checkpoint
callbacks.batch_size_finder:BatchSizeFinder callbacks.device_stats_monitor:DeviceStatsMonitor
callbacks.early_stopping:EarlyStopping callbacks.early_stopping:EarlyStoppingReason
callbacks.finetuning:BaseFinetuning callbacks.finetuning:BackboneFinetuning
callbacks.gradient_accumulation_scheduler:GradientAccumulationScheduler callbacks.lr_finder:LearningRateFinder
callbacks.lr_monitor:LearningRateMonitor callbacks.gpu_stats_monitor:GPUStatsMonitor
callbacks.model_checkpoint:ModelCheckpoint callbacks.model_summary:ModelSummary
callbacks.on_exception_checkpoint:OnExceptionCheckpoint callbacks.progress.progress_bar:ProgressBar
callbacks.progress.base:ProgressBarBase callbacks.progress.rich_progress:RichProgressBar
callbacks.progress.rich_progress:RichProgressBarTheme callbacks.progress.tqdm_progress:TQDMProgressBar
callbacks.prediction_writer:WriteInterval callbacks.pruning:ModelPruning callbacks.rich_model_summary:RichModelSummary
callbacks.stochastic_weight_avg:StochasticWeightAveraging callbacks.timer:Interval callbacks.timer:Timer
callbacks.weight_averaging:WeightAveraging callbacks.weight_averaging:EMAWeightAveraging
core.module:LightningModule core.lightning:LightningModule core.datamodule:LightningDataModule
core.optimizer:LightningOptimizer loops.progress:_BaseProgress trainer.states:TrainerStatus
trainer.states:TrainerFn trainer.states:RunningStage trainer.states:TrainerState
utilities.parsing:AttributeDict utilities.enums:GradClipAlgorithmType utilities.enums:AMPType
utilities.enums:DistributedType utilities.enums:DeviceType utilities.enums:PrecisionType
utilities.types:LRSchedulerConfig
"""
"""Classes of PyTorch Lightning, whose packages have been `pytorch_lightning` and `lightning.pytorch`."""
_DATA_OF_LIGHTNING: Final = (
    "lightning.fabric.utilities.data:AttributeDict",
    "lightning_fabric.utilities.data:AttributeDict",
)
_RENAMED: Final = {"torch.nn.quantized": "torch.ao.nn.quantized", "torch.nn.qat": "torch.ao.nn.qat"} | {
    "torch.nn.intrinsic": "torch.ao.nn.intrinsic",
    "torch.nn.quantizable": "torch.ao.nn.quantizable",
    "torch.quantization.observer": "torch.ao.quantization.observer",
    "torch.quantization.fake_quantize": "torch.ao.quantization.fake_quantize",
    "torch.quantization.stubs": "torch.ao.quantization.stubs",
    "torch.quantization.qconfig": "torch.ao.quantization.qconfig",
}
"""Modules before PyTorch 1.13, and those that took their place."""
_ACTS: Final = frozenset(
    {"open", "exec", "eval", "compile", "_exec", "load", "loads", "_load", "unpickle", "Unpickler", "Popen", "system"}
    | {"socket", "TCPStore", "FileStore", "HashStore", "PrefixStore", "init_process_group", "new_group", "Thread"}
    | {"Process", "Pool", "ThreadPoolExecutor", "ProcessPoolExecutor", "import_module", "__import__", "mkdir"}
    | {"makedirs", "remove", "unlink", "rename", "replace_file", "write_text", "write_bytes", "mkstemp", "mkdtemp"}
    | {"spawn", "fork", "connect", "bind", "listen", "Queue", "SimpleQueue", "Manager", "symbolic_trace", "Tracer"}
    | {"script", "_rebuild_from_type_v2", "GraphModule", "_load_from_bytes", "FunctionType", "CodeType", "rpc_sync"}
    | {"rpc_async", "remote", "getattr_static", "FileHandler", "SummaryWriter", "PyTorchFileWriter", "Library"}
)
"""Names that, called where an object is made or gets its state, open, start, load or run something."""
_MAKING: Final = ("__init__", "__new__", "__setstate__", "__setitem__", "__reduce__", "__reduce_ex__", "__call__")
_LOADED_BY: Final = (*_MAKING[:4], "append", "extend", "update", "add", "__setattr__", "__getattr__", "__del__")
_BASES: Final = frozenset(
    {"builtins", "abc", "enum", "typing", "collections", "collections.abc"} | {"pybind11_builtins"}
)


def modules() -> Iterator[ModuleType]:
    """The modules whose classes may be listed."""
    found = {"torch.storage", "torch._tensor", "torch.torch_version"}
    for package in PACKAGES:
        top = importlib.import_module(package)
        found.add(package)
        walked = pkgutil.walk_packages(getattr(top, "__path__", ()), f"{package}.", onerror=lambda _name: None)
        found.update(module.name for module in walked)
    for name in sorted(found | set(sys.modules)):
        if _MODULES.fullmatch(name) is not None and ".tests" not in name:
            try:
                yield importlib.import_module(name)
            except ImportError:
                continue


def classes(module: ModuleType) -> Iterator[tuple[str, type]]:
    """The classes that a module defines, also those in classes of it."""
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__qualname__ == name:
            yield name, value
            for own, inner in vars(value).items():
                if isinstance(inner, type) and inner.__qualname__ == f"{name}.{own}" and inner is not value:
                    yield f"{name}.{own}", inner


def is_plain(kind: type) -> bool:
    """Whether a class derives of no thread, file or process, and makes and fills its objects without acting."""
    for base in kind.__mro__:
        module = base.__module__
        if module.partition(".")[0] not in {"torch", "numpy"} and module not in _BASES:
            return False
        if acts(base):
            return False
    return True


def acts(kind: type) -> bool:
    """Whether a method that loading calls, or one of its own that such a method calls, calls one of `_ACTS`."""
    pending, seen = list(_LOADED_BY), set()
    while pending:
        name = pending.pop()
        method = vars(kind).get(name)
        if name in seen or method is None:
            continue
        seen.add(name)
        called = set(_called(method))
        if called & _ACTS:
            return True
        pending.extend(called & set(vars(kind)))
    return False


def _called(method: Any) -> Iterator[str]:
    function = getattr(method, "__func__", method)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            yield called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def listed() -> set[str]:
    """The lines of the list, from the installed releases and the older names."""
    warnings.simplefilter("ignore")
    own, refused = set(), set()
    for module in modules():
        for name, kind in classes(module):
            (own if is_plain(kind) else refused).add(f"{module.__name__}:{name}")
    own |= {f"torch:{name}" for name in vars(sys.modules["torch"]) if re.fullmatch(r"[A-Z]\w*(Storage|Tensor)", name)}
    for old, new in _RENAMED.items():
        own |= {old + name.removeprefix(new) for name in own if name.startswith((f"{new}.", f"{new}:"))}
    lightning = {f"{top}.{name}" for name in _LIGHTNING.split() for top in ("pytorch_lightning", "lightning.pytorch")}
    return (own - refused) | lightning | {*OLDER, *_BUILT_IN, *_DATA_OF_LIGHTNING}


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in sorted(listed())), encoding="utf-8")
