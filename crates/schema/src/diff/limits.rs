//! Edits of the rules for streams and for the TTLs of fields.

use super::{Differ, EVERYTHING, Effect, Subject, WRITES};
use crate::model::{Family, StreamRules, TtlRule};

impl<'s> Differ<'s> {
    pub(super) fn stream(&mut self, old: &'s StreamRules, new: &'s StreamRules, subject: Subject<'_>) {
        match (&old.groups, &new.groups) {
            (None, Some(_)) => self.change(subject, WRITES, "only some consumer groups are allowed now"),
            (Some(_), None) => self.change(subject, &[], "any consumer group is allowed now"),
            (Some(old), Some(new)) => {
                for group in old.iter().filter(|group| !new.contains(group)) {
                    self.change(subject, WRITES, format!("the consumer group {group:?} was removed"));
                }
                for group in new.iter().filter(|group| !old.contains(group)) {
                    self.change(subject, &[], format!("the consumer group {group:?} is new"));
                }
            }
            (None, None) => {}
        }
        let pending = (old.max_pending.as_ref(), new.max_pending.as_ref());
        self.limit(pending.0, pending.1, "max_pending", &[Effect::Data], subject);
        let age = |rules: &StreamRules| rules.max_age.as_ref().map(|limit| limit.value);
        match (age(old), age(new)) {
            (before, after) if before == after => {}
            (before, Some(after)) if before.is_none_or(|before| after < before) => {
                self.change(subject, WRITES, "`max_age` is shorter: entries may be older");
            }
            _ => self.change(subject, &[], "`max_age` allows older entries"),
        }
    }

    pub(super) fn field_ttl(&mut self, old: &'s Family, new: &'s Family, subject: Subject<'_>) {
        let (old, new) = (old.field_ttl.as_ref(), new.field_ttl.as_ref());
        if old == new {
            return;
        }
        let longest = |rule: Option<&TtlRule>| rule.and_then(TtlRule::longest);
        let required = |rule: Option<&TtlRule>| rule.is_some_and(TtlRule::required);
        match (longest(old), longest(new)) {
            (_, None) if new.is_none() => {
                self.change(subject, &[], "the TTLs of fields are not checked any more");
            }
            (Some(before), Some(after)) if after >= before && required(old) == required(new) => {
                self.change(subject, &[], "fields may have a longer TTL");
            }
            (None, Some(_)) if required(new) => {
                self.change(subject, EVERYTHING, "fields must now expire; existing fields have no TTL");
            }
            (_, Some(_)) if required(old) && !required(new) => {
                self.change(subject, EVERYTHING, "the rule for the TTL of fields changed");
            }
            _ => self.change(subject, WRITES, "the rule for the TTL of fields is narrower"),
        }
    }
}
