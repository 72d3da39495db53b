//! Adds the decisions of this instance's rules to those of all instances.

use std::sync::atomic::Ordering::Relaxed;

use hob_schema::Shard;
use hob_store::{Call, Script};

use crate::keys::Keys;
use crate::limiter::ActiveRule;
use crate::metrics;
use crate::traffic::foreign::FOREIGN;

static ADD_DECISIONS: Script = Script::with(&[FOREIGN], include_str!("decisions.lua"));

/// The call that adds a rule's decisions since the last call; `None` if there are none.
pub(crate) fn call(rule: &ActiveRule, keys: &Keys, shard: Shard) -> Option<Call> {
    let counts = &rule.counts;
    let counts = [&counts.allowed, &counts.refused, &counts.shadowed].map(|count| count.swap(0, Relaxed));
    if counts == [0; 3] {
        return None;
    }
    metrics::record_decisions(rule.rule().name(), counts);
    let name = rule.rule().name().key();
    let mut call = ADD_DECISIONS.on(&[keys.limit_counts(&name, shard), keys.limit_hottest(&name, shard)]);
    for count in counts {
        call = call.arg(count);
    }
    call = call.arg(Keys::LIMIT_HOTTEST_MAX_LEN);
    for (identity, count) in rule.top_refused.take() {
        call = call.arg(identity.as_str()).arg(count);
    }
    Some(call)
}
