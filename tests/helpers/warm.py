"""Python code in processes that have their imports behind them: forks of one that has loaded scikit-learn.

    with Warm("sinkprop.cli", "sklearn.base") as warm:
        done = warm.run(PROGRAM, "evaluate", path, "--feature", "1", env={"TERM": "dumb"})

A fresh interpreter spends one to two seconds of a processor on imports, and many tests only want a process:
with streams, an environment, a working folder and an exit status of its own. What belongs to a fresh
interpreter (its imports, its options, what it does with signals) is tested in one.

This file is also the client: `python -I -S warm.py SOCKET CODE ARGUMENT ...` runs the code in the place
of `python -c CODE ARGUMENT ...`, so that a shell script can call it, in pipes and with redirections.
"""

from __future__ import annotations

import json
import os
import socket
import sys

PROGRAM = "from sinkprop.cli import main; main()"


class Warm:
    """A process that has imported modules and forks for each case."""

    def __init__(self, *modules: str, options: tuple[str, ...] = ()) -> None:
        import subprocess
        import tempfile

        import pytest

        if not hasattr(os, "fork"):
            pytest.skip("this system does not fork")
        self.folder = tempfile.TemporaryDirectory(prefix="warm")
        self.address = os.path.join(self.folder.name, "socket")
        code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import warm; warm.serve()"
        self.process = subprocess.Popen(
            [sys.executable, *options, "-c", code, self.address, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the process that imports {', '.join(modules)} has failed; see stderr")

    def run(self, code, *arguments, env=None, cwd=None, input="", streams=None):
        """`python -c code arguments` as subprocess.run gives it: its exit status, output and errors as text.

        env      what is added to this process's environment
        streams  the path of a terminal for stdin, stdout and stderr; then there is no output to return
        """
        import contextlib
        import subprocess
        import tempfile

        command = [code, *map(str, arguments)]
        if streams is not None:
            terminal = os.open(streams, os.O_RDWR | os.O_NOCTTY)
            try:
                status = ask(self.address, command, [terminal] * 3, env or {}, cwd)
            finally:
                os.close(terminal)
            return subprocess.CompletedProcess(command, status)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(input.encode())
            files[0].seek(0)
            status = ask(self.address, command, [file.fileno() for file in files], env or {}, cwd)
            for file in files[1:]:
                file.seek(0)
            out, error = (file.read().decode() for file in files[1:])
        return subprocess.CompletedProcess(command, status, out, error)

    def shim(self, code: str, *, takes_code: bool = False) -> str:
        """A shell script that runs the code, or with takes_code that of its option -c, with its arguments."""
        client = f'exec "{sys.executable}" -I -S "{__file__}" "{self.address}"'
        return f'#!/bin/sh\nshift\n{client} "$@"\n' if takes_code else f'#!/bin/sh\n{client} "{code}" "$@"\n'

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()  # which ends it
        self.process.stdout.close()
        self.process.wait()
        self.folder.cleanup()


def ask(address, command, streams, env, cwd=None) -> int:
    """The exit status of a command that ran with these streams; -n if signal n ended it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"3"], streams)
        request = {"command": command, "env": {**os.environ, **env}, "cwd": os.fspath(cwd or os.getcwd())}
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as answer:
            return int(answer.readline())


def serve() -> None:
    """Import the modules of the command line, and fork for each connection until stdin ends."""
    import importlib
    import select
    from contextlib import suppress

    address, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    print("ready", flush=True)
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(connection)
        connection.close()
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    listener.close()


def answer(connection) -> None:
    """Run one command in a fork of this process, and tell how it ended."""
    streams = socket.recv_fds(connection, 1, 3)[1]
    with connection.makefile() as lines:
        request = json.loads(lines.readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        execute(**request)
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def execute(command, env, cwd) -> None:
    """What `python -c` does: with these streams, environment and folder, and at the end an exit status."""
    import atexit
    import multiprocessing.util
    import threading
    import traceback

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    encoding, _, errors = env.get("PYTHONIOENCODING", "").partition(":")
    given = {"encoding": encoding or "utf-8", "errors": errors or "strict", "closefd": False}
    sys.stdin = open(0, **given)  # noqa: SIM115
    sys.stdout = open(1, "w", **given)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, **{**given, "errors": "backslashreplace"})  # noqa: SIM115
    code, *arguments = command
    sys.argv[:] = ["-c", *arguments]
    sys.path[:2] = [""]  # instead of this file's folder
    status = 0
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status == 1 and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    multiprocessing.util._exit_function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    status = ask(sys.argv[1], sys.argv[2:], [0, 1, 2], {})
    if status < 0:  # a shell's way to tell of a signal
        status = 128 - status
    raise SystemExit(status)
