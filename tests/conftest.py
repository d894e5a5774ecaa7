"""What all tests share."""

import signal

pytest_plugins = ["tests.claude_code", "tests.docker_engine", "tests.running_gateway"]


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs under test, also where a shell runs the tests with `&`.

    Such a shell has its jobs ignore SIGINT, and whatever they start inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
