"""The type checker of the test run: beartype, with an int accepted where a float is asked for, as in Python itself."""

from beartype import BeartypeConf, beartype

checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
