import pytest

from exporter.errors import ConfigurationError, Mistakes, cause, one_line


def test_the_reason_of_an_error() -> None:
    """It is the innermost one, on one line of at most 160 characters, or the type of an error without any."""
    outer = RuntimeError("outer", ValueError("a\x1b[1m\n b"))
    assert cause(outer) == "a [1m b"
    outer.__cause__ = PermissionError(13, "Permission denied", "/x")
    found = [cause(error) for error in (outer, OSError("odd"), KeyError())]
    assert found == ["Permission denied", "odd", "KeyError"]
    assert [one_line("x" * 160), one_line("x" * 161)] == ["x" * 160, "x" * 159 + "…"]


def test_mistakes_are_collected() -> None:
    """Configuration errors are raised together, each once, by their lines; other errors at once."""
    mistakes = Mistakes()
    mistakes.check()
    for problems in (("a:b:10: x", "a:b:1: y"), ("a:b:9: z", "no line"), ("no line",)):
        with mistakes:
            raise ConfigurationError(*problems)
    with pytest.raises(ConfigurationError, match=r"^no line; a:b:1: y; a:b:9: z; a:b:10: x$"):
        mistakes.check()
    with pytest.raises(KeyError), mistakes:
        raise KeyError
