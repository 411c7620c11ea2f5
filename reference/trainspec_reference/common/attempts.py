"""Numbers the formations of a run, across starts of the controller."""

from __future__ import annotations

from pathlib import Path

from trainspec_validate.system.atomic import write_atomically


class Attempts:
    """Numbers that only grow, kept in a small file."""

    def __init__(self, path: Path, least: int) -> None:
        self._path = path
        self.next_number = max(least, self._read() + 1)
        """Number of the next formation."""

    def _read(self) -> int:
        """The last number that was taken; -1 where there is none. A file that holds none is no reason to stop."""
        try:
            text = self._path.read_text(encoding="ascii")[:20].strip()
        except (OSError, UnicodeDecodeError):
            return -1
        return int(text) if text.isdecimal() else -1

    def take(self) -> int:
        """The next number, which no formation will have again.

        Raises:
            OSError: the file cannot be written.
        """
        number = self.next_number
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, f"{number}\n")
        self.next_number = number + 1
        return number
