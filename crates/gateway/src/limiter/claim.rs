//! The keys of limits are ours. One of another type would make every question about its caller fail: then the limit
//! would be off for that caller, or keep it out, until somebody looks.

use hob_hot::limit::{Algorithm, Rule};
use hob_hot::{Error, Hot, Reply, Result, Script};
use hob_schema::Key;

static CLAIM: Script = Script::new(include_str!("claim.lua"));

/// Asks the store. If it refuses because of what somebody else wrote there, overwrites that and asks once more.
pub(crate) async fn ask<T, F: Future<Output = Result<T>>>(
    (hot, rule, key): (&Hot, &Rule, &Key),
    question: impl Fn() -> F,
) -> Result<T> {
    match question().await {
        Err(Error::Refused { .. }) if claim(hot, rule, key).await? => {
            tracing::warn!(%key, "overwrote a key that somebody else had changed");
            question().await
        }
        answered => answered,
    }
}

async fn claim(hot: &Hot, rule: &Rule, key: &Key) -> Result<bool> {
    let kind = match rule.algorithm() {
        Algorithm::FixedLog | Algorithm::SlidingLog => "zset",
        Algorithm::FixedCounter | Algorithm::SlidingWindow | Algorithm::Gcra => "string",
    };
    let reply: Reply = hot.run(CLAIM.on(std::slice::from_ref(key)).arg(kind)).await?;
    Ok(reply.word() == "deleted")
}
