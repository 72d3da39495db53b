//! Runs one command, from its arguments to its reply, with the same order of checks as Redis.

use hob_commands::{Command, Flags};
use parking_lot::{Mutex, MutexGuard};

use crate::blocked::Attempt;
use crate::command::{Args, Handler, resolve};
use crate::engine::Core;
use crate::reply::{CommandResult, Failure, Reply};
use crate::script::{Scripts, Watchdog};
use crate::session::{Queued, Session, SessionOrigin};

pub(crate) struct CommandContext<'a> {
    pub(crate) core: &'a Mutex<Core>,
    pub(crate) watchdog: &'a Watchdog,
    /// Held with the store's lock. `None` while a script keeps the store busy; then most commands are refused.
    pub(crate) scripts: Option<&'a mut Scripts>,
    pub(crate) session: &'a mut Session,
}

/// Commands that a transaction does not queue.
const NOT_QUEUED: [&str; 6] = ["exec", "discard", "multi", "watch", "quit", "reset"];
/// Commands that a subscriber may use in RESP2.
const RESP2_SUBSCRIBER_COMMANDS: [&str; 6] =
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ping", "quit"];
/// Commands that change the state of the connection, which clones of a handle share.
const NOT_ON_SHARED_HANDLES: [&str; 11] = [
    "watch",
    "unwatch",
    "multi",
    "exec",
    "discard",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "monitor",
    "reset",
];

const BUSY: Failure =
    Failure::new("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");

