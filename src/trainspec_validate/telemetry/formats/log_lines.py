"""Patterns of the lines by which console logs are recognised."""

from __future__ import annotations

DEEPSPEED_LINE = (
    r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}[,.][0-9]{3}\] \[INFO\] "
    r"\[\w{1,40}\.py:[0-9]{1,6}:\w{1,40}\] \[Rank 0\] "
    r"step=[0-9]{1,12}, skipped=[0-9]{1,12}, lr=\["
)
DEEPSPEED_PIPELINE_LINE = (
    r"(?:^|[\s:])steps: [0-9]{1,12} loss: [^\n]{1,2000} iter time \(s\): [^\s]{1,40} samples/sec: [^\s]{1,40}"
)
MEGATRON_LINE = (
    r"iteration(?:(?<=^iteration)|(?<=\]iteration)|(?<=(?<!,) iteration)) {1,12}[0-9]{1,15}/ {0,12}[0-9]{1,15} \|"
)
"""It begins with its word, which is found faster than what can be before it."""
_LAUNCHED = r"^(?:\[?(?:rank)?[0-9]{1,6}\]?: ?|\x1b\[[0-9;]{0,20}m){0,3}"
NANOGPT_LINE = (
    _LAUNCHED + r"iter [0-9]{1,12}: loss [-+0-9.einfaN]{1,40}(?: BPC)?, time [0-9][0-9.]{0,19}ms(?:[, \r\x1b]|$)"
)
MAXTEXT_LINE = r"^[^\n\"'`]{0,200}completed step: [0-9]{1,12}, seconds: {1,4}[0-9]"
TORCHTITAN_LINE = (
    r"^[^\n]{0,300}[0-9][0-9]:[0-9][0-9]:[0-9][0-9][,.][0-9]{3} - [\w.]{1,100} - INFO - (?:\x1b\[[0-9;]{0,20}m){0,4}"
    r"step: {1,6}[0-9]{1,12} {1,4}(?:\x1b\[[0-9;]{0,20}m){0,4}loss: {1,8}[-0-9.ni]"
)
NEMO_LINE = r"(?:^|[\r ])(?:Epoch|Training epoch) [0-9]{1,6}[:,][^\n\"']{0,400}\breduced_train_loss[=:] {0,2}[0-9.n]"
ROW_OF_STEP = (
    r'\A\s{0,8}\{(?=[^\n]{0,20000}"(?:train[_/])?(?:global_?)?(?:step|iteration|iter)s?"\s{0,8}:\s{0,8}[0-9])'
    r'(?=[^\n]{0,20000}"(?:\w{1,20}[_/])?loss"\s{0,8}:\s{0,8}(?:-?[0-9]|NaN|-?Infinity|null))'
    r"[^\n]{0,100000}\}[ \t\r]{0,8}\n\{"
)
"""The first of several lines of JSON, each an object with a step and a loss."""
_PROMETHEUS_LINE = (
    r"[a-zA-Z_:][a-zA-Z0-9_:]{0,300}\{[^\n]{0,2000}\}[ \t]+[-+0-9NI][^ \t\n]{0,40}(?:[ \t][^\n]{0,300})?\r?$"
)
_PROMETHEUS_TYPES = "counter|gauge|histogram|gaugehistogram|stateset|info|summary|unknown|untyped"
EXPOSITION = rf"^(?:# TYPE [a-zA-Z_:][a-zA-Z0-9_:]{{0,300}} (?:{_PROMETHEUS_TYPES})[ \t]*\r?$|{_PROMETHEUS_LINE})"
KERNEL_LINE = (
    r"NVRM: Xid \((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:|: SXid \(PCI:[0-9a-fA-F]{4,8}:"
    r"|amdgpu [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: [^\n]{0,80}hardware error"
)
