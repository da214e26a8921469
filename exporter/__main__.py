"""The entry point of the program: ``python -m exporter`` and the console script."""

import contextlib
import gc
import importlib
import os
import signal
import sys


def main() -> None:
    """Run the command line, or the sender process (see `exporter.outputs.notifications`)."""
    if sys.argv[1:2] == ["sender-process"]:
        if sys.platform != "win32" and sys.argv[2:]:
            from exporter.outputs.notifications import posix

            posix.main()
        from exporter.outputs.notifications import windows

        windows.main()
    if sys.argv[1:2] == ["run"]:
        _leave_first_process()
        _write_no_core()
        _prepare_signals()
        _import_program()
        _keep_heap_small()
    from exporter import cli

    try:
        cli.main()
    except SystemExit as ending:
        if sys.argv[1:2] == ["run"] and isinstance(ending.code, int):
            _end(ending.code)
        raise


def _end(status: int) -> None:
    """End the process without ending the interpreter, whatever its threads do.

    A thread that is checking a password, which can take minutes, would abort the process if it finished while
    the interpreter ends: bcrypt is written in Rust, which cannot be unwound as Python's threads then are.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _leave_first_process() -> None:
    """If this is process 1, as in a container without an init, continue in a child process.

    Process 1 becomes the parent of orphans of hooks, and must reap them. It forwards signals, and exits with
    the child's status.
    """
    if sys.platform != "win32" and os.getpid() == 1:
        signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        while True:
            number = signal.sigwait(signals)
            if number != signal.SIGCHLD:
                os.kill(child, number)
            _reap(child)


def _reap(child: int) -> None:
    """Reap all processes that have ended; exit with the child's status, as a shell reports it, if it has."""
    if sys.platform != "win32":
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    status = os.waitstatus_to_exitcode(ended[1])
                    os._exit(status if status >= 0 else 128 - status)


def _write_no_core() -> None:
    """Disable core files, as they would contain secrets; hooks may raise the limit for themselves."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _prepare_signals() -> None:
    """Handle signals while the exporter starts, which takes a second or more.

    SIGHUP stays pending until `exporter.app.run` handles it; other commands end with their terminal. SIGTERM
    and SIGINT end the process at once: there is nothing to clean up yet, and an exception could get lost in
    an import.
    """
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def _import_program() -> None:
    """Import what `run` needs, without the garbage collector.

    Modules are never freed. Searching them for garbage takes a tenth of the start, and more time later.
    """
    gc.disable()
    for name in ("exporter.cli", "exporter.app"):
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _keep_heap_small() -> None:
    """Configure glibc to return freed memory to the system, see mallopt(3).

    By default each thread has its own arena, and the threshold for mmap grows with each large block that is
    freed. The process then keeps most of the memory that a large document or response needed.
    """
    import ctypes  # Other commands do not need it.

    arena_max, mmap_threshold = -8, -3  # M_ARENA_MAX, M_MMAP_THRESHOLD
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(arena_max, 1)
        mallopt(mmap_threshold, 128 * 1024)


if __name__ == "__main__":
    main()
