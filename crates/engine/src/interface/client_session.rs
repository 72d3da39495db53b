//! The session of a client of the listener, with the requests that have arrived and the replies that were not sent yet.

use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};

use super::encode::encode;
use super::outgoing::Outgoing;
use super::request::RequestParser;
use crate::blocked::Pending;
use crate::command::resolve;
use crate::dispatch::runs_lua;
use crate::engine::{Engine, ScriptRun};
use crate::hub::{Delivery, MessageReceiver};
use crate::reply::Reply;
use crate::session::{Protocol, Session, SessionOrigin};

/// How many commands of a pipeline run before others get the store's lock.
const COMMANDS_PER_LOCK: usize = 16;
/// How long a thread runs the scripts of a pipeline before the client's task checks whether the client is still there.
const MAX_BATCH: Duration = Duration::from_millis(5);

/// A client's session. Dropping it removes the client's subscriptions, watches, and entry in the list of clients.
pub(super) struct ClientSession {
    pub(super) engine: Engine,
    pub(super) session: Session,
    parser: RequestParser,
    pub(super) input: BytesMut,
    pub(super) outgoing: Outgoing,
}

/// Why the client's task has to act before the next request can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All requests that have arrived are executed, or the client waits for a reply, or the connection must be closed.
    Idle,
    /// The replies must be sent first.
    OutputFull,
    /// The next request runs a script.
    Script,
    /// The next request has to wait for the store's lock.
    Locked,
}

impl ClientSession {
    pub(super) fn new(engine: Engine, session: Session, incoming: MessageReceiver) -> ClientSession {
        let parser = engine.with_core(|core| {
            RequestParser::new(core.settings.max_value_bytes, core.settings.max_command_bytes)
        });
        ClientSession { engine, session, parser, input: BytesMut::new(), outgoing: Outgoing::new(incoming) }
    }

    /// Stands for a client whose session is on the script's thread. Made and dropped without locking the data.
    fn placeholder(&self) -> ClientSession {
        ClientSession {
            engine: self.engine.clone(),
            session: self.engine.handle_session(),
            parser: RequestParser::new(0, 0),
            input: BytesMut::new(),
            outgoing: Outgoing::new(MessageReceiver::closed()),
        }
    }

    /// Runs the requests that have arrived, for as long as the client's task is not needed.
    pub(super) fn run_ready(&mut self) -> Pause {
        let ClientSession { engine, session, parser, input, outgoing } = self;
        let mut locked = None;
        let mut left = 0;
        loop {
            if outgoing.is_full() {
                return Pause::OutputFull;
            }
            let Some(length) = next_request(parser, input, session, &mut outgoing.output) else {
                return Pause::Idle;
            };
            let words = parser.words(input);
            if !words.is_empty() {
                let resolved = resolve(&words);
                if resolved.as_ref().is_ok_and(|command| runs_lua(session, command)) {
                    return Pause::Script;
                }
                if left == 0 {
                    drop(locked.take());
                    (locked, left) = (engine.try_lock(), COMMANDS_PER_LOCK);
                }
                let Some(locked) = &mut locked else { return Pause::Locked };
                left -= 1;
                let subscriptions = session.subscriptions();
                let reply = locked.execute(session, resolved, &words);
                outgoing.add_reply(&reply, session, subscriptions);
            }
            drop(words);
            parser.done();
            input.advance(length);
        }
    }

    /// Runs the next request, once the store's lock is free.
    pub(super) async fn run_locked(&mut self) {
        let ClientSession { engine, session, parser, input, outgoing } = self;
        if let Some(length) = next_request(parser, input, session, &mut outgoing.output) {
            let subscriptions = session.subscriptions();
            let reply = engine.run(session, &parser.words(input), None).await;
            outgoing.add_reply(&reply, session, subscriptions);
            parser.done();
            input.advance(length);
        }
    }

    /// Runs a script, and the requests after it, on the thread for scripts. `None` if it panicked there and the session is
    /// lost.
    pub(super) async fn run_script(&mut self) -> Option<()> {
        // The session moves to the script's thread: it is needed until the script ends, even if this task ends before.
        let placeholder = self.placeholder();
        let client = std::mem::replace(self, placeholder);
        match self.engine.on_script_thread(client, Self::run_batch).await {
            ScriptRun::Done(client) => *self = client,
            ScriptRun::Busy(client) => {
                *self = client;
                self.refuse_as_busy();
            }
            ScriptRun::Panicked => return None,
        }
        Some(())
    }

    /// Runs the requests that have arrived on a thread that may be blocked. The first is a script.
    fn run_batch(&mut self) {
        let started = Instant::now();
        let ClientSession { engine, session, parser, input, outgoing } = self;
        while !outgoing.is_full()
            && let Some(length) = next_request(parser, input, session, &mut outgoing.output)
        {
            let words = parser.words(input);
            if !words.is_empty() {
                let subscriptions = session.subscriptions();
                let reply = engine.run_blocking(session, &words);
                outgoing.add_reply(&reply, session, subscriptions);
            }
            drop(words);
            parser.done();
            input.advance(length);
            if started.elapsed() > MAX_BATCH {
                break;
            }
        }
    }

    fn refuse_as_busy(&mut self) {
        let ClientSession { engine, session, parser, input, outgoing } = self;
        if let Some(length) = next_request(parser, input, session, &mut outgoing.output) {
            let subscriptions = session.subscriptions();
            let reply = engine.refuse_as_busy(session, &parser.words(input));
            outgoing.add_reply(&reply, session, subscriptions);
            parser.done();
            input.advance(length);
        }
    }

    /// The command that waits for its reply, if there is one.
    pub(super) fn pending(&mut self) -> Option<Pending> {
        self.engine.pending(&mut self.session)
    }

    /// Adds a message, and those that have arrived after it, to what is sent.
    pub(super) fn push_messages(&mut self, delivery: Delivery) {
        self.outgoing.add_messages(delivery, &mut self.session);
    }

    pub(super) fn disconnect(&mut self) {
        if self.session.origin == SessionOrigin::Handle {
            // A placeholder.
            return;
        }
        // A command that blocked on a script's thread, after the client's task had ended.
        drop(self.pending());
        let session = &mut self.session;
        self.engine.with_core(|core| {
            session.reset(core);
            core.clients.remove(session.id);
        });
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// The length of the next request, if it has arrived and the client does not wait for a reply. A request that breaks the
/// protocol ends the connection.
fn next_request(
    parser: &mut RequestParser,
    input: &[u8],
    session: &mut Session,
    output: &mut Vec<u8>,
) -> Option<usize> {
    if session.closing || session.blocked.is_some() {
        return None;
    }
    parser.set_trusted(session.authenticated);
    parser.parse(input).unwrap_or_else(|error| {
        encode(&Reply::Error(error.to_string().into()), Protocol::Resp2, output);
        session.closing = true;
        None
    })
}
