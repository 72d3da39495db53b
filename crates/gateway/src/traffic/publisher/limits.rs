//! What rules decided, added up over all instances.

use std::sync::atomic::Ordering::Relaxed;

use hob_schema::Shard;
use hob_store::{Call, Script};

use crate::keys::Keys;
use crate::limiter::LiveRule;
use crate::metrics;
use crate::traffic::foreign::OWN;

static LIMITS: Script = Script::with(&[OWN], include_str!("limits.lua"));

/// The call that adds what a rule decided since it was last asked; `None` if that is nothing.
pub(crate) fn call(live: &LiveRule, keys: &Keys, shard: Shard) -> Option<Call> {
    let counts = &live.counts;
    let counts = [&counts.allowed, &counts.refused, &counts.shadowed].map(|count| count.swap(0, Relaxed));
    if counts == [0; 3] {
        return None;
    }
    metrics::decided(live.rule().name(), counts);
    let rule = live.rule().name().key();
    let mut call = LIMITS.on(&[keys.limit_counts(&rule, shard), keys.limit_hottest(&rule, shard)]);
    for count in counts {
        call = call.arg(count);
    }
    call = call.arg(Keys::LIMIT_HOTTEST_MAX_LEN);
    for (identity, count) in live.hottest.take() {
        call = call.arg(identity.as_str()).arg(count);
    }
    Some(call)
}
