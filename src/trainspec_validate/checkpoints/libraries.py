"""Lists what pickles may name of PyTorch, NumPy and the packages that come with them or are used next to them.

An object of a library may call whatever function is in its state, with any arguments. So of PyTorch and NumPy a
pickle names only classes that hold layers, optimizers or values, functions that rebuild these, and functions over
numbers, whether it calls them or not; and of the other packages no function that makes no object of its parts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_OPERATIONS_TEXT: Final = """
abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d add affine_grid all allclose alpha_dropout amax amin any arange arccos
arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort array around asarray asin asinh atan atan2
atanh average avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
binary_cross_entropy_with_logits bmm cat cbrt ceil celu celu_ channel_shuffle clamp clamp_max clamp_min clip clone
concat concatenate conj conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d copysign
cos cosh cosine_embedding_loss cosine_similarity cross cross_entropy ctc_loss cummax cummin cumprod cumsum det
diff digamma dist div divide dot dropout dropout1d dropout2d dropout3d dropout_ einsum elu elu_ embedding
embedding_bag empty empty_like eq equal erf erfc erfinv exp exp2 expm1 eye fabs feature_alpha_dropout fix flatten
flip float_power floor floor_divide fmax fmin fmod fold frac fractional_max_pool2d fractional_max_pool3d full
full_like gather gaussian_nll_loss ge gelu glu greater greater_equal grid_sample group_norm gt gumbel_softmax
hardshrink hardsigmoid hardswish hardtanh hardtanh_ heaviside hinge_embedding_loss hstack huber_loss hypot i0
identity inner instance_norm interpolate inverse isclose isfinite isin isinf isnan kl_div kron l1_loss layer_norm
ldexp le leaky_relu leaky_relu_ lerp less less_equal lgamma linear linspace local_response_norm log log10 log1p
log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logsigmoid
logspace logsumexp lp_pool1d lp_pool2d lp_pool3d lt margin_ranking_loss masked_fill matmul max max_pool1d
max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d maximum mean median min minimum mish mm mod moveaxis
mse_loss mul multi_head_attention_forward multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
multinomial multiply nan_to_num nanmax nanmean nanmedian nanmin nanquantile nanstd nansum nanvar ne neg negative
nll_loss norm normal normalize not_equal one_hot ones ones_like outer pad pairwise_distance pdist percentile
permute pixel_shuffle pixel_unshuffle poisson_nll_loss positive pow power prelu prod quantile rad2deg rand
rand_like randint randn randn_like randperm ravel real reciprocal relu relu6 relu_ remainder repeat_interleave
reshape rint rms_norm roll round rrelu rrelu_ rsqrt scaled_dot_product_attention scatter searchsorted selu selu_
sgn sigmoid sigmoid_ sign signbit silu silu_ sin sinc sinh smooth_l1_loss soft_margin_loss softmax softmin
softplus softshrink softsign sort sqrt square squeeze stack std sub subtract sum swapaxes t tan tanh tanh_
tanhshrink tensordot threshold threshold_ tile topk trace transpose tril triplet_margin_loss
triplet_margin_with_distance_loss triu true_divide trunc unbind unfold unique unsqueeze upsample upsample_bilinear
upsample_nearest var vdot vstack where xlogy zeros zeros_like
"""
_OPERATIONS: Final = frozenset(_OPERATIONS_TEXT.split())
"""Functions of both over numbers, under their names in each of the modules below."""
_OF_OPERATIONS: Final = re.compile(
    r"torch(\.(nn\.)?functional|\._VF|\.special|\.linalg|\._C\._(VariableFunctions(Class)?|nn|special|linalg))?"
    r"|numpy(\._?core(\.(umath|_multiarray_umath|fromnumeric|numeric|multiarray))?|\.lib\.(_\w+_impl|\w+_base))?"
)
_CLASSES_OF_OPERATIONS: Final = re.compile(r"_?VariableFunctions(Class)?")
"""Classes whose methods they are; no other path leads to one."""
_OTHERS: Final = re.compile(
    r"torch\.nn\.init\.([a-z]\w*_|calculate_gain|constant|dirac|eye|normal|orthogonal|sparse|uniform"
    r"|(kaiming|xavier)_(normal|uniform))"
    r"|torch\.utils\.data\.(_utils\.collate\.|dataloader\.)?default_(collate|convert)"
    r"|torch\.distributed\.algorithms\.ddp_comm_hooks\.\w+\.[a-z]\w*_hook"
    r"|torch\.(sparse_(coo|csr|csc|bsr|bsc)|jagged|strided|_mkldnn|channels_last_3d|per_\w+_(affine|symmetric)\w*|bits[0-9]\w*)"
    r"|numpy\.(record|generic|number|(un)?signedinteger|integer|inexact|(complex)?floating|flexible|character)"
)
_REBUILDS: Final = re.compile(
    r"torch(\._utils|\._tensor|\.nn\.parameter|\.nested\._internal\.nested_tensor|\.sparse\w*)?\._?rebuild\w*"
    r"|torch\.jit\._pickle\.\w+"
    r"|numpy\.random\.(\w+\.)?__(\w+_ctor|pyx_unpickle_\w+)|numpy\.ma\.(core|mrecords)\._m\w*reconstruct"
    r"|numpy\._?core\.(multiarray|numeric)\.(_reconstruct|scalar|_frombuffer)|numpy\.(rec|_?core\.records)\.(recarray|record)"
    r"|(numpy|torch)\.(dtype|ndarray|recarray|matrix|finfo|iinfo|poly1d|device)"
    r"|(numpy|torch)\.(((u|q|qu|c|b)?(int|float|complex)([0-9]+\w*)?)|(str|bytes|object|void|bool|half|(long)?double|timedelta|datetime)(_|[0-9]+)?)"
)
CLASSES: Final = frozenset(
    (Path(__file__).resolve().parents[1] / "data" / "pickled_classes.txt").read_text(encoding="utf-8").split()
)
"""Classes that hold layers, optimizers and values, and do nothing but that when they are made and get their state.

