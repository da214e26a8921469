import pytest

from exporter.errors import ConfigurationError, Mistakes, cause, one_line, without


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


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        (
            "jsons://h.test/x?+Authorization=Bearer%20abc123secret9",
            "token abc123secret9 expired",
            "token ... expired",
        ),
        ("https://h.test/x?abc123secret9", "no abc123secret9", "no ..."),
        ("https://h.test/x?k9s3=1", "unknown k9s3", "unknown ..."),
        ("https://h.test/x?format=a1b2c3", "no format a1b2c3", "no format ..."),
        ("json://al%40b:p%2Fw@h.test/CANARY%2Fabc", "al@b p/w canary/abc abc", "... ... ... ..."),
        ("json://al:pw@h.test", "Basic YWw6cHc=", "Basic ..."),
        ("https://h.test/abc123secret9", "not YWJjMTIzc2VjcmV0OQ== or YWJjMTIzc2VjcmV0OQ", "not ... or ..."),
        ("https://h.test/?k=s%C3%A9cret/1", "s%25C3%25A9cret%252F1 is s%C3%A9cret%2F1", "... is ..."),
        ("Bearer abc123?xyz789", "no xyz789 of abc123", "no ... of ..."),
        ("Bearer abcdefghi", "no ABCDEFGH", "no ..."),
        ("Bearer abcdefghi", "not abcdefgh abcdefX abcde", "not abcdefgh abcdefX abcde"),
        ("Bearer aaaaaabaaaaaac", "not aaaaaaabaaaaaa", "not a..."),
        ("Bearer abcdef\u0130xyz", "not \u0130\u0130 abcdef\u0130x", "not \u0130\u0130 ..."),
    ],
)
def test_what_foreign_texts_must_not_repeat(secret: str, text: str, shown: str) -> None:
    """No part of a target's URL and headers, however encoded or cut; names of parameters are common words."""
    assert without(text, [secret]) == shown
