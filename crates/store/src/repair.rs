//! Keys of the wrong type. If another client overwrites one of Hob's keys (`SET monitor:schedule x`), every command on
//! it fails from then on. Such a key is deleted, and the service that owns it recovers as if the key had been lost.

use crate::error::Result;
use crate::reply::Reply;
use crate::script::{Call, Script};
use crate::store::Store;
use crate::{Error, FromRedisValue};

static REPAIR: Script = Script::new(include_str!("repair/repair.lua"));

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    String,
    Hash,
    List,
    Set,
    Zset,
}

hob_units::names!(KeyType { String = "string", Hash = "hash", List = "list", Set = "set", Zset = "zset" });

/// Deletes the keys that have another type and returns their indexes. On a Cluster the keys must share a slot.
pub async fn repair<K: AsRef<[u8]>>(store: &Store, keys: &[(K, KeyType)]) -> Result<Vec<usize>> {
    let names: Vec<&[u8]> = keys.iter().map(|(key, _)| key.as_ref()).collect();
    let call = keys.iter().fold(REPAIR.on(&names), |call, (_, kind)| call.arg(kind.as_str()));
    let mut reply: Reply = store.run(call).await?;
    let mut repaired = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        let at = reply.next::<usize>()?.saturating_sub(1);
        if let Some(key) = names.get(at) {
            tracing::warn!(key = %String::from_utf8_lossy(key), "key of the wrong type deleted");
            repaired.push(at);
        }
    }
    Ok(repaired)
}

/// Runs a call on these keys. If one of them has another type, the keys are [repaired](repair) and the call runs again.
pub async fn run<T: FromRedisValue, K: AsRef<[u8]>>(
    store: &Store,
    call: impl Into<Call>,
    keys: &[(K, KeyType)],
) -> Result<T> {
    let call = call.into();
    match store.run(call.clone()).await {
        Err(error) if error.is_wrong_type() => {
            repair(store, keys).await?;
            store.run(call).await
        }
        answer => answer,
    }
}

/// The answer, or `None` with a warning in the log if the key has the wrong type. For views, which the next change
/// writes again.
pub fn or_none<T>(answer: Result<T>, key: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is_wrong_type() => {
            tracing::warn!(key = %String::from_utf8_lossy(key.as_ref()), "key of the wrong type ignored");
            Ok(None)
        }
        answer => answer.map(Some),
    }
}
