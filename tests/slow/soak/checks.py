"""What has to hold in a quiet moment, by the model of the documents that were served."""

from collections import Counter, defaultdict

from exporter.model.lifecycle import Life as ProgramLife
from exporter.model.messages import Message
from tests.model.compare import Line, expected_line, line_of
from tests.model.histories import NAME
from tests.model.life import Life, Poll, State, advance
from tests.model.reading import Event, plain_name, read
from tests.slow.soak.world import TARGETS, World, first_id

# These follow from what the program did, not from documents.
_OWN = ("approved", "hook_failed")
_HOOKED = ("scheduled", "started", "completed", "cancelled", "vanished")
What = tuple[str, str]


class Model:
    """The state by the model after all documents that were served until now."""

    def __init__(self) -> None:
        self.state = State()
        self.approvable: set[str] = set()
        self._read = 0
        self._watching = False

    def follow(self, world: World) -> None:
        for step in world.served[self._read :]:
            self._watching = self._watching and not step.restart
            try:
                document = read(step.body)
            except ValueError:
                continue
            poll = Poll(document, step.at, step.instance, self._watching, step.boot)
            self.state, _ = advance(self.state, poll)
            self._watching = True
            self.approvable |= {i for i, event in document.events.items() if event and may_be_approved(event)}
        self._read = len(world.served)

    @property
    def mine(self) -> list[Life]:
        return [life for life in self.state.lives if life.target == "self" and not life.silent]

    def told(self) -> Counter[What]:
        """Return how often each transition of this VM's events happened, by the first id of the event."""
        return Counter((life.ids[0], m.transition or "") for life in self.mine for m in life.transitions)


def may_be_approved(event: Event) -> bool:
    """Return whether the rule allows to approve an event as a document lists it."""
    names = map(plain_name, event.resources)
    return event.type == "Freeze" and event.kind == "scheduled" and NAME in names


def check(world: World, model: Model) -> None:
    model.follow(world)
    lives(world, model)
    for target in TARGETS:
        messages(world, model, target)
    hooks(world, model)
    approvals(world, model)
    spans(world, model)
    # The histories have a name of their own for the VM.
    expected = ("invalid_event", "imds_failing: not a document", "instance_name_differs")
    assert [problem for problem in world.bench.api("problems") if not problem.startswith(expected)] == []


def lives(world: World, model: Model) -> None:
    """Check that program and model know the same lives, with the same transitions at the same times."""
    snapshot = world.bench.app.snapshot
    got = Counter(_comparable(each) for each in (*snapshot.current, *snapshot.past))
    # Whether a start was seen depends on when the last success was written down.
    expected = Counter(
        expected_line(life)._replace(started=None) for life in model.state.lives if not life.silent
    )
    assert not got - expected, f"not expected: {got - expected}; instead of {expected - got}"
    assert not expected - got, f"missing: {expected - got}"


def _comparable(life: ProgramLife) -> Line:
    line = line_of(life)
    happened = tuple(each for each in line.happened if each[0] not in _OWN)
    return line._replace(started=None, happened=happened)


def messages(world: World, model: Model, target: str) -> None:
    """Check that every transition of this VM's events was reported once, those of one life in order.

    After an outage a message stands for earlier ones, which are not sent.
    """
    memory = world.bench.sender(target)
    arrived = {id(rendered) for rendered in memory.sent}
    sent = [
        (request.message.event.id.lower(), str(transition))
        for request, rendered in zip(memory.requests, memory.tried, strict=True)
        if id(rendered) in arrived and isinstance(request.message, Message)
        for transition in (*(earlier for earlier, _ in request.stands_for), request.message.transition)
    ]
    told = Counter(what for what in sent if what[1] not in _OWN)
    assert told == model.told(), f"{target}: too often {told - model.told()}, missing {model.told() - told}"
    failed = Counter(first_id(command) for command in world.failed_runs)
    assert Counter(i for i, transition in sent if transition == "hook_failed") == failed
    by_id = defaultdict(list)
    for life in model.mine:
        by_id[life.ids[0]].append([moment.transition for moment in life.transitions])
    for event_id, known in by_id.items():
        if len(known) == 1:
            got = [transition for i, transition in sent if i == event_id and transition not in _OWN]
            assert got == known[0], f"{target}: {event_id} was told as {got}, but was {known[0]}"


def hooks(world: World, model: Model) -> None:
    """Check that the hook ran once for each transition that it is for."""
    ran = Counter(
        (first_id(command), command.environment["EVENT_TRANSITION"]) for command in world.bench.commands
    )
    expected = Counter({what: n for what, n in model.told().items() if what[1] in _HOOKED})
    assert ran == expected, f"hooks ran too often {ran - expected}, or not {expected - ran}"


def approvals(world: World, model: Model) -> None:
    """Check that only what the rule allows was approved, once in a life, and became a transition."""
    asked = Counter(event_id.lower() for event_id in world.bench.approved)
    assert asked.keys() <= model.approvable, f"approved without leave: {asked.keys() - model.approvable}"
    snapshot = world.bench.app.snapshot
    noted: Counter[str] = Counter()
    for life in (*snapshot.current, *snapshot.past):
        times = [one for one in life.transitions if one.transition.value == "approved"]
        assert len(times) <= 1, f"{life.key} was approved {len(times)} times"
        noted[next((i.lower() for i in life.ids if i.lower() in asked), "")] += len(times)
    assert +noted == asked, f"approvals {asked}, of which {noted} are transitions"


def spans(world: World, model: Model) -> None:
    """Check that each life that has ended is one root span, and that no span arrived twice."""
    found = Counter((span.trace_id, span.span_id) for span in world.bench.receiver.spans)
    assert not [ids for ids, count in found.items() if count > 1]
    roots = sum(not span.parent_id for span in world.bench.receiver.spans)
    ended = sum(life.over for life in model.mine)
    assert roots == ended, f"{roots} root spans of {ended} lives"
