//! The history of the data on a server, which tells whether the server may have gone back to older data.
//!
//! A server that was restarted has another run id. A replica that was promoted has a second replication id, the one of
//! its old master, and the offset at which it stopped following that master. In both cases writes may have been lost.
//! The first replication id is not part of the history: it also changes when the first replica connects to a server.

use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{FromRedisValue, RedisError};

/// The run id, and the promotion if there was one. Empty if it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct History(Arc<str>);

/// What `INFO` says about a server.
pub(crate) struct ServerInfo {
    /// The section `server`.
    pub(crate) server: String,
    pub(crate) history: History,
    /// The policy by which the server deletes keys when its memory is full; `None` if it deletes none.
    pub(crate) evicts: Option<String>,
}

impl History {
    /// The history of the embedded engine, which never returns with older data, and of a server that does not permit
    /// INFO. It matches every other history.
    #[cfg(any(feature = "embedded", test))]
    pub(crate) fn unknown() -> Self {
        Self("".into())
    }

    /// The history of a server that is a replica now. It matches no other: after its promotion the server has another.
    pub(crate) fn replica() -> Self {
        Self("replica".into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads two sections of `INFO`.
    fn read(server: &str, replication: &str) -> Self {
        if field(replication, "role") == Some("slave") {
            return Self::replica();
        }
        let run_id = field(server, "run_id").unwrap_or_default();
        let promoted = field(replication, "master_replid2").filter(|id| id.bytes().any(|byte| byte != b'0'));
        match promoted.zip(field(replication, "second_repl_offset")) {
            Some((id, offset)) => Self(format!("{run_id}/{id}:{offset}").into()),
            None => Self(run_id.into()),
        }
    }
}

impl ServerInfo {
    /// All sections are empty if an ACL forbids INFO; the server can still be used.
    pub(crate) async fn read(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let mut sections = redis::pipe();
        sections.cmd("INFO").arg("server").cmd("INFO").arg("replication").cmd("INFO").arg("memory");
        let answers = connection.req_packed_commands(&sections, 0, 3).await?;
        let mut sections = answers.into_iter().map(|text| String::from_redis_value(text).unwrap_or_default());
        let mut section = || sections.next().unwrap_or_default();
        let (server, replication, memory) = (section(), section(), section());
        let (history, evicts) = (History::read(&server, &replication), eviction_policy(&memory));
        Ok(Self { server, history, evicts })
    }
}

/// The policy in the section `memory` of `INFO`, if the server has a memory limit and deletes keys to stay below it.
fn eviction_policy(memory: &str) -> Option<String> {
    let limited = field(memory, "maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field(memory, "maxmemory_policy").filter(|policy| *policy != "noeviction");
    policy.filter(|_| limited).map(str::to_owned)
}

/// A field of `INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_PROMOTED: &str = "0000000000000000000000000000000000000000";

    fn history(run_id: &str, role: &str, replid2: &str, offset: &str) -> String {
        let replication = format!(
            "# Replication\r\nrole:{role}\r\nmaster_replid:c5\r\nmaster_replid2:{replid2}\r\nsecond_repl_offset:{offset}\r\n"
        );
        History::read(&format!("# Server\r\nrun_id:{run_id}\r\n"), &replication).as_str().to_owned()
    }

    #[test]
    fn history_changes_with_a_restart_and_a_promotion() {
        assert_eq!(history("a1", "master", NOT_PROMOTED, "-1"), "a1");
        assert_eq!(history("a1", "master", "b2", "77"), "a1/b2:77");
        assert_eq!(history("a1", "slave", "b2", "77"), "replica");
        assert_eq!(History::read("", ""), History::unknown());
    }

    #[test]
    fn server_evicts_keys_only_with_a_memory_limit_and_a_policy() {
        let memory = |limit: &str, policy: &str| {
            eviction_policy(&format!("used_memory:1\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n"))
        };
        assert_eq!(memory("100", "allkeys-lru").as_deref(), Some("allkeys-lru"));
        assert_eq!(memory("100", "volatile-ttl").as_deref(), Some("volatile-ttl"));
        assert_eq!((memory("0", "allkeys-lru"), memory("100", "noeviction")), (None, None));
    }
}
