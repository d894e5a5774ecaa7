"""What all tests share."""

pytest_plugins = ["tests.docker_engine", "tests.running_gateway"]