impl<'a> CommandContext<'a> {
    pub(crate) fn core(&self) -> MutexGuard<'a, Core> {
        self.core.lock()
    }

    pub(crate) fn scripts(&mut self) -> CommandResult<&mut Scripts> {
        self.scripts.as_deref_mut().ok_or(BUSY)
    }

    /// Runs one command.
    pub(crate) fn execute(&mut self, args: Args<'_>) -> Reply {
        self.execute_resolved(resolve(args), args)
    }

    /// Runs the command that was found for these arguments. The data is locked once for all checks and the command.
    pub(crate) fn execute_resolved(
        &mut self,
        resolved: CommandResult<&'static Command>,
        args: Args<'_>,
    ) -> Reply {
        let mut core = self.core();
        let admitted = resolved.and_then(|command| self.admit(&mut core, command).map(|()| command));
        let command = match admitted {
            Ok(command) => command,
            Err(failure) => {
                drop(core);
                return self.refuse(args, failure);
            }
        };
        if self.session.transaction.is_some() && !NOT_QUEUED.contains(&command.name) {
            return self.queue(&mut core, command, args);
        }
        let started_us = core.now_us;
        let outcome = match Handler::of(command) {
            Handler::Data(run) if !self.is_subscribers_ping(command, args) => {
                self.show_to_monitors(&core, command, args);
                core.call(command, started_us, |core| run(core, args))
            }
            Handler::Blocking(attempt) => {
                self.show_to_monitors(&core, command, args);
                core.call(command, started_us, |core| self.run_or_wait(core, attempt, args))
            }
            _ => {
                drop(core);
                let outcome = self.run(command, args);
                core = self.core();
                outcome
            }
        };
        let reply = outcome.unwrap_or_else(Reply::from);
        if self.scripts.is_none() {
            // The guard checks the running script's changes at its end.
            return reply;
        }
        core.finish(reply)
    }

    /// Runs a blocking command. If it has to wait, it replies with nothing yet, and is in `session.blocked`.
    fn run_or_wait(
        &mut self,
        core: &mut Core,
        attempt: fn(&mut Core, Args<'_>) -> CommandResult<Attempt>,
        args: Args<'_>,
    ) -> CommandResult {
        match attempt(core, args)? {
            Attempt::Done(reply) => Ok(reply),
            Attempt::Wait(wait) => {
                self.session.blocked = Some(core.block(self.session.id, wait)?);
                Ok(Reply::Nothing)
            }
        }
    }

    /// Checks everything that does not depend on the command's data.
    fn admit(&mut self, core: &mut Core, command: &'static Command) -> CommandResult<()> {
        let authenticated = self.session.check_password(core);
        if !authenticated && !command.flags.has(Flags::NO_AUTH) {
            return Err(Failure::new("NOAUTH Authentication required."));
        }
        if self.session.origin == SessionOrigin::Handle && NOT_ON_SHARED_HANDLES.contains(&command.name) {
            let name = command.name.to_ascii_uppercase();
            return Err(format!("ERR {name} is not allowed on a shared handle").into());
        }
        if self.scripts.is_none() {
            return if command.flags.has(Flags::ALLOW_BUSY) { Ok(()) } else { Err(BUSY) };
        }
        core.begin();
        core.commands += 1;
        let now_us = core.now_us;
        if let Some(client) = core.clients.connected.get_mut(&self.session.id) {
            (client.active_us, client.last_command) = (now_us, command.name);
        }
        if self.needs_memory(command) && core.is_full() {
            return Err(Failure::OUT_OF_MEMORY);
        }
        if self.session.is_resp2_subscriber()
            && !RESP2_SUBSCRIBER_COMMANDS.contains(&command.name)
            && command.name != "reset"
        {
            let name = command.name;
            return Err(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context"
            )
            .into());
        }
        Ok(())
    }

    /// Whether a command is refused when the store is full: one that may grow a value, one that would be queued, because
    /// the queue needs memory too, and the execution of a queue with one that may grow a value.
    fn needs_memory(&self, command: &Command) -> bool {
        match &self.session.transaction {
            Some(transaction) if command.name == "exec" => transaction.needs_memory,
            Some(_) => !NOT_QUEUED.contains(&command.name),
            None => command.flags.has(Flags::DENYOOM),
        }
    }

    /// A refused command aborts the transaction it belongs to.
    fn refuse(&mut self, args: Args<'_>, failure: Failure) -> Reply {
        let name = resolve(args).ok().map(|command| command.name);
        self.core().count_rejected(name, &failure);
        if args[0].eq_ignore_ascii_case(b"exec") {
            self.end_transaction();
            // Also without a transaction.
            self.unwatch();
            let reason = failure.0.strip_prefix("ERR ").unwrap_or(&failure.0);
            return Reply::Error(format!("EXECABORT Transaction discarded because of: {reason}").into());
        }
        if let Some(transaction) = &mut self.session.transaction {
            transaction.broken = true;
        }
        failure.into()
    }

    /// Runs a command that must not wait.
    pub(crate) fn run(&mut self, command: &'static Command, args: Args<'_>) -> CommandResult {
        // EXEC is shown after the commands that it runs.
        let shown_first = command.name != "exec";
        if shown_first {
            self.show_to_monitors(&self.core(), command, args);
        }
        let started_us = self.core().read_clock();
        let outcome = match Handler::of(command) {
            Handler::Data(_) if self.is_subscribers_ping(command, args) => {
                let text = args.get(1).copied().unwrap_or_default();
                Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(text)]))
            }
            Handler::Data(run) => self.core().call(command, started_us, |core| run(core, args)),
            Handler::Blocking(attempt) => {
                self.core().call(command, started_us, |core| Ok(attempt(core, args)?.without_wait()))
            }
            Handler::Session(run) => {
                let outcome = run(self, args);
                self.core().count_call(command.name, started_us, &outcome);
                outcome
            }
        };
        if !shown_first {
            self.show_to_monitors(&self.core(), command, args);
        }
        outcome
    }

    fn show_to_monitors(&self, core: &Core, command: &Command, args: Args<'_>) {
        if core.hub.is_monitored() && !command.flags.has(Flags::ADMIN) {
            let client = core.clients.connected.get(&self.session.id);
            core.send_to_monitors(client.map_or("in-process", |client| &client.address), command, args);
        }
    }

    /// A RESP2 subscriber gets the reply to PING in the form of a message.
    fn is_subscribers_ping(&self, command: &Command, args: Args<'_>) -> bool {
        self.session.is_resp2_subscriber() && command.name == "ping" && args.len() <= 2
    }

    fn queue(&mut self, core: &mut Core, command: &Command, args: Args<'_>) -> Reply {
        let Some(transaction) = &mut self.session.transaction else {
            return Failure::SYNTAX.into();
        };
        const PER_WORD: usize = size_of::<Vec<u8>>();
        transaction.queued_bytes += args.iter().map(|word| word.len() + PER_WORD).sum::<usize>();
        if transaction.queued_bytes > core.settings.max_command_bytes {
            transaction.broken = true;
            return Reply::Error("ERR the transaction is too large".into());
        }
        transaction.runs_lua |= command.flags.has(Flags::LUA);
        transaction.needs_memory |= command.flags.has(Flags::DENYOOM);
        transaction.queue.push(args.iter().map(|word| word.to_vec()).collect());
        let queued = Queued { commands: transaction.queue.len(), bytes: transaction.queued_bytes };
        if let Some(client) = core.clients.connected.get_mut(&self.session.id) {
            client.queued = Some(queued);
        }
        Reply::QUEUED
    }
}

/// Whether a command may take long: it runs a script, or a transaction with one.
pub(crate) fn runs_lua(session: &Session, command: &Command) -> bool {
    match &session.transaction {
        _ if !session.authenticated => false,
        Some(transaction) => transaction.runs_lua && command.name == "exec",
        None => command.flags.has(Flags::LUA),
    }
}
