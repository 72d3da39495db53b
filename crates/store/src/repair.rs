//! Keys of the wrong type. Whatever another client writes over a key of ours (`SET monitor:schedule x`) makes every
//! command on it fail, for ever. Such a key is deleted, since there is nothing in it that could be read, and its owner
//! goes on as after a loss of that key.

use crate::error::Result;
use crate::reply::Reply;
use crate::script::{Call, Script};
use crate::store::Store;
use crate::{Error, FromRedisValue};

static MEND: Script = Script::new(include_str!("mend/mend.lua"));

/// The type that a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    Hash,
    List,
    Set,
    Zset,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::Zset => "zset",
        }
    }
}

/// Deletes those of these keys that are of another type, and answers with their places. On a Cluster the keys must share
/// a slot.
pub async fn mend<K: AsRef<[u8]>>(store: &Store, keys: &[(K, Kind)]) -> Result<Vec<usize>> {
    let names: Vec<&[u8]> = keys.iter().map(|(key, _)| key.as_ref()).collect();
    let call = keys.iter().fold(MEND.on(&names), |call, (_, kind)| call.arg(kind.as_str()));
    let mut reply: Reply = store.run(call).await?;
    let mut mended = Vec::with_capacity(reply.left());
    while reply.left() > 0 {
        let at = reply.next::<usize>()?.saturating_sub(1);
        if let Some(key) = names.get(at) {
            tracing::warn!(key = %String::from_utf8_lossy(key), "deleted a key of the wrong type");
            mended.push(at);
        }
    }
    Ok(mended)
}

/// Runs a call on these keys. Where one of them is of another type it is [mended](mend), and the call is run once more.
pub async fn run<T: FromRedisValue, K: AsRef<[u8]>>(
    store: &Store,
    call: impl Into<Call>,
    keys: &[(K, Kind)],
) -> Result<T> {
    let call = call.into();
    match store.run(call.clone()).await {
        Err(error) if error.is_wrong_type() => {
            mend(store, keys).await?;
            store.run(call).await
        }
        answer => answer,
    }
}

/// The answer, or `None` where the key is of another type, which is logged: for views that are written again by the next
/// change.
pub fn or_none<T>(answer: Result<T>, key: impl AsRef<[u8]>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is_wrong_type() => {
            tracing::warn!(key = %String::from_utf8_lossy(key.as_ref()), "ignored a key of the wrong type");
            Ok(None)
        }
        answer => answer.map(Some),
    }
}
