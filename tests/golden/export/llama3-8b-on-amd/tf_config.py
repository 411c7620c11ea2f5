# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile zyphra-ibm-mi300x.
# Settings were checked against TensorFlow 2.21.0.
import json

import tensorflow as tf

NUM_WORKERS = 16  # one for each node; each drives its 8 accelerators
GLOBAL_BATCH_SIZE = 256  # plan: batch.global_sequences


def tf_config(hosts: list[str], index: int, port: int = 12345) -> str:
    """The value of TF_CONFIG for one worker; hosts in rank order, one for each node."""
    if len(hosts) != NUM_WORKERS:
        raise ValueError(f"{len(hosts)} hosts, but the plan takes {NUM_WORKERS}")
    workers = [f"{host}:{port}" for host in hosts]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})


def strategy() -> tf.distribute.Strategy:
    """The strategy; set TF_CONFIG before TensorFlow starts and make the strategy before anything else."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")  # plan: precision.compute
    return tf.distribute.MultiWorkerMirroredStrategy()
