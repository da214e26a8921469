"""Runs the exporter where the program that checks targets is another: $HELD_PYTHON."""

import os
import sys

from exporter.cli import main

if __name__ == "__main__":
    sys.executable = os.environ["HELD_PYTHON"]
    main()
