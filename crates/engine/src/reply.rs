//! The reply to a command, independent of the protocol version and the interface.

use std::borrow::Cow;

/// A reply. Variants that RESP2 and RESP3 encode differently keep their meaning here; the encoder of each interface
/// chooses the form.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A missing value (`$-1` in RESP2, `_` in RESP3).
    Null,
    /// A missing array (`*-1` in RESP2, `_` in RESP3).
    NullArray,
    Int(i64),
    Bulk(Vec<u8>),
    Simple(Cow<'static, str>),
    /// The whole text of the error, starting with its code.
    Error(Cow<'static, str>),
    Array(Vec<Reply>),
    /// Key and value pairs: flat in RESP2, a map in RESP3.
    Map(Vec<(Reply, Reply)>),
    /// Values by key: an array of pairs in RESP2, a map in RESP3.
    Keyed(Vec<(Reply, Reply)>),
    /// Unordered members: an array in RESP2, a set in RESP3.
    Set(Vec<Reply>),
    /// Pairs: flat in RESP2, an array of pairs in RESP3.
    Pairs(Vec<(Reply, Reply)>),
    /// Members with scores: flat in RESP2, an array of pairs in RESP3.
    Scored(Vec<(Vec<u8>, f64)>),
    Double(f64),
    /// An integer in RESP2.
    Bool(bool),
    /// Digits of any number: a bulk string in RESP2.
    BigNumber(String),
    /// A bulk string in RESP2, with the name of its format in RESP3.
    Verbatim {
        format: String,
        text: Vec<u8>,
    },
    /// Human-readable text (`INFO`): a bulk string in RESP2, a verbatim string in RESP3.
    Text(String),
    /// An out-of-band message: an array in RESP2, a push in RESP3.
    Push(Vec<Reply>),
    /// Several replies to one command (`SUBSCRIBE a b`).
    Several(Vec<Reply>),
    /// No reply: the connection is closed instead.
    Nothing,
}

impl Reply {
    pub const OK: Reply = Reply::Simple(Cow::Borrowed("OK"));
    pub const QUEUED: Reply = Reply::Simple(Cow::Borrowed("QUEUED"));

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub(crate) fn bulk_or_null(bytes: Option<Vec<u8>>) -> Reply {
        bytes.map_or(Reply::Null, Reply::Bulk)
    }

    pub(crate) fn len(count: usize) -> Reply {
        Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn flag(yes: bool) -> Reply {
        Reply::Int(i64::from(yes))
    }

    pub(crate) fn bulks<I, B>(items: I) -> Reply
    where
        I: IntoIterator<Item = B>,
        B: AsRef<[u8]>,
    {
        Reply::Array(items.into_iter().map(Reply::bulk).collect())
    }
}

/// An error with Redis's text. The command that returns it has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Cow<'static, str>);

impl Failure {
    pub(crate) const WRONG_TYPE: Failure =
        Failure::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Failure = Failure::new("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Failure = Failure::new("ERR value is not an integer or out of range");
    pub(crate) const NOT_A_FLOAT: Failure = Failure::new("ERR value is not a valid float");
    pub(crate) const NOT_POSITIVE: Failure = Failure::new("ERR value is out of range, must be positive");
    pub(crate) const NO_SUCH_KEY: Failure = Failure::new("ERR no such key");
    pub(crate) const OVERFLOW: Failure = Failure::new("ERR increment or decrement would overflow");
    pub(crate) const NOT_FINITE: Failure = Failure::new("ERR increment would produce NaN or Infinity");
    pub(crate) const OUT_OF_MEMORY: Failure =
        Failure::new("OOM command not allowed when used memory > 'maxmemory'.");

    /// Only visible to a script's own `redis.pcall`; its caller gets the reason why it was stopped.
    pub(crate) const MUST_STOP: Failure = Failure::new("ERR the script has to stop");

    pub(crate) const fn new(text: &'static str) -> Failure {
        Failure(Cow::Borrowed(text))
    }

    pub(crate) fn arity(command: &str) -> Failure {
        format!("ERR wrong number of arguments for '{command}' command").into()
    }

    pub(crate) fn expire_time(command: &str) -> Failure {
        format!("ERR invalid expire time in '{command}' command").into()
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure(Cow::Owned(text))
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Reply {
        Reply::Error(failure.0)
    }
}

pub(crate) type CommandResult<T = Reply> = Result<T, Failure>;
