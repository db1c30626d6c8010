"""Imports that a model's code often forgets, by the name it then lacks."""

from typing import Final

__all__ = ["COMMON_IMPORTS"]

_MODULES: Final = (
    "bisect cmath collections copy csv datetime decimal fractions functools heapq io itertools json math "
    "operator os random re statistics string sys textwrap time numpy pandas scipy sympy"
)
_MEMBERS: Final = {
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "dataclasses": "dataclass field",
    "datetime": "date timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "functools": "cache lru_cache partial reduce",
    "itertools": "accumulate chain combinations permutations product",
    "math": "ceil comb cos exp factorial floor gcd log pi sin sqrt tan",
    "typing": "Any Callable Dict List Optional Set Tuple Union",
}
_SHORT: Final = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sp": "sympy"}

COMMON_IMPORTS: Final[dict[str, str]] = {
    **{name: f"import {name}" for name in _MODULES.split()},
    **{name: f"from {module} import {name}" for module, names in _MEMBERS.items() for name in names.split()},
    **{name: f"import {module} as {name}" for name, module in _SHORT.items()},
}
"""The statement that provides each name."""
