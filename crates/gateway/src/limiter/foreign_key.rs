//! Limit keys that another client has replaced by another type. Every call for that caller would fail, so the rule's
//! `on_store_failure` would apply to it until the key is deleted.

use hob_store::limit::{Algorithm, Rule};
use hob_store::{Error, Key, Reply, Result, Script, Store};

static DELETE_FOREIGN: Script = Script::new(include_str!("foreign_key.lua"));

/// Calls the store. If that fails because the key has another type, deletes the key and calls again.
pub(crate) async fn call_with_retry<T, F: Future<Output = Result<T>>>(
    (store, rule, key): (&Store, &Rule, &Key),
    call: impl Fn() -> F,
) -> Result<T> {
    match call().await {
        Err(Error::Refused { .. }) if delete_foreign(store, rule, key).await? => {
            tracing::warn!(%key, "overwrote a key that another client had changed");
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
