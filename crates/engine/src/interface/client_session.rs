//! The session of a client of the listener.

use crate::command::Args;
use crate::dispatch::runs_lua;
use crate::engine::Engine;
use crate::reply::Reply;
use crate::session::Session;

/// A client's session. Dropping it removes the client's subscriptions, watches, and entry in the list of clients.
pub(super) struct ClientSession {
    pub(super) engine: Engine,
    pub(super) session: Session,
}

impl ClientSession {
    /// Runs one command. A script runs on a thread of the blocking pool, because it may take long and would block the
    /// other tasks of this thread. `None` if it panicked there and the session is lost.
    pub(super) async fn execute(&mut self, args: Args<'_>) -> Option<Reply> {
        if !runs_lua(&self.session, args) {
            return Some(self.engine.run(&mut self.session, args, None).await);
        }
        let Some(script_permit) = self.engine.script_permit().await else {
            return Some(self.engine.refuse_as_busy(&mut self.session, args));
        };
        // The session moves to the script's thread: it is needed until the script ends, even if this task ends before.
        let placeholder =
            ClientSession { engine: self.engine.clone(), session: self.engine.handle_session() };
        let mut client = std::mem::replace(self, placeholder);
        let args: Vec<Vec<u8>> = args.iter().map(|word| word.to_vec()).collect();
        let running = tokio::task::spawn_blocking(move || {
            let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let reply = client.engine.run_blocking(&mut client.session, &words);
            drop(script_permit);
            (client, reply)
        });
        let (client, reply) = running.await.ok()?;
        *self = client;
        Some(reply)
    }

    pub(super) fn disconnect(&mut self) {
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
