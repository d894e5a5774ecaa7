"""The docker engine: a plan carried out by Docker Engine, Compose v2 and BuildKit.

engine      up, down, status, logs
compose     the `docker compose` command lines, and what runs them
containers  what the containers of a stack are doing, read from the engine
waiting     from `compose up` to an endpoint that answers
supply      where images come from: here, a registry, or a build
registry    images in a registry, named by what they were built from
build       an image, by one BuildKit run
logged      commands that take long: a log, and what people are told of it
progress    BuildKit's plain output as steps that people can follow
estimate    what a build costs, and whether the disk holds it
state       the files of a stack; cheap to import
"""
