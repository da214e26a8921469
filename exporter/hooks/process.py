"""What `exporter.hooks.command` needs of a process that runs, on whatever system."""

from typing import Protocol

CHUNK = 65536


class Running(Protocol):
    """A command that was started in a group of its own, with its output in one pipe."""

    def read(self, seconds: float) -> bytes | None:
        """Return output, waiting for it no longer than that; b"" at its end, None if none came."""
        ...

    def exited(self) -> bool:
        """Return whether the command itself has ended; what it started may go on."""
        ...

    def alive(self) -> bool:
        """Return whether the command, or anything of its group, still runs."""
        ...

    def ask_to_end(self) -> None:
        """Ask the whole group to end, in a way that it can handle."""
        ...

    def kill(self) -> None:
        """End the whole group, in the way that it cannot prevent."""
        ...

    def status(self) -> int | None:
        """Return the exit status, or minus the number of the signal that ended it; None if unknown."""
        ...

    def close(self) -> None:
        """Read no more of the output; whoever still writes there gets an error."""
        ...
