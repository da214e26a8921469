"""The program without its limits on how often it asks, so that an hour of polls is over in a minute.

Run as ``python -m benchmarks.at_speed run --poll.interval 5ms ...``. Never against Azure, which throttles.
"""

from exporter import config
from exporter.imds import client
from exporter.timefmt import parse_duration

if __name__ == "__main__":
    client.WINDOW_SECONDS = 0.0
    client.SHORTEST_SECONDS = 0.0
    config.parse_poll_interval = parse_duration
    # The flags import it when they are declared.
    from exporter.__main__ import main

    main()
