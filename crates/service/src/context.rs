//! The context that a service runs in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hob_database::Database;
use hob_net::Outbound;
use hob_schema::Layout;
use hob_store::Store;
use hob_trace::Tracer;

use crate::Tasks;
use crate::config::Secrets;

/// The resources that a service uses. Clones share the same store, database and tasks.
#[derive(Clone, Debug)]
pub struct ServiceContext {
    pub store: Store,
    /// The layout of keys: with hash tags on a Cluster, without hash tags otherwise.
    pub layout: Layout,
    pub database: Database,
    pub node: NodeName,
    pub secrets: Secrets,
    /// The addresses that Hob may connect to on behalf of users, such as the targets of monitors.
    pub outbound: Outbound,
    pub tasks: Tasks,
    /// Records spans if the operator has configured a collector.
    pub tracer: Tracer,
}

impl ServiceContext {
    /// A context without secrets, tasks and tracing, with the outbound policy of a server that listens on loopback.
    #[must_use]
    pub fn new(store: Store, layout: Layout, database: Database, node: NodeName) -> Self {
        Self {
            store,
            layout,
            database,
            node,
            secrets: Secrets::none(),
            outbound: Outbound::default(),
            tasks: Tasks::new(),
            tracer: Tracer::default(),
        }
    }

    /// This context for one service. If the store refuses calls made with it, health, metrics and logs show this name.
    #[must_use]
    pub fn for_service(&self, name: &'static str) -> Self {
        Self { store: self.store.for_system(name), ..self.clone() }
    }
}

/// The name of a node: unique among the running nodes. A configured name stays the same after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(Arc<str>);

/// The text is not a node name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid node name; use 1 to 64 letters, digits, '.', '_' or '-'")]
pub struct NodeNameError;

impl NodeName {
    pub const MAX_LEN: usize = 64;

    /// A random name.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("node-{:012x}", rand::random::<u64>() & 0xffff_ffff_ffff).into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, NodeNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=Self::MAX_LEN).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(NodeNameError)
        }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_name_is_valid() {
        let name = NodeName::random();
        assert_eq!(name.as_str().parse(), Ok(name.clone()));
        assert_ne!(name, NodeName::random());
    }

    #[test]
    fn invalid_name_is_refused() {
        for text in ["", "a b", "a:b", "{a}", "é", &"x".repeat(65)] {
            assert_eq!(text.parse::<NodeName>(), Err(NodeNameError), "{text:?}");
        }
    }
}
