"""The tables of a SQL catalog beside what is registered: rules of operators, declared peaks,
quarantines that were lifted, answers that were accepted, and what was learned.

Beside them, how every part of the catalog in a database gets its connections.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, func, insert, select

from variants.catalog import counters, tables
from variants.catalog.changes import advance_revision
from variants.catalog.database import (
    BUSY_TIMEOUT_S,
    failures_explained,
    make_engine,
    poller,
    snapshot_reader,
    writer,
)
from variants.catalog.turns import Turns
from variants.catalog.validity.absent import no_peak, no_rule, no_variant
from variants.catalog.validity.peaks import check_learned, check_lift, check_peak, check_room
from variants.catalog.validity.plans import check_leads
from variants.catalog.validity.rules import check_accepted, check_rule, check_rule_room
from variants.errors import StaleEpoch
from variants.types import (
    AcceptedAnswers,
    Peak,
    QuarantineLift,
    Rule,
    RuleKind,
    TaskName,
    VariantName,
)

_PEAKS = select(tables.peaks).order_by(tables.peaks.c.start_s, tables.peaks.c.id)
"""Made once: the control loop asks it in each turn."""


class SqlPlanningTables:
    """The part of ``variants.catalog.protocol.Catalog`` about rules, peaks, quarantines and
    learning.

    The constructor connects to nothing.
    """

    def __init__(self, url: str, patience_s: float = BUSY_TIMEOUT_S) -> None:
        """
        Args:
            patience_s: how long a writer waits for other writers.
        """
        self._engine = make_engine(url, patience_s)
        self._patience_s = patience_s
        self._turns = None
        if self._engine.dialect.name == "sqlite":
            self._turns = Turns(Path(str(self._engine.url.database)))
        self._writer = writer(self._engine)
        self._reader = snapshot_reader(self._engine)
        self._poller = poller(self._engine)
        self._led: dict[int, str] = {}
        """The marks of the epochs in which this process led."""

    def add_peak(self, peak: Peak) -> Peak:
        check_peak(peak)
        with self._transaction(self._writer) as connection:
            stored = replace(peak, id=counters.advance(connection, "peak"))
            count = select(func.count()).select_from(tables.peaks)
            check_room(connection.execute(count).scalar_one())
            connection.execute(insert(tables.peaks), asdict(stored))
            return stored

    def peaks(self) -> tuple[Peak, ...]:
        with self._transaction(self._poller) as connection:
            return tuple(Peak(**row._mapping) for row in connection.execute(_PEAKS))

    def remove_peak(self, id: int) -> None:
        with self._transaction(self._writer) as connection:
            if not connection.execute(delete(tables.peaks).where(tables.peaks.c.id == id)).rowcount:
                known = connection.scalars(select(tables.peaks.c.id).order_by(tables.peaks.c.id))
                raise no_peak(id, known)

    def put_rule(self, rule: Rule) -> Rule:
        check_rule(rule)
        table = tables.rules
        with self._transaction(self._writer) as connection:
            advance_revision(connection)
            if rule.task:
                check_variant(connection, rule.task, rule.variant)
            known = {each.subject: each for each in read_rules(connection)}
            if (same := known.get(rule.subject)) is None:
                check_rule_room(len(known))
                stored = replace(rule, id=counters.advance(connection, "rule"))
            else:
                stored = replace(rule, id=same.id)
                connection.execute(delete(table).where(table.c.id == same.id))
            connection.execute(insert(table), asdict(stored))
            return stored

    def rules(self) -> tuple[Rule, ...]:
        with self._transaction(self._poller) as connection:
            return read_rules(connection)

    def remove_rule(self, id: int) -> Rule:
        with self._transaction(self._writer) as connection:
            advance_revision(connection)
            rules = read_rules(connection)
            found = next((rule for rule in rules if rule.id == id), None)
            if found is None:
                raise no_rule(id, (rule.id for rule in rules))
            connection.execute(delete(tables.rules).where(tables.rules.c.id == id))
            return found

    def lift_quarantine(self, lift: QuarantineLift) -> None:
        check_lift(lift)
        lifts = tables.quarantine_lifts
        same = (lifts.c.task == lift.task, lifts.c.variant == lift.variant)
        with self._transaction(self._writer) as connection:
            # The counter's row lines up writers: two may lift the same at once.
            counters.lock(connection, "inventory")
            check_variant(connection, lift.task, lift.variant)
            known = connection.scalar(select(lifts.c.at_s).where(*same))
            if known is None or known < lift.at_s:
                connection.execute(delete(lifts).where(*same))
                connection.execute(insert(lifts), asdict(lift))

    def quarantine_lifts(self) -> tuple[QuarantineLift, ...]:
        with self._transaction(self._poller) as connection:
            found = connection.execute(select(tables.quarantine_lifts))
            lifts = (QuarantineLift(**row._mapping) for row in found)
            return tuple(sorted(lifts, key=lambda lift: (lift.task, lift.variant)))

    def accept_answers(self, accepted: AcceptedAnswers) -> None:
        check_accepted(accepted)
        words = tables.accepted_answers
        same = (words.c.task == accepted.task, words.c.variant == accepted.variant)
        with self._transaction(self._writer) as connection:
            # As with lifts, the counter's row lines up writers.
            counters.lock(connection, "inventory")
            check_variant(connection, accepted.task, accepted.variant)
            connection.execute(delete(words).where(*same))
            connection.execute(insert(words), asdict(accepted))

    def accepted_answers(self) -> tuple[AcceptedAnswers, ...]:
        with self._transaction(self._poller) as connection:
            found = connection.execute(select(tables.accepted_answers))
            words = (AcceptedAnswers(**row._mapping) for row in found)
            return tuple(sorted(words, key=lambda one: (one.task, one.variant)))

    def put_learned(self, name: str, at_s: float, body: bytes, *, epoch: int) -> None:
        check_learned(name, body)
        with self._transaction(self._writer) as connection:
            self._check_leads(connection, epoch, "what was learned")
            connection.execute(delete(tables.learned).where(tables.learned.c.name == name))
            row = {"name": name, "at_s": at_s, "body": body}
            connection.execute(insert(tables.learned), row)

    def learned(self, name: str) -> tuple[float, bytes] | None:
        wanted = select(tables.learned).where(tables.learned.c.name == name)
        with self._transaction(self._poller) as connection:
            row = connection.execute(wanted).first()
            return (row.at_s, bytes(row.body)) if row else None

    def _check_leads(self, connection: Connection, epoch: int, what: str) -> None:
        """Refuse what somebody writes who leads no more. A new leader waits until this transaction
        is over.

        Raises:
            StaleEpoch: another one leads.
        """
        check_leads(epoch, leading_epoch(connection), what)
        leader = tables.leaders.c
        found = connection.execute(select(leader.mark).where(leader.epoch == epoch)).first()
        # A restored catalog has the number of the epochs before, so that none is given twice, and
        # not who led in them. One that went back without it gives the number to another leader.
        if found is None:
            raise StaleEpoch(f"epoch {epoch} led before a backup was restored here")
        if self._led.get(epoch, found.mark) != found.mark:
            raise StaleEpoch(
                f"{what} of epoch {epoch} came, which another one leads in: the database went back"
            )

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        waits = self._turns if engine is self._writer else None
        with (
            nullcontext() if waits is None else waits.turn(self._patience_s),
            failures_explained(engine.url),
            engine.begin() as connection,
        ):
            yield connection


def read_rules(connection: Connection) -> tuple[Rule, ...]:
    """All rules of operators, by id."""
    rows = connection.execute(select(tables.rules).order_by(tables.rules.c.id))
    return tuple(Rule(**dict(row._mapping) | {"kind": RuleKind(row.kind)}) for row in rows)


def leading_epoch(connection: Connection) -> int:
    """The newest epoch; 0: nobody ever led. A new leader waits until this transaction is over."""
    return int(
        connection.execute(
            select(tables.counters.c.value)
            .where(tables.counters.c.name == "epoch")
            .with_for_update(read=True)
        ).scalar_one()
    )


def check_variant(connection: Connection, task: TaskName, variant: VariantName) -> None:
    """Raise ``NotFound`` unless there is such a variant."""
    same = (tables.variants.c.task == task, tables.variants.c.name == variant)
    if connection.scalar(select(tables.variants.c.name).where(*same)) is None:
        raise no_variant(task, variant)
