//! Transactions.

use hob_commands::TransactionCommand;

use super::{Args, Handler, resolve};
use crate::dispatch::CommandContext;
use crate::reply::{CommandResult, Failure, Reply};
use crate::session::{Queued, Transaction};

pub(super) fn handler(id: TransactionCommand) -> Handler {
    match id {
        TransactionCommand::Multi => Handler::Session(multi),
        TransactionCommand::Exec => Handler::Session(exec),
        TransactionCommand::Discard => Handler::Session(discard),
        TransactionCommand::Watch => Handler::Session(watch),
        TransactionCommand::Unwatch => Handler::Session(|context, _| {
            context.unwatch();
            Ok(Reply::OK)
        }),
    }
}

fn multi(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(Failure::new("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Transaction::default());
    context.update_client(|client| client.queued = Some(Queued::default()));
    Ok(Reply::OK)
}

fn discard(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    context.end_transaction().ok_or(Failure::new("ERR DISCARD without MULTI"))?;
    Ok(Reply::OK)
}

fn watch(context: &mut CommandContext<'_>, args: Args<'_>) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(Failure::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in &args[1..] {
        if context.session.watches.iter().all(|watch| &*watch.key != *key) {
            let watch = context.core().keys.watch(key);
            context.session.watches.push(watch);
        }
    }
    Ok(Reply::OK)
}

fn exec(context: &mut CommandContext<'_>, _: Args<'_>) -> CommandResult {
    let transaction = context.session.transaction.take().ok_or(Failure::new("ERR EXEC without MULTI"))?;
    let changed = context.session.watches.iter().any(|watch| context.core().keys.is_changed(watch));
    context.unwatch();
    let outcome = match (transaction.broken, changed) {
        (true, _) => Err(Failure::new("EXECABORT Transaction discarded because of previous errors.")),
        (false, true) => Ok(Reply::NullArray),
        (false, false) => Ok(context.run_all(&transaction.queue)),
    };
    context.update_client(|client| client.queued = None);
    outcome
}

impl CommandContext<'_> {
    pub(crate) fn unwatch(&mut self) {
        let watches = std::mem::take(&mut self.session.watches);
        let mut core = self.core();
        watches.iter().for_each(|watch| core.keys.unwatch(watch));
    }

    /// Ends the transaction of this connection, if there is one.
    pub(crate) fn end_transaction(&mut self) -> Option<Transaction> {
        let transaction = self.session.transaction.take()?;
        self.update_client(|client| client.queued = None);
        self.unwatch();
        Some(transaction)
    }

    /// Runs queued commands in order. They were checked when they were queued.
    fn run_all(&mut self, queue: &[Vec<Vec<u8>>]) -> Reply {
        let mut replies = Vec::with_capacity(queue.len());
        for words in queue {
            let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let outcome = resolve(&args).and_then(|command| self.run(command, &args));
            replies.push(outcome.unwrap_or_else(Reply::from));
        }
        Reply::Array(replies)
    }

    /// Runs an atomic pipeline: all commands are checked before the first one runs.
    pub(crate) fn transact(&mut self, queue: &[Vec<&[u8]>]) -> Reply {
        if let Err(busy) = self.scripts() {
            return busy.into();
        }
        self.session.transaction = Some(Transaction::default());
        for args in queue {
            if let Reply::Error(text) = self.execute(args) {
                tracing::debug!(error = %text, "queued command refused");
            }
        }
        let reply = exec(self, &[]).unwrap_or_else(Reply::from);
        self.core().finish(reply)
    }
}
