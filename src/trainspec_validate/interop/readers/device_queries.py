"""Lists the formats in which vendors' tools name the devices of one node."""

from __future__ import annotations

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import Kind
from trainspec_validate.interop.readers import _query_nvidia as nvidia
from trainspec_validate.interop.readers import _query_others as others

_KIND: Kind = "ClusterProfile"

FORMATS: tuple[Format, ...] = (
    Format("nvidia-smi-query-csv", "CSV of `nvidia-smi --query-gpu`", _KIND, nvidia.looks_like_csv, nvidia.read_csv),
    Format("nvidia-smi-log-xml", "XML of `nvidia-smi -q -x`", _KIND, nvidia.looks_like_xml, nvidia.read_xml),
    Format("dcgm-discovery", "list of `dcgmi discovery -l`", _KIND, nvidia.looks_like_dcgm, nvidia.read_dcgm),
    Format("tpu-info", "tables of `tpu-info`", _KIND, others.looks_like_tpu, others.read_tpu),
    Format("rocm-smi-list", "lists of `rocm-smi`", _KIND, others.looks_like_rocm, others.read_rocm),
    Format("amd-smi", "`amd-smi list` or `amd-smi static`", _KIND, others.looks_like_amd, others.read_amd),
)
