//! A client of the listener among the others: on the list of clients from its first byte to its last.

use crate::command::Args;
use crate::dispatch::runs_lua;
use crate::engine::Engine;
use crate::reply::Reply;
use crate::session::Session;

/// A client's session. Dropping it ends what the client has left in the store: subscriptions, watches, its place on the
/// list.
pub(super) struct Member {
    pub(super) engine: Engine,
    pub(super) session: Session,
}

impl Member {
    /// Answers one command. A script runs on a thread of the blocking pool, because it may take long and the thread of
    /// this task has other tasks to run; `None` if it panicked there, and the session is lost.
    pub(super) async fn answer(&mut self, args: Args<'_>) -> Option<Reply> {
        if !runs_lua(&self.session, args) {
            return Some(self.engine.run(&mut self.session, args, None).await);
        }
        let Some(script_permit) = self.engine.script_permit().await else {
            return Some(self.engine.refuse_as_busy(&mut self.session, args));
        };
        // The session goes with the script: it is needed until the script has ended, also if this task ends before.
        let nobody = Member { engine: self.engine.clone(), session: self.engine.handle_session() };
        let mut member = std::mem::replace(self, nobody);
        let args: Vec<Vec<u8>> = args.iter().map(|word| word.to_vec()).collect();
        let running = tokio::task::spawn_blocking(move || {
            let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let reply = member.engine.run_blocking(&mut member.session, &words);
            drop(script_permit);
            (member, reply)
        });
        let (member, reply) = running.await.ok()?;
        *self = member;
        Some(reply)
    }

    pub(super) fn leave(&mut self) {
        let session = &mut self.session;
        self.engine.with_core(|core| {
            session.forget(core);
            core.clients.leave(session.id);
        });
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}
