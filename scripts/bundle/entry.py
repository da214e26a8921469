"""The entry point of the self-contained build: the program and, as ``-P -m MODULE``, its child processes.

In it `sys.executable` is this program, not an interpreter.
"""

import os
import runpy
import ssl
import sys
from pathlib import Path

# Where distributions keep their certificate authorities. OpenSSL looks only where that of the build does.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)


def main() -> None:
    """Run the program, or one of its modules."""
    _clean_environment()
    _find_authorities()
    if sys.argv[1:3] == ["-P", "-m"] and sys.argv[3].startswith("exporter."):
        del sys.argv[1:3]
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    else:
        from exporter.__main__ import main as program

        program()


def _clean_environment() -> None:
    """Remove what PyInstaller's loader sets for itself, so that hooks do not load our libraries."""
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]
    before = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
    if before:
        os.environ["LD_LIBRARY_PATH"] = before
    else:
        os.environ.pop("LD_LIBRARY_PATH", None)


def _find_authorities() -> None:
    """Name the system's certificate authorities to OpenSSL if they are not where it looks."""
    paths = ssl.get_default_verify_paths()
    found = [path for path in _AUTHORITIES if Path(path).exists()]
    if found and not (paths.cafile or paths.capath):
        os.environ.setdefault("SSL_CERT_FILE", found[0])


if __name__ == "__main__":
    main()
