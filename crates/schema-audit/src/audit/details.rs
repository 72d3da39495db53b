//! Facts that only some families need: the consumer groups and the age of a stream, the TTLs of fields.

use std::collections::HashMap;

use hob_schema::StreamRules;
use hob_schema::check::{Expiry, GroupFacts, Sample, StreamFacts};
use hob_store::Value;

use super::probe::expiry;
use crate::batch::{Batch, Reply, decode, value};

/// Adds commands that read what the rules of a stream need; returns the number of replies to expect.
pub(super) fn stream_commands(batch: &mut Batch, rules: &StreamRules, key: &[u8]) -> usize {
    if reads_groups(rules) {
        groups_command(batch, key);
    }
    if rules.max_age.is_some() {
        batch.cmd("XRANGE").arg(key).arg("-").arg("+").arg("COUNT").arg(1);
    }
    usize::from(reads_groups(rules)) + usize::from(rules.max_age.is_some())
}

/// Adds a command that reads the consumer groups of a stream.
pub(crate) fn groups_command(batch: &mut Batch, key: &[u8]) {
    batch.cmd("XINFO").arg("GROUPS").arg(key);
}

/// The groups in the reply to [`groups_command`].
pub(crate) fn read_groups(reply: Option<Value>) -> Vec<GroupFacts> {
    let groups = reply.and_then(decode::<Vec<HashMap<String, Value>>>).unwrap_or_default();
    groups.into_iter().filter_map(group).collect()
}

fn reads_groups(rules: &StreamRules) -> bool {
    rules.groups.is_some() || rules.max_pending.is_some()
}

/// The facts in the replies to [`stream_commands`].
pub(super) fn read_stream(
    rules: &StreamRules,
    replies: &mut impl Iterator<Item = Reply>,
    refused: &mut Option<String>,
    now_ms: u64,
) -> StreamFacts {
    let mut next = || replies.next().and_then(|reply| value(reply, refused));
    let mut facts = StreamFacts::default();
    if reads_groups(rules) {
        facts.groups = read_groups(next());
    }
    if rules.max_age.is_some() {
        let first =
            next().and_then(decode::<Vec<(String, Value)>>).and_then(|entries| entries.into_iter().next());
        facts.oldest_ms =
            first.and_then(|(id, _)| Some(now_ms.saturating_sub(id.split_once('-')?.0.parse().ok()?)));
    }
    facts
}

fn group(mut facts: HashMap<String, Value>) -> Option<GroupFacts> {
    Some(GroupFacts { name: decode(facts.remove("name")?)?, pending: decode(facts.remove("pending")?)? })
}

/// Adds a command that reads the TTLs of the fields that were read. Returns their names.
pub(crate) fn field_ttl_command(batch: &mut Batch, key: &[u8], sample: &Sample) -> Option<Vec<Vec<u8>>> {
    let Sample::Hash { fields, .. } = sample else { return None };
    if fields.is_empty() {
        return None;
    }
    let names: Vec<Vec<u8>> = fields.iter().map(|(name, _)| name.clone()).collect();
    batch.cmd("HPTTL").arg(key).arg("FIELDS").arg(names.len()).arg(&names);
    Some(names)
}

/// The TTLs in the reply to [`field_ttl_command`].
pub(crate) fn read_field_ttls(
    names: Vec<Vec<u8>>,
    reply: Option<Reply>,
    refused: &mut Option<String>,
) -> Vec<(Vec<u8>, Expiry)> {
    const NO_FIELD: i64 = -2;
    let ttls = reply.and_then(|reply| value(reply, refused)).and_then(decode::<Vec<i64>>).unwrap_or_default();
    let fields = names.into_iter().zip(ttls).filter(|(_, ttl)| *ttl != NO_FIELD);
    fields.map(|(name, ttl)| (name, expiry(Some(ttl)))).collect()
}
