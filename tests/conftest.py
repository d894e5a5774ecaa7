"""What all tests share."""

pytest_plugins = ["tests.claude_code", "tests.docker_engine", "tests.running_gateway"]
