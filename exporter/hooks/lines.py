"""A command's output as lines for the log, however much of whatever it writes."""

from collections.abc import Callable

MOST_LINE_BYTES = 4096
MOST_LINES = 1000
MOST_BYTES = 256 * 1024
_CUT = " (line cut)"


class Lines:
    """Cuts bytes into lines of text and hands each to ``output`` as soon as it is complete.

    A line over `MOST_LINE_BYTES` is cut. After `MOST_LINES` lines or `MOST_BYTES` bytes of them, one line
    says that the rest is left out. What is not valid UTF-8 is replaced by U+FFFD.
    """

    def __init__(self, output: Callable[[str], None]) -> None:
        self._output = output
        self._line = bytearray()
        self._too_long = False
        self._lines_left = MOST_LINES
        self._bytes_left = MOST_BYTES
        self._full = False

    def feed(self, data: bytes) -> None:
        """Take in what comes next."""
        begin = 0
        while not self._full:
            end = data.find(b"\n", begin)
            if end < 0:
                self._extend(data[begin : begin + MOST_LINE_BYTES + 1])
                return
            self._extend(data[begin : min(end, begin + MOST_LINE_BYTES + 1)])
            self._hand_on()
            begin = end + 1

    def close(self) -> None:
        """Hand on a last line that has no line feed."""
        if self._line:
            self._hand_on()

    def say(self, text: str) -> None:
        """Add a line of this program's own, in brackets."""
        self._output(f"({text})")

    def _extend(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > MOST_LINE_BYTES:
            del self._line[MOST_LINE_BYTES:]
            self._too_long = True

    def _hand_on(self) -> None:
        line, too_long = bytes(self._line), self._too_long
        self._line.clear()
        self._too_long = False
        self._bytes_left -= len(line)
        if self._lines_left == 0 or self._bytes_left < 0:
            self._full = True
            self.say("the rest of the output is left out")
            return
        self._lines_left -= 1
        # A letter that the cut went through is left out, not replaced.
        text = line.decode(errors="replace") if not too_long else _decode_cut(line) + _CUT
        self._output(text.removesuffix("\r"))


def _decode_cut(line: bytes) -> str:
    for end in range(len(line), max(len(line) - 4, 0), -1):
        text = line[:end].decode(errors="replace")
        if not text.endswith("\ufffd"):
            return text
    return line.decode(errors="replace")
