"""The background process of one stack: starts its processes, notes their ends, stops them.

It never restarts one by itself. A crash is there to be seen: `status` tells it with the end of
the log, and `up` heals it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from zluda_stack import locks
from zluda_stack.engines import logs
from zluda_stack.engines.embedded import commands
from zluda_stack.engines.embedded.state import (
    ENDPOINT,
    INFERENCE,
    SUPERVISOR,
    ProcessRecord,
    RunRecord,
    StackFolder,
    read_plan,
    write_record,
)
from zluda_stack.errors import StackError

_ENDPOINT_STOP_SECONDS = commands.DRAIN_SECONDS + 4
_INFERENCE_STOP_SECONDS = 5

STOP_SECONDS = _ENDPOINT_STOP_SECONDS + _INFERENCE_STOP_SECONDS
"""How long a supervisor takes at most to stop everything after SIGTERM."""


class Supervisor:
    """Owns the processes of one stack; `run` returns when it was told to stop."""

    def __init__(self, folder: StackFolder, port: int) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lifelines: list[int] = []
        self._record = RunRecord(supervisor=os.getpid(), port=port)

    def run(self, service_commands: dict[str, tuple[str, ...]]) -> None:
        """Start the services, in order; stop them in the reverse order on SIGTERM or SIGINT."""
        self._folder.report.unlink(missing_ok=True)
        write_record(self._folder, self._record)
        for service, command in service_commands.items():
            self._start(service, command)
        awaited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
        # Blocked only now, since a child inherits the mask. A child that has ended already is
        # found before the first wait, and SIGTERM until now ended all through the tether.
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        self._note_ends()
        while signal.sigwait(awaited) == signal.SIGCHLD:
            self._note_ends()
        self._drain()

    def _start(self, service: str, command: tuple[str, ...]) -> None:
        log = logs.open_fresh(self._folder.log(service))
        lock = locks.take(self._folder.lock(service))
        if lock is None:
            raise RuntimeError(f"a process of an earlier run still is the {service}")
        read_end, write_end = os.pipe()
        # The lock is inherited: it is held until the child, and nothing else, has ended.
        process = subprocess.Popen(
            commands.tethered(read_end, command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(read_end, lock),
        )
        for descriptor in (log, lock, read_end):
            os.close(descriptor)
        self._lifelines.append(write_end)
        self._processes[service] = process
        self._note(service, ProcessRecord(pid=process.pid))
        _say(f"{service} started, pid {process.pid}")

    def _note_ends(self) -> None:
        for service, process in self._processes.items():
            known = self._record.processes[service]
            if known.exit_status is None and process.poll() is not None:
                status = process.returncode
                _say(f"{service} ended by itself, exit status {status}")
                self._note(
                    service,
                    ProcessRecord(pid=process.pid, exit_status=status, ended=time.time()),
                )

    def _note(self, service: str, process: ProcessRecord) -> None:
        processes = {**self._record.processes, service: process}
        self._record = msgspec.structs.replace(self._record, processes=processes)
        write_record(self._folder, self._record)

    def _drain(self) -> None:
        _say("stopping")
        write_record(self._folder, msgspec.structs.replace(self._record, draining=True))
        self._stop(ENDPOINT, _ENDPOINT_STOP_SECONDS)
        self._stop(INFERENCE, _INFERENCE_STOP_SECONDS)
        for path in (self._folder.socket, self._folder.report, self._folder.record):
            path.unlink(missing_ok=True)
        _say("stopped")

    def _stop(self, service: str, seconds: float) -> None:
        process = self._processes[service]
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            _say(f"{service} did not end within {seconds} s and is killed")
            process.kill()
            process.wait()


def _say(text: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(now, text, flush=True)  # noqa: T201 - standard output is the log


def _leave_terminal(log: Path) -> None:
    """Go on as a child of init, in a session of its own, with `log` as standard output."""
    descriptor = logs.open_fresh(log)
    if os.fork():
        os._exit(0)
    os.setsid()
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def main() -> None:
    """Take the stack's lock, go into the background and supervise.

    Exits with 0 as soon as the background process holds the lock.
    """
    parser = argparse.ArgumentParser(prog="supervisor", description=__doc__)
    parser.add_argument("folder", type=Path, help="state folder of the stack, with its plan.json")
    parser.add_argument("model", type=Path, help="GGUF file")
    options = parser.parse_args()
    folder = StackFolder(options.folder.absolute())
    plan = read_plan(folder)
    if plan is None:
        sys.exit(f"{folder.plan} is missing or not a plan")
    os.chdir(folder.root)
    if locks.take(folder.lock(SUPERVISOR)) is None:
        sys.exit(f"another supervisor owns {folder.root}")
    _leave_terminal(folder.log(SUPERVISOR))
    try:
        Supervisor(folder, plan.endpoint.port).run(
            {
                INFERENCE: commands.inference(plan, options.model),
                ENDPOINT: commands.endpoint(folder, plan),
            }
        )
    except (OSError, RuntimeError, StackError) as error:
        sys.exit(f"the supervisor gives up: {error}")


if __name__ == "__main__":
    main()
