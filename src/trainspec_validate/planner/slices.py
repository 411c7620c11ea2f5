"""Says whether a number of TPU chips makes a slice that can be had."""

from __future__ import annotations

from trainspec_validate.model.units import number

_CUBE = 64
_CUBED = ("google-tpu-v4", "google-tpu-v5p", "google-tpu-v7x")
"""Tori in three dimensions: up to half a cube of 4 x 4 x 4 chips, then whole cubes.
Source: https://docs.cloud.google.com/tpu/docs/v4, v5p, tpu7x."""
_SMALL_CUBED = (4, 8, 16, 32)
_FLAT = ("google-tpu-v5e", "google-tpu-v6e")
_FLAT_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)
"""Meshes in two dimensions. Source: https://docs.cloud.google.com/tpu/docs/v5e, v6e."""


def no_slice(accelerator: str, num_chips: int, domain: int) -> str | None:
    """Why so many chips are neither a slice nor several slices of the domain; None where they are.

    >>> no_slice("google-tpu-v5p", 100, 8960)
    '100 chips are no slice of google-tpu-v5p; the nearest are 64 and 128; set --num-ranks'
    >>> no_slice("google-tpu-v5p", 512, 8960), no_slice("google-tpu-v6e", 512, 256), no_slice("my-own", 100, 100)
    (None, None, None)
    """
    if not accelerator.startswith(_CUBED + _FLAT) or _is_slice(accelerator, num_chips):
        return None
    if domain and num_chips > domain and num_chips % domain == 0 and _is_slice(accelerator, domain):
        return None
    lower = next((size for size in range(num_chips - 1, 0, -1) if _is_slice(accelerator, size)), None)
    higher = next((size for size in range(num_chips + 1, num_chips + 2 * _CUBE) if _is_slice(accelerator, size)), None)
    near = " and ".join(number(size) for size in (lower, higher) if size is not None)
    return f"{number(num_chips)} chips are no slice of {accelerator}; the nearest are {near}; set --num-ranks"


def _is_slice(accelerator: str, num_chips: int) -> bool:
    if accelerator.startswith(_FLAT):
        return num_chips in _FLAT_SIZES
    return num_chips in _SMALL_CUBED or num_chips % _CUBE == 0
