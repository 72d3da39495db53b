//! Why an audit, a proposal or a clean-up could not be completed.

/// The work could not be completed. (A key that breaks its schema is part of a report, not an error.)
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect: {0}")]
    Connect(#[source] hob_store::Error),
    #[error("{command} failed: {source}")]
    Command { command: &'static str, source: hob_store::Error },
    #[error(
        "embedded:// is empty outside a running Hob; use the console's Keys page, or the address of its Redis \
         listener such as redis://127.0.0.1:7379"
    )]
    Embedded,
    #[error(
        "{node} restarted or failed over during the scan, so keys may have been missed; run the command again"
    )]
    Restarted { node: String },
    #[error("the baseline is not an audit report in JSON: {0}")]
    Baseline(#[source] serde_json::Error),
    #[error("the schema has no key family {0:?}; use the NAME of one of its [key.NAME] tables")]
    UnknownFamily(String),
    #[error("several schemas have a family {0:?}; write SCHEMA.{0}")]
    AmbiguousFamily(String),
    #[error(
        "the server does not record when a key was last used ({0}); delete by family or repair TTLs instead"
    )]
    NoIdleTimes(#[source] hob_store::Error),
    #[error("unknown ready-made schema {0:?}; `hob schema ready` lists them")]
    UnknownReady(String),
    #[error("the prefix {0:?} contains a character with a special meaning")]
    BadPrefix(String),
    #[error(transparent)]
    Ready(hob_schema::ParseErrors),
    #[error(transparent)]
    Conflict(#[from] hob_schema::KeyConflict),
    #[error("{0} does not need a TTL, so there is none to repair")]
    TtlNotRequired(String),
}
