"""What all tests share."""

import os
import signal

import hypothesis

pytest_plugins = ["tests.claude_code", "tests.docker_engine", "tests.running_gateway"]


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs under test, also where a shell runs the tests with `&`.

    Such a shell has its jobs ignore SIGINT, and whatever they start inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The same commit has the same verdict. TEST_EXPLORE=1 looks for what nobody thought of.
    hypothesis.settings.register_profile("same", derandomize=True)
    if "TEST_EXPLORE" not in os.environ:
        hypothesis.settings.load_profile("same")
