"""Every model of the catalog is a model section that the specification accepts, and its parameters are its shape's."""

from __future__ import annotations

import pytest

from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.catalog import CatalogModel, models
from trainspec_validate.performance.costs.transformer import parameters
from trainspec_validate.performance.derived.plan import shape_of

UNCOUNTED = {"latent", "linear"}
"""Attention whose projections the count leaves alone."""


@pytest.mark.parametrize("entry", models().values(), ids=lambda entry: entry.name)
def test_parameters_follow_from_the_shape(entry: CatalogModel) -> None:
    model = part(Model, {"name": entry.name, **entry.model})
    shape = shape_of(model)
    assert shape is not None
    assert entry.source
    if model.attention not in UNCOUNTED:
        assert parameters(shape).total == pytest.approx(model.num_parameters, rel=5e-3)
        assert parameters(shape).active == pytest.approx(model.num_active_parameters or model.num_parameters, rel=5e-3)
