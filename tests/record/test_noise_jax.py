"""Gradient noise in JAX: on virtual devices within a mapped function, and over the micro-batches of one device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainspec_record.noise import Norms

from .recorded import SOURCE

pytest.importorskip("jax")

SCRIPT = """
import json, sys
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from trainspec_record.noise import NoiseMeter, NoiseSettings
from trainspec_record.noise.jax import Groups, JaxNoise, accumulation_format, mean_and_sums

SIZES, FEATURES = 4, 24
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

def loss(weights, x):  # the gradient of a sample is the sample
    return (x @ weights["first"] + x @ weights["second"]).mean()

def mapped(weights, x, units):
    mine = jax.lax.pcast(weights, "data", to="varying")
    scaled = jax.grad(lambda w: SCALE * loss(w, x))(mine)
    gradient = jax.tree.map(lambda g: g / SCALE, scaled)
    return mean_and_sums(gradient, units[0], "data")

def accumulated(weights, x, units):
    mine = jax.lax.pcast(weights, "data", to="varying")
    def micro(groups, part):
        return groups.add(jax.grad(loss)(mine, part), units[0] / 2), None
    start = Groups.none(mine)
    groups, _ = jax.lax.scan(micro, start, x.reshape((2, -1, x.shape[1])))
    return groups.finish("data")

class Kept:
    is_on = True
    settings = NoiseSettings("sequence", [4] * 4)
    norms = []
    def add(self, norms):
        self.norms.append([float(each) for each in norms])

weights = {"first": jnp.ones((FEATURES, 1)), "second": jnp.ones((FEATURES, 1))}
found = {"format": accumulation_format()}
for name, function, SCALE in (("mapped", mapped, 1.0), ("scaled", mapped, 65536.0), ("accumulated", accumulated, 1.0)):
    step = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P())))
    kept, inputs = Kept(), []
    kept.norms = []
    noise = JaxNoise(kept, sync_every=3)
    for number in range(6):
        x = jax.random.normal(jax.random.key(number), (16, FEATURES)) + 0.3
        mean, sums = step(weights, x, jnp.full((4,), 4.0))
        noise.update(sums)
        inputs.append(x.tolist())
    found[name] = kept.norms
    found["mean"] = mean["first"][:, 0].tolist()
found["inputs"] = inputs
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module", params=["0", "1"])
def found(request: pytest.FixtureRequest) -> dict[str, object]:
    """What the script found, with 32 and with 64 bits."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": SOURCE,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": request.param,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4 --xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["format"] == ("fp64" if request.param == "1" else "fp32")
    return answer


def expected(found: dict[str, object], num_groups: int) -> list[list[float]]:
    import numpy as np

    told = []
    for x in np.array(found["inputs"]):
        groups = x.reshape((num_groups, -1, x.shape[1])).mean(axis=1)
        squares = 2 * (groups**2).sum(axis=1)  # two maps with the same input
        told.append(
            list(Norms.of_groups([16 / num_groups] * num_groups, squares, 2 * float((x.mean(axis=0) ** 2).sum())))
        )
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "num_groups"), [("mapped", 4), ("scaled", 4), ("accumulated", 8)])
def test_norms_are_those_of_the_samples(found: dict[str, object], kind: str, num_groups: int) -> None:
    wanted = expected(found, num_groups)
    assert len(found[kind]) == 6  # type: ignore[arg-type]
    for one, other in zip(found[kind], wanted, strict=True):  # type: ignore[call-overload]
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.slow
def test_the_mean_is_that_of_all_samples(found: dict[str, object]) -> None:
    import numpy as np

    assert found["mean"] == pytest.approx(np.array(found["inputs"])[-1].mean(axis=0), abs=1e-6)


def test_uneven_groups_are_weighted(tmp_path: Path) -> None:
    import jax.numpy as jnp

    from trainspec_record.noise.jax import Groups

    groups = Groups.none({"w": jnp.zeros(2)})
    for size, value in ((1, 5.0), (3, 1.0)):
        groups = groups.add({"w": jnp.array([value, 0.0])}, size)
    mean, sums = groups.finish()
    squares, units, num_groups, square_of_mean = sums.tolist()
    assert mean["w"].tolist() == [2.0, 0.0]
    norms = Norms(num_groups, units, squares / units, square_of_mean)
    assert (norms.signal_sq, norms.noise_trace) == (1.0, 12.0)
