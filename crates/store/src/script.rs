//! Lua scripts and calls to them: EVALSHA, or EVAL with the source if the server does not have the script.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use redis::{Arg, Cmd, Pipeline, ToRedisArgs, Value};

use crate::connection::history::History;
use crate::epoch::SERVER;
use crate::error::{Error, Result};

/// A Lua script, made for a `static`:
///
/// ```
/// use hob_store::Script;
/// static ADD: Script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
/// let call = ADD.on(&["visits"]).arg(3);
/// ```
pub struct Script {
    parts: &'static [&'static str],
    whole: &'static str,
    assembled: OnceLock<Assembled>,
}

struct Assembled {
    source: String,
    sha: String,
    /// Whether the history of the server is the last argument.
    needs_history: bool,
}

impl Script {
    /// A script in one piece.
    #[must_use]
    pub const fn new(source: &'static str) -> Self {
        Self { parts: &[], whole: source, assembled: OnceLock::new() }
    }

    /// A script that starts with shared fragments such as [`CLOCK`](crate::CLOCK). A fragment is Lua code that declares
    /// local functions.
    #[must_use]
    pub const fn with(fragments: &'static [&'static str], source: &'static str) -> Self {
        Self { parts: fragments, whole: source, assembled: OnceLock::new() }
    }

    /// A call on these keys; arguments follow with [`Call::arg`].
    pub fn on<K: AsRef<[u8]>>(&'static self, keys: &[K]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.assembled().sha).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Call { command, script: Some(self) }
    }

    /// The whole Lua source as it is sent.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.assembled().source
    }

    fn assembled(&self) -> &Assembled {
        self.assembled.get_or_init(|| {
            let mut source: String = self.parts.iter().flat_map(|part| [*part, "\n"]).collect();
            source.push_str(self.whole);
            let sha = sha1_smol::Sha1::from(&source).digest().to_string();
            let needs_history = self.parts.iter().any(|part| part.starts_with(SERVER));
            Assembled { source, sha, needs_history }
        })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.whole.lines().next().unwrap_or_default()).finish()
    }
}

/// One command or one script call, ready to run alone or in a batch.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) command: Cmd,
    script: Option<&'static Script>,
}

impl Call {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// The script, if this is a call to one.
    pub(crate) fn script(&self) -> Option<&'static Script> {
        self.script
    }

    /// The command to send to a server with this history. The history is added here, for the connection on which the
    /// command is sent, because the server may change until then.
    pub(crate) fn command_for(&self, history: &History) -> Cow<'_, Cmd> {
        if !self.script.is_some_and(|script| script.assembled().needs_history) {
            return Cow::Borrowed(&self.command);
        }
        let mut command = self.command.clone();
        command.arg(history.as_str());
        Cow::Owned(command)
    }

    /// The same call as EVAL with the script's source. The server caches the script, so it is loaded exactly where it is
    /// needed.
    pub(crate) fn with_source(&self) -> Self {
        let Some(script) = self.script else { return self.clone() };
        let mut command = redis::cmd("EVAL");
        command.arg(script.source());
        for arg in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        Self { command, script: self.script }
    }
}

/// Calls as one pipeline for a server with this history.
pub(crate) fn pipeline(calls: &[&Call], history: &History) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call.command_for(history).into_owned());
    }
    pipeline
}

/// The calls whose script the server does not have, with the sources, and their indexes.
pub(crate) fn unknown(calls: &[&Call], answers: &[Result<Value>]) -> Option<(Vec<Call>, Vec<usize>)> {
    let places: Vec<usize> = (0..calls.len())
        .filter(|at| calls[*at].script.is_some() && answers[*at].as_ref().is_err_and(Error::is_noscript))
        .collect();
    let sources = places.iter().map(|at| calls[*at].with_source()).collect();
    (!places.is_empty()).then_some((sources, places))
}

/// Puts the answers of the second pipeline, or its error, at their indexes.
pub(crate) fn fill(answers: &mut [Result<Value>], places: Vec<usize>, second: Result<Vec<Result<Value>>>) {
    match second {
        Ok(second) => places.into_iter().zip(second).for_each(|(at, answer)| answers[at] = answer),
        Err(error) => places.into_iter().for_each(|at| answers[at] = Err(error.clone())),
    }
}

impl From<Cmd> for Call {
    fn from(command: Cmd) -> Self {
        Self { command, script: None }
    }
}

impl From<&mut Cmd> for Call {
    /// Takes the command out of the reference that its builder returns, and leaves an empty one.
    fn from(command: &mut Cmd) -> Self {
        std::mem::take(command).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static GREET: Script = Script::with(&["local hello = 'hi'"], "return hello .. KEYS[1] .. ARGV[1]");

    #[test]
    fn call_sends_the_hash_or_the_source_of_a_script() {
        let call = GREET.on(&["k"]).arg("a").arg(7);
        let sha = sha1_smol::Sha1::from("local hello = 'hi'\nreturn hello .. KEYS[1] .. ARGV[1]")
            .digest()
            .to_string();
        let mut by_name = redis::cmd("EVALSHA");
        by_name.arg(sha).arg(1).arg("k").arg("a").arg(7);
        assert_eq!(call.command.get_packed_command(), by_name.get_packed_command());
        let mut by_source = redis::cmd("EVAL");
        by_source.arg(GREET.source()).arg(1).arg("k").arg("a").arg(7);
        assert_eq!(call.with_source().command.get_packed_command(), by_source.get_packed_command());
    }
}
