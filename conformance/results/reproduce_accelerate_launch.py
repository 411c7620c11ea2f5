"""Shows, without the suite, how many processes `accelerate launch` starts on a processor.

Run it: `accelerate launch --cpu --num_processes 2 reproduce_accelerate_launch.py`. Each process that is started prints
one line; there is one line, which counts one process, and the status is 0.
"""

from accelerate import Accelerator

found = Accelerator(cpu=True)
print(f"process {found.process_index} of {found.num_processes}, {found.distributed_type}")  # noqa: T201
