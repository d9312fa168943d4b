"""OrderOption: the orders that a loader knows by name."""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import Any

from gpubeton.errors import OptionError
from gpubeton.traversal_order import QuasiRandom, Random, Sequential, TraversalOrder


@unique
class OrderOption(Enum):
    """Order in which a loader goes through its samples."""

    SEQUENTIAL = auto()
    """As its indices list them."""
    RANDOM = auto()
    """Shuffled anew for each epoch."""
    QUASI_RANDOM = auto()
    """Shuffled, but from few pages of the file at a time; for files that do not fit into memory."""


ORDER_TYPE = OrderOption | str | type[TraversalOrder]
"""What may be given as a loader's order."""

ORDER_MAP: dict[OrderOption, type[TraversalOrder]] = {
    OrderOption.SEQUENTIAL: Sequential,
    OrderOption.RANDOM: Random,
    OrderOption.QUASI_RANDOM: QuasiRandom,
}
"""The class of each order that has a name."""


def order_class(order: OrderOption | str | type[TraversalOrder]) -> type[TraversalOrder]:
    """Find the class of an order.

    Parameters
    ----------
    order : OrderOption, str or type of TraversalOrder
        An option, its name in small or capital letters, or the class itself.

    Returns
    -------
    type of TraversalOrder
        Its class.

    Raises
    ------
    OptionError
        If there is no such order.

    Examples
    --------
    >>> order_class("random") is order_class(OrderOption.RANDOM)
    True
    """
    found: Any = order
    if isinstance(order, str) and order.upper() in OrderOption.__members__:
        found = OrderOption[order.upper()]
    if isinstance(found, OrderOption):
        return ORDER_MAP[found]
    if isinstance(found, type) and issubclass(found, TraversalOrder):
        return found
    names = ", ".join(repr(option.name.lower()) for option in OrderOption)
    raise OptionError(
        f"order is {order!r}; expected one of {', '.join(map(str, OrderOption))}, its name ({names}), or a class "
        "derived from TraversalOrder (the class, not an object of it)"
    )
