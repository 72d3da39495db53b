//! The keys of limits are ours. One of another type would make every question about its caller fail: then the limit
//! would be off for that caller, or keep it out, until somebody looks.

use hob_schema::Key;
use hob_store::limit::{Algorithm, Rule};
use hob_store::{Error, Reply, Result, Script, Store};

static DELETE_FOREIGN: Script = Script::new(include_str!("foreign_key.lua"));

/// Asks the store. If it refuses because of what somebody else wrote there, overwrites that and asks once more.
pub(crate) async fn call_with_retry<T, F: Future<Output = Result<T>>>(
    (store, rule, key): (&Store, &Rule, &Key),
    call: impl Fn() -> F,
) -> Result<T> {
    match call().await {
        Err(Error::Refused { .. }) if delete_foreign(store, rule, key).await? => {
            tracing::warn!(%key, "overwrote a key that somebody else had changed");
            call().await
        }
        result => result,
    }
}

async fn delete_foreign(store: &Store, rule: &Rule, key: &Key) -> Result<bool> {
    let kind = match rule.algorithm() {
        Algorithm::FixedLog | Algorithm::SlidingLog => "zset",
        Algorithm::FixedCounter | Algorithm::SlidingWindow | Algorithm::Gcra => "string",
    };
    let reply: Reply = store.run(DELETE_FOREIGN.on(std::slice::from_ref(key)).arg(kind)).await?;
    Ok(reply.word() == "deleted")
}
