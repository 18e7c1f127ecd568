"""The command line called in this process, as a user calls it."""

from typer.testing import CliRunner

from epoch0.cli import app


def epoch0(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command; what is no exit is raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr
