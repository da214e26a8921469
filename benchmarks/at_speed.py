"""The program without its limits on how often it asks, so that an hour of polls is over in a minute.

Run as ``python -m benchmarks.at_speed run --poll.interval 5ms ...``. Never against Azure, which throttles.
"""

from exporter.config import PollInterval
from exporter.imds import client
from exporter.timefmt import Duration


def _any_interval(_: type[PollInterval], text: object) -> PollInterval:
    return PollInterval(Duration.parse(text))


if __name__ == "__main__":
    client._WINDOW_SECONDS = 0.0  # noqa: SLF001  # that is what this is for
    client._SHORTEST_SECONDS = 0.0  # noqa: SLF001  # as above
    PollInterval.parse = classmethod(_any_interval)  # type: ignore[assignment,method-assign]  # as above
    # The flags take what they read with from there when they are declared.
    from exporter.__main__ import main

    main()
