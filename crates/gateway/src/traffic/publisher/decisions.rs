//! Adds the decisions of this instance's rules to those of all instances.

use hob_admission::{ActiveRule, Decisions};
use hob_schema::Shard;
use hob_store::{Call, Script};

use crate::keys::Keys;
use crate::metrics;
use crate::traffic::foreign::FOREIGN;

static ADD_DECISIONS: Script = Script::with(&[FOREIGN], include_str!("decisions.lua"));

/// The call that adds a rule's decisions since the last call; `None` if there are none.
pub(crate) fn call(rule: &ActiveRule, keys: &Keys, shard: Shard) -> Option<Call> {
    let decisions = rule.take_decisions();
    if decisions == Decisions::default() {
        return None;
    }
    metrics::record_decisions(rule.rule().name(), decisions);
    let name = rule.rule().name().key();
    let mut call = ADD_DECISIONS.on(&[keys.limit_counts(&name, shard), keys.limit_hottest(&name, shard)]);
    for count in [decisions.allowed, decisions.refused, decisions.shadowed] {
        call = call.arg(count);
    }
    call = call.arg(Keys::LIMIT_HOTTEST_MAX_LEN);
    for (identity, count) in rule.take_top_refused() {
        call = call.arg(identity.as_str()).arg(count);
    }
    Some(call)
}
