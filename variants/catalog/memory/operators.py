"""What operators say, in the memory of one process: rules, peaks, lifts of quarantines, and which
answers are as they should be."""

from dataclasses import replace

from variants.catalog.memory.records import MemoryRecords
from variants.catalog.validity.absent import no_peak, no_rule, no_variant
from variants.catalog.validity.peaks import check_lift, check_peak, check_room
from variants.catalog.validity.rules import check_accepted, check_rule, check_rule_room
from variants.types import AcceptedAnswers, Peak, QuarantineLift, Rule, TaskName, VariantName


class MemoryOperators(MemoryRecords):
    """The part of ``variants.catalog.protocol.Catalog`` about rules, peaks, quarantines and
    answers."""

    def __init__(self) -> None:
        super().__init__()
        self._lifts: dict[tuple[TaskName, VariantName], QuarantineLift] = {}
        self._accepted: dict[tuple[TaskName, VariantName], AcceptedAnswers] = {}
        self._peaks: dict[int, Peak] = {}
        self._peak_id = self._rule_id = 0

    def add_peak(self, peak: Peak) -> Peak:
        check_peak(peak)
        with self._writing:
            check_room(len(self._peaks))
            self._peak_id += 1
            stored = replace(peak, id=self._peak_id)
            self._peaks = {**self._peaks, stored.id: stored}
            return stored

    def peaks(self) -> tuple[Peak, ...]:
        return tuple(sorted(self._peaks.values(), key=lambda peak: (peak.start_s, peak.id)))

    def remove_peak(self, id: int) -> None:
        with self._writing:
            if id not in self._peaks:
                raise no_peak(id, self._peaks)
            self._peaks = {known: peak for known, peak in self._peaks.items() if known != id}

    def lift_quarantine(self, lift: QuarantineLift) -> None:
        check_lift(lift)
        with self._writing:
            key = (lift.task, lift.variant)
            if key not in {variant.key for variant in self._snapshot.variants}:
                raise no_variant(lift.task, lift.variant)
            known = self._lifts.get(key)
            newest = known if known is not None and known.at_s > lift.at_s else lift
            self._lifts = dict(sorted({**self._lifts, key: newest}.items()))

    def quarantine_lifts(self) -> tuple[QuarantineLift, ...]:
        return tuple(self._lifts.values())

    def accept_answers(self, accepted: AcceptedAnswers) -> None:
        check_accepted(accepted)
        with self._writing:
            key = (accepted.task, accepted.variant)
            if key not in {variant.key for variant in self._snapshot.variants}:
                raise no_variant(accepted.task, accepted.variant)
            self._accepted = dict(sorted({**self._accepted, key: accepted}.items()))

    def accepted_answers(self) -> tuple[AcceptedAnswers, ...]:
        return tuple(self._accepted.values())

    def put_rule(self, rule: Rule) -> Rule:
        check_rule(rule)
        with self._writing:
            old = self._snapshot
            if rule.task and rule.key not in {variant.key for variant in old.variants}:
                raise no_variant(rule.task, rule.variant)
            known = {each.subject: each for each in old.rules}
            if (same := known.get(rule.subject)) is None:
                check_rule_room(len(known))
                self._rule_id += 1
            stored = replace(rule, id=self._rule_id if same is None else same.id)
            rules = sorted((known | {rule.subject: stored}).values(), key=lambda each: each.id)
            self._snapshot = replace(old, revision=old.revision + 1, rules=tuple(rules))
            return stored

    def rules(self) -> tuple[Rule, ...]:
        return self._snapshot.rules

    def remove_rule(self, id: int) -> Rule:
        with self._writing:
            old = self._snapshot
            found = next((rule for rule in old.rules if rule.id == id), None)
            if found is None:
                raise no_rule(id, (rule.id for rule in old.rules))
            rules = tuple(rule for rule in old.rules if rule is not found)
            self._snapshot = replace(old, revision=old.revision + 1, rules=rules)
            return found
