"""Writes the measurements of the ranks and agents of a large synthetic job, many ticks at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

START_US = 1_772_000_000_000_000
TICK_US = 10_000_000
STEPS_PER_TICK = 2
OPERATIONS_PER_STEP = 12
DEVICES_PER_NODE = 8
RECORDS_PER_AGENT_TICK = DEVICES_PER_NODE + 2
MEMORY_BYTES = 60_500_000_000
MEMORY_LIMIT_BYTES = 80_000_000_000
PAGE_BYTES = 2_097_152
WATTS_TENTHS = 6_300

Columns = dict[str, Any]


class Fleet:
    """Values of the ranks of one file, and of the agents of their nodes; all columns are whole numbers.

    Columns have an axis for ticks and one for ranks, devices or nodes. Devices are in order of their place in the node,
    then of the node, so that each agent counts its records up.
    """

    def __init__(self, ranks: range, seed: int) -> None:
        self.ranks: Any = np.arange(ranks.start, ranks.stop, dtype=np.int64)
        self.nodes = np.unique(self.ranks // DEVICES_PER_NODE)
        place = self.ranks % DEVICES_PER_NODE
        self.device_ranks = self.ranks[np.lexsort((self.ranks, place))]
        self._random = np.random.default_rng([seed, ranks.start])
        self._waits = self._random.integers(0, 10_000, len(ranks))
        self._joules = self._random.integers(1_000_000_000, 2_000_000_000, len(ranks))

    def _draw(self, low: int, high: int, num_ticks: int, num: int) -> Any:
        return self._random.integers(low, high, (num_ticks, num))

    @staticmethod
    def _common(first: int, num_ticks: int, places: Any) -> tuple[Any, Columns]:
        """Ticks as a column, and what all records have."""
        ticks = np.arange(first, first + num_ticks, dtype=np.int64)[:, None] + np.zeros_like(places)[None, :]
        return ticks, {"tick": ticks, "step": STEPS_PER_TICK * (ticks + 1)}

    def rank_columns(self, first: int, num_ticks: int) -> Columns:
        """Records of ranks."""
        num = len(self.ranks)
        ticks, common = self._common(first, num_ticks, self.ranks)
        micros = self._draw(490_000, 510_000, num_ticks, num)
        reserved = MEMORY_BYTES + PAGE_BYTES * self._draw(0, 500, num_ticks, num)
        return common | {
            "time": START_US + (ticks + 1) * TICK_US + self._draw(0, 2_000, num_ticks, num),
            "seq": ticks,
            "rank": self.ranks + 0 * ticks,
            "seconds": micros // 100_000,
            "seconds_fraction": micros % 100_000,
            "wait_fraction": self._waits + 0 * ticks,
            "operations": common["step"] * OPERATIONS_PER_STEP,
            "group": self.ranks % DEVICES_PER_NODE + 0 * ticks,
            "reserved": reserved,
            "active": reserved - PAGE_BYTES * self._draw(500, 900, num_ticks, num),
        }

    def device_columns(self, first: int, num_ticks: int) -> Columns:
        """Records of agents about devices."""
        num = len(self.ranks)
        ticks, common = self._common(first, num_ticks, self.ranks)
        watts = WATTS_TENTHS + self._draw(-150, 150, num_ticks, num)
        joules = self._joules + np.cumsum(watts * (TICK_US // 1_000_000) // 10, axis=0)
        self._joules = joules[-1]
        degrees = self._draw(580, 660, num_ticks, num)
        return common | {
            "time": START_US + (ticks + 1) * TICK_US + 500_000 + self._draw(0, 2_000, num_ticks, num),
            "seq": ticks * RECORDS_PER_AGENT_TICK + self.device_ranks % DEVICES_PER_NODE,
            "node": self.device_ranks // DEVICES_PER_NODE + 0 * ticks,
            "rank": self.device_ranks + 0 * ticks,
            "busy": self._draw(9_700, 9_999, num_ticks, num),
            "matrix": self._draw(4_500, 4_900, num_ticks, num),
            "used": MEMORY_BYTES + PAGE_BYTES * self._draw(0, 500, num_ticks, num),
            "watts": watts // 10,
            "watts_fraction": watts % 10,
            "joules": joules,
            "degrees": degrees // 10,
            "degrees_fraction": degrees % 10,
            "hertz": 1_755_000_000 - 15_000_000 * self._draw(0, 8, num_ticks, num),
        }

    def node_columns(self, first: int, num_ticks: int) -> Columns:
        """Records of agents about their hosts and about themselves; the latter one number and 1 ms later."""
        num = len(self.nodes)
        ticks, common = self._common(first, num_ticks, self.nodes)
        return common | {
            "time": START_US + (ticks + 1) * TICK_US + 510_000 + self._draw(0, 2_000, num_ticks, num),
            "seq": ticks * RECORDS_PER_AGENT_TICK + DEVICES_PER_NODE,
            "node": self.nodes + 0 * ticks,
            "memory": self._draw(3_000, 3_200, num_ticks, num),
            "cached": self._draw(4_000, 4_200, num_ticks, num),
            "pressure": self._draw(0, 20, num_ticks, num),
            "offset": self._draw(10, 99, num_ticks, num),
            "error": self._draw(200, 300, num_ticks, num),
            "lag": self._draw(10, 99, num_ticks, num),
        }
