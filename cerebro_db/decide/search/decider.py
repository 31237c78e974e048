"""The decider of a search, which decides the same again from the same results.

A driver that goes on with a run has its decisions made once more first: each must come out as it was stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence

from msgspec import structs

from cerebro_db.configs.grids.model_selection import Frameworks
from cerebro_db.core.decisions import Decision, Request
from cerebro_db.core.events import Allowance
from cerebro_db.core.ports import Outlook
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.state import RunState
from cerebro_db.decide.search.course import Course, Made
from cerebro_db.decide.search.requests import Requests
from cerebro_db.decide.search.sampling import Fault
from cerebro_db.decide.search.trials import RUNNING, Trial
from cerebro_db.errors import InvalidData


class SearchDecider:
    """Decides a search in virtual time; resumed, it decides the same from the scores of the run.

    Args:
        spec: of the search.
        fault: tells what cannot be trained.
        stored: decisions that earlier drivers have made.
        frameworks: of the models, by model_id.
    """

    is_open = True

    def __init__(
        self,
        spec: SearchSpec,
        fault: Fault,
        stored: Sequence[Decision] = (),
        frameworks: Frameworks | None = None,
    ) -> None:
        self._course = Course(spec, fault, frameworks or {})
        self._requests = Requests(self._course)
        self._stored = deque(enumerate(stored, 1))
        # News of the run, when what they lead to was decided last.
        self._seen = -1
        self._unfinished: Iterator[Made] = iter(())
        # Of the stored decision that is made again at present.
        self._number = 0

    @property
    def trials(self) -> Mapping[int, Trial]:
        """Trials by mst_key."""
        return self._course.ledger.trials

    def decide(self, state: RunState) -> Iterator[Made]:
        """Decisions that follow from the results that are known."""
        if self._stored:
            yield from self._catch_up(state)
        elif self._seen == state.news:
            return
        yield from self._unfinished
        self._unfinished = self._course.advance(state)
        yield from self._unfinished
        self._seen = state.news

    def follow(self, state: RunState, request: Request) -> Iterator[Made]:
        """Decisions that follow from a request of another session, or of the clock, which was checked."""
        self._seen = -1
        yield from self._requests.follow(state, request)

    def _catch_up(self, state: RunState) -> Iterator[Allowance]:
        """Repeat the decisions of earlier drivers; yields the allowances that hold after them."""
        found: dict[int, Allowance] = {}
        while self._stored:
            self._number, self._course.expected = self._stored.popleft()
            self._course.known_results.extend(self._course.expected.results)
            for one in self._restore(state, self._course.expected):
                found[one.mst_key] = one
        self._course.expected = None
        yield from (one for key, one in found.items() if self.trials[key].status == RUNNING)

    def _restore(self, state: RunState, one: Decision) -> Iterator[Allowance]:
        """Make a stored decision once more; yields what is allowed by it."""
        if one.who:
            yield from self._until(one, self._unfinished, None)
            yield from self._until(one, self._course.advance(state), None)
            self._unfinished = self._requests.follow(state, one.as_request())
            yield from self._until(one, self._unfinished, one)
            return
        found = yield from self._until(one, self._unfinished, one)
        if not found:
            self._unfinished = self._course.advance(state)
            found = yield from self._until(one, self._unfinished, one)
        if not found:
            _check_same(self._number, one, None)

    def _until(
        self, one: Decision, made: Iterator[Made], wanted: Decision | None
    ) -> Generator[Allowance, None, bool]:
        """Go on until a decision comes; whether one came, which must be the wanted one.

        Before a request nothing else was decided.
        """
        for each in made:
            if isinstance(each, Allowance):
                yield each
                continue
            _check_same(self._number, wanted or structs.replace(one, action=""), each)
            return True
        return False

    def check(self, state: RunState, request: Request) -> None:
        """Check that a request can be followed.

        Raises:
            InvalidArgument: why not.
        """
        self._requests.check(state, request)

    @property
    def waits(self) -> bool:
        """True while the search waits for configurations of others."""
        return self._course.ledger.waits

    def gives_up(self, error: Exception) -> bool:
        """False: who drives the search decides what an error ends."""
        return False

    def shortfall(self, state: RunState) -> str | None:
        """Reason that no trial has come to the last epochs; None where one has."""
        return self._course.ledger.shortfall()

    def outlook(self) -> Outlook:
        """Size that the search will have."""
        return self._course.ledger.outlook()


def _check_same(number: int, one: Decision, made: Decision | None) -> None:
    """Check that a decision comes out as it was stored.

    Raises:
        InvalidData: it does not.
    """
    if made is None or one.core != made.core:
        raise InvalidData(
            f"decision {number} of the run: got {_shown(one)}; the same results lead to "
            f"{'none' if made is None else _shown(made)}",
            hint="another version of Optuna or Cerebro-DB decides otherwise; "
            "cerebro.cerebro_replay(run_id) repeats decisions as they are recorded",
        )


def _shown(one: Decision) -> str:
    keys = ", ".join(str(change.mst_key) for change in one.changes[:5])
    return f"{one.action} of {keys or 'the search'}"
