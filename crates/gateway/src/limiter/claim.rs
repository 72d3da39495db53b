//! The keys of limits are ours. One of another type would make every question about its caller fail: then the limit
//! would be off for that caller, or keep it out, until somebody looks.

use hob_schema::Key;
use hob_store::limit::{Algorithm, Rule};
use hob_store::{Error, Reply, Result, Script, Store};

static CLAIM: Script = Script::new(include_str!("claim.lua"));

/// Asks the store. If it refuses because of what somebody else wrote there, overwrites that and asks once more.
pub(crate) async fn ask<T, F: Future<Output = Result<T>>>(
    (store, rule, key): (&Store, &Rule, &Key),
    question: impl Fn() -> F,
) -> Result<T> {
    match question().await {
        Err(Error::Refused { .. }) if claim(store, rule, key).await? => {
            tracing::warn!(%key, "overwrote a key that somebody else had changed");
            question().await
        }
        answered => answered,
    }
}

async fn claim(store: &Store, rule: &Rule, key: &Key) -> Result<bool> {
    let kind = match rule.algorithm() {
        Algorithm::FixedLog | Algorithm::SlidingLog => "zset",
        Algorithm::FixedCounter | Algorithm::SlidingWindow | Algorithm::Gcra => "string",
    };
    let reply: Reply = store.run(CLAIM.on(std::slice::from_ref(key)).arg(kind)).await?;
    Ok(reply.word() == "deleted")
}
