"""Measures gradient noise while a program trains; each framework has a module of its own."""

from __future__ import annotations

from trainspec_record.noise.estimate import Averages, Norms, Reading
from trainspec_record.noise.meter import NoiseMeter, NoiseSettings

__all__ = ["Averages", "NoiseMeter", "NoiseSettings", "Norms", "Reading"]