Each is listed under the module that defines it. A module also has what it imports: files, processes and what runs text.
"""
FRAMEWORKS: Final = frozenset({"torch", "torchgen", "functorch", "torchdata", "numpy"}) | frozenset(
    {"lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities"}
)
"""Packages of which a pickle names only what is listed here."""
EVALUATING: Final = frozenset(
    {"sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock"}
    | {"yaml", "joblib", "cloudpickle", "dill"}
)
"""Requirements of PyTorch, and pickling libraries, which evaluate (`sympy.sympify`) or load what they are given."""
_BESIDE_TEXT: Final = """
IPython PIL absl accelerate aiohttp apex bitsandbytes botocore boto3 click cupy cv2 dask datasets deepspeed
diffusers distributed fairscale fire fs gcsfs git google h5py httpx huggingface_hub hydra imageio ipykernel jax
jaxlib jupyter keras llvmlite lmdb matplotlib mlflow msgpack multiprocess nltk notebook numba numcodecs numexpr
omegaconf onnx onnxruntime optree orbax pandas paramiko peft pexpect polars psutil ptyprocess pyarrow pydantic
pytest ray requests rich s3fs safetensors scipy seaborn sh shap skimage sklearn smart_open spacy tensorboard
tensorboardX tensorflow tensorstore timm tokenizers toolz torchaudio torchmetrics torchrl torchtext torchvision
tornado tqdm transformers triton trl typer urllib3 wandb werkzeug xarray xformers zarr zmq
"""
_BESIDE: Final = frozenset(_BESIDE_TEXT.split())
"""Other packages of environments in which models are trained: some of their functions load, write and start things."""
_OVER_VALUES: Final = re.compile(
    r"(transformers\.(activations|optimization|data\.data_collator)|timm\.(layers|models)(\.\w+)*"
    r"|torchvision\.(transforms|ops|models)(\.\w+)*|torchaudio\.functional(\.\w+)*|jax\.(nn|numpy|lax)(\.\w+)*"
    r"|jax\._src\.(nn|numpy|lax)(\.\w+)*|torchmetrics\.functional(\.\w+)*|sklearn\.(metrics|preprocessing)(\.\w+)*"
    r"|scipy\.(special|stats|sparse)(\.\w+)*|tensorflow\.python\.(ops|keras\.activations)(\.\w+)*|keras\.(activations|losses)(\.\w+)*"
    r")\.(?!load|save|open|read|write|eval|exec|import|download|run|os$|sys$|io$)[a-z]\w*"
)
"""Functions of them that models and their schedules hold."""


def is_over_numbers(module: str, name: str) -> bool:
    """Whether a function of PyTorch or NumPy takes and makes numbers, and does nothing else with what it is given.

    >>> is_over_numbers("torch.nn.functional", "gelu"), is_over_numbers("torch._C", "_VariableFunctionsClass.relu")
    (True, True)
    >>> is_over_numbers("torch", "load"), is_over_numbers("torch.nn.functional", "importlib")
    (False, False)
    """
    module, _, own = f"{module}.{name}".rpartition(".")
    if "." in name and _CLASSES_OF_OPERATIONS.fullmatch(name.rpartition(".")[0]) is None:
        return False
    if own in _OPERATIONS and _OF_OPERATIONS.fullmatch(module) is not None:
        return True
    return _OTHERS.fullmatch(f"{module}.{own}") is not None


def is_kind(module: str, name: str) -> bool:
    """Whether a class of a framework, under its own name, holds layers, optimizers or values.

    >>> is_kind("torch.nn.modules.linear", "Linear"), is_kind("torch.nn", "modules.linear.Linear")
    (True, False)
    """
    return f"{module}:{name}" in CLASSES


def is_rebuilder(module: str, name: str) -> bool:
    """Whether a function of a framework makes a tensor or a value of its parts, or a name is that of a type."""
    return "." not in name and _REBUILDS.fullmatch(f"{module}.{name}") is not None


def is_beside(module: str, name: str) -> bool:
    """Whether a function is one of the packages next to a framework, and none that models hold.

    >>> is_beside("transformers.activations", "gelu_new"), is_beside("pandas", "read_pickle"), is_beside("my", "run")
    (False, True, False)
    """
    first = module.partition(".")[0]
    return first in _BESIDE | EVALUATING and _OVER_VALUES.fullmatch(f"{module}.{name}") is None
