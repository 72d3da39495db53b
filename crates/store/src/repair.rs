//! Keys that another client has overwritten. If a key has another type (`SET monitor:schedule x`), or holds a value that
//! a script cannot use, every call on it fails from then on. Such a key is deleted, and the service that owns it recovers
//! as if the key had been lost.

use crate::FromRedisValue;
use crate::error::{Error, Result};
use crate::reply::Reply;
use crate::script::{Call, Script};
use crate::store::Store;

pub use hob_commands::KeyType;

/// Lua that declares `stored(text, missing)`, which fails on a number that another client has written. The call must run
/// through this module.
pub const STORED: &str = include_str!("repair/stored.lua");

static REPAIR: Script = Script::new(include_str!("repair/repair.lua"));

/// Deletes the keys that caused an error ([`Error::is_foreign_value`]), and returns their indexes: those of another type or,
/// after an error about a value, the key that the error names. If it names none of them, all are deleted. On a Cluster the
/// keys must share a slot.
pub async fn repair<K: AsRef<[u8]>>(
    store: &Store,
    error: &Error,
    keys: &[(K, KeyType)],
) -> Result<Vec<usize>> {
    let names: Vec<&[u8]> = keys.iter().map(|(key, _)| key.as_ref()).collect();
    let named = |key: &[u8]| error.foreign_key().is_some_and(|named| named.as_bytes() == key);
    let keep_others = error.is_wrong_type() || names.iter().any(|key| named(key));
    // No type has an empty name, so the script deletes such a key whatever its type.
    let kept = |(key, kind): &(K, KeyType)| {
        if keep_others && !named(key.as_ref()) { kind.as_str() } else { "" }
    };
    let call = keys.iter().fold(REPAIR.on(&names), |call, key| call.arg(kept(key)));
    let mut reply: Reply = store.run(call).await?;
    let mut repaired = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        let at = reply.next::<usize>()?.saturating_sub(1);
        if let Some(key) = names.get(at) {
            report(store.system_name(), key);
            repaired.push(at);
        }
    }
    Ok(repaired)
}

/// Logs and counts a key that another client had changed, and that was deleted or overwritten.
pub fn report(system: &'static str, key: &[u8]) {
    metrics::counter!("hob_store_foreign_keys_total", "system" => system).increment(1);
    tracing::warn!(system, key = %String::from_utf8_lossy(key), "replaced a key that another client had changed");
}

/// Runs a call on these keys. If it fails because another client has changed one of them, the keys are
/// [repaired](repair) and the call runs again.
pub async fn run<T: FromRedisValue, K: AsRef<[u8]>>(
    store: &Store,
    call: impl Into<Call>,
    keys: &[(K, KeyType)],
) -> Result<T> {
    run_with(store, call, async |error| repair(store, &error, keys).await.map(drop)).await
}

/// Runs a call. If it fails because another client has changed a key, `repair` gets the error, and the call runs again.
pub async fn run_with<T: FromRedisValue, E: From<Error>>(
    store: &Store,
    call: impl Into<Call>,
    repair: impl AsyncFnOnce(Error) -> Result<(), E>,
) -> Result<T, E> {
    let call = call.into();
    match store.run_call(&call).await {
        Err(error) if error.is_foreign_value() => {
            repair(error).await?;
            Ok(store.run_call(&call).await?)
        }
        answer => Ok(answer?),
    }
}

/// The answer to a read of one key of a batch, or `None` if another client has changed the key, which is then deleted.
/// So a key that was overwritten hides no other.
pub async fn or_none<T>(
    store: &Store,
    answer: Result<T>,
    (key, kind): (impl AsRef<[u8]>, KeyType),
) -> Result<Option<T>> {
    match answer {
        Err(error) if error.is_foreign_value() => {
            repair(store, &error, &[(key, kind)]).await?;
            Ok(None)
        }
        answer => answer.map(Some),
    }
}
