"""Two replica sets of three members that clients reach only through proxies."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support.failpoints import FailPoints
from tests.support.members import ProxiedMembers
from tests.support.pair import Pair, Side
from tests.support.proxy import Network


class Proxied:
    """A source and a destination of three members each, whose clients connect through proxies.

    `network` contains the proxies of the destination. `networks` is a pair: the proxies of the source, and `network`.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.network = stack.enter_context(Network())
        self.networks = (stack.enter_context(Network()), self.network)
        source = stack.enter_context(ProxiedMembers("source", self.networks[0]))
        self.destination = stack.enter_context(ProxiedMembers("destination", self.network))
        self.points = stack.enter_context(FailPoints(self.destination))
        sides = [
            Side(each.uri, stack.enter_context(each.client()))
            for each in (source, self.destination)
        ]
        self.pair = Pair(sides[0], sides[1])
