//! What commands operate on: the keyspace, the subscribers, the clients and the time.

use hob_commands::{Command, Flags, Unresolved};

use super::busy_after::BusyAfter;
use super::stats::Stats;
use crate::blocked::{Attempt, Blocked};
use crate::command::{Args, Handler};
use crate::config::Config;
use crate::guard::{Changes, Guard, Strict};
use crate::hub::Hub;
use crate::reply::{CommandResult, Failure, Reply};
use crate::script::Declared;
use crate::session::Clients;
use crate::store::{Keyspace, Lookups};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) keys: Keyspace,
    pub(crate) hub: Hub,
    pub(crate) clients: Clients,
    pub(crate) blocked: Blocked,
    pub(crate) settings: Config,
    pub(crate) busy_after: BusyAfter,
    /// Counts the changes of the password.
    pub(crate) password_version: u64,
    pub(crate) now_us: u64,
    pub(crate) started_us: u64,
    pub(crate) commands: u64,
    pub(crate) stats: Stats,
    /// Identifies this run of the engine: forty random hexadecimal digits.
    pub(crate) run_id: String,
    peak_memory: usize,
    script: Option<ScriptFrame>,
}

/// The running script's KEYS and state.
#[derive(Debug)]
struct ScriptFrame {
    keys: Vec<Vec<u8>>,
    /// The store was full when the script started: writes that need memory are refused until the script has written.
    began_full: bool,
    declared: Declared,
    wrote: bool,
}

/// A handler that a script may call.
enum ScriptHandler {
    Data(fn(&mut Core, Args<'_>) -> CommandResult),
    Blocking(fn(&mut Core, Args<'_>) -> CommandResult<Attempt>),
}

impl Core {
    pub(crate) fn new(settings: Config) -> Core {
        let mut keys = Keyspace::default();
        if settings.guard.is_some() {
            keys.report_touched();
        }
        let now_us = settings.clock.now_us();
        Core {
            keys,
            hub: Hub::default(),
            clients: Clients::default(),
            blocked: Blocked::default(),
            busy_after: BusyAfter::new(settings.busy_after),
            settings,
            password_version: 0,
            now_us,
            started_us: now_us,
            commands: 0,
            stats: Stats::default(),
            run_id: rand::random::<[u8; 20]>().iter().map(|byte| format!("{byte:02x}")).collect(),
            peak_memory: 0,
            script: None,
        }
    }

    /// Replaces the password and disconnects all clients of the listener.
    pub(crate) fn set_password(&mut self, password: Option<String>) {
        if self.settings.password != password {
            self.settings.password = password;
            self.password_version += 1;
            for client in self.clients.connected.values() {
                client.kill.notify_one();
            }
        }
    }

    /// Sets the time for the next command.
    pub(crate) fn begin(&mut self) {
        self.now_us = self.read_clock();
        self.keys.now_ms = self.now_us / 1000;
        self.hub.now_us = self.now_us;
        self.peak_memory = self.peak_memory.max(self.memory());
        self.stats.rate.update(self.now_us, self.commands);
    }

    /// Memory of keys and values, and of messages that subscribers have not read yet.
    pub(crate) fn memory(&self) -> usize {
        self.keys.memory() + self.hub.buffered_bytes()
    }

    /// Runs a command that needs only the data, counts it, and publishes the keyspace events that it causes.
    pub(crate) fn call(
        &mut self,
        command: &'static Command,
        started_us: u64,
        run: impl FnOnce(&mut Core) -> CommandResult,
    ) -> CommandResult {
        self.keys.lookups.counted = command.flags.has(Flags::READONLY);
        let outcome = run(self);
        self.keys.lookups.counted = false;
        self.publish_events();
        self.count_call(command.name, started_us, &outcome);
        outcome
    }

    /// Counts a command and its run time. Whole microseconds are enough: what they cut off at the start and at the end of
    /// many commands is equal on average.
    pub(crate) fn count_call(&mut self, name: &'static str, started_us: u64, outcome: &CommandResult) {
        let elapsed_us = self.read_clock().saturating_sub(started_us);
        let stats = self.stats.of(name);
        stats.calls += 1;
        stats.time_us += elapsed_us;
        if let Err(Failure(text)) | Ok(Reply::Error(text)) = outcome {
            stats.failed += 1;
            self.stats.record_error(text);
        }
    }

    pub(crate) fn count_rejected(&mut self, name: Option<&'static str>, failure: &Failure) {
        if let Some(name) = name {
            self.stats.of(name).rejected += 1;
        }
        self.stats.record_error(&failure.0);
    }

    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.commands = 0;
        self.clients.accepted = 0;
        self.clients.rejected = 0;
        self.keys.expired_keys = 0;
        self.keys.lookups = Lookups::default();
    }

    /// The time now, in microseconds. `now_us` stays the same during a command, a transaction or a script.
    pub(crate) fn read_clock(&self) -> u64 {
        self.settings.clock.now_us()
    }

    pub(crate) fn peak_memory(&self) -> usize {
        self.peak_memory
    }

    /// Whether the store exceeds its memory limit. Expired keys are removed first.
    pub(crate) fn is_full(&mut self) -> bool {
        const MAX_KEYS: usize = 10_000;
        let limit = self.settings.max_memory_bytes;
        let over = |core: &Core| limit > 0 && core.memory() > limit;
        if over(self) {
            self.keys.sweep(MAX_KEYS);
        }
        over(self)
    }

    pub(crate) fn guard(&self) -> Option<Guard> {
        self.settings.guard.clone()
    }

    /// Calls the guard with the changed keys, if there is a guard and any key was changed.
    pub(crate) fn check_guard(&mut self) -> CommandResult<()> {
        let Some(guard) = self.guard() else { return Ok(()) };
        let mut keys = self.keys.take_touched();
        if keys.is_empty() {
            return Ok(());
        }
        keys.sort_unstable();
        keys.dedup();
        guard.check(&mut Changes { core: self, keys })
    }

    /// Serves blocked clients and calls the guard, after a command, transaction or script.
    pub(crate) fn finish(&mut self, reply: Reply) -> Reply {
        self.serve_blocked();
        self.check_guard().map_or_else(Reply::from, |()| reply)
    }

    pub(crate) fn enter_script(&mut self, keys: &[&[u8]], declared: Declared) -> CommandResult<()> {
        self.settings.strict.check_keys(keys)?;
        let began_full = self.is_full() && declared != Declared::WritesWhenFull;
        if began_full && declared == Declared::Writes {
            return Err(Failure::OUT_OF_MEMORY);
        }
        // Only strict mode needs the script's KEYS later.
        let keys = if self.settings.strict == Strict::Off { &[] } else { keys };
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        self.script = Some(ScriptFrame { keys, began_full, declared, wrote: false });
        Ok(())
    }

    pub(crate) fn is_in_script(&self) -> bool {
        self.script.is_some()
    }

    pub(crate) fn leave_script(&mut self) {
        self.script = None;
    }

    /// Runs a command that the current script calls. `may_write` is called before the script's first write.
    pub(crate) fn call_from_script(&mut self, args: Args<'_>, may_write: impl Fn() -> bool) -> CommandResult {
        let (command, handler) = self.admit_from_script(args, may_write)?;
        let started_us = self.read_clock();
        self.call(command, started_us, |core| match handler {
            ScriptHandler::Data(run) => run(core, args),
            ScriptHandler::Blocking(attempt) => Ok(attempt(core, args)?.without_wait()),
        })
    }

    pub(crate) fn publish_events(&mut self) {
        let hub = &self.hub;
        self.keys.publish_events(|channel, text| {
            hub.publish(channel, text);
        });
    }

    fn admit_from_script(
        &mut self,
        args: Args<'_>,
        may_write: impl Fn() -> bool,
    ) -> CommandResult<(&'static Command, ScriptHandler)> {
        let command = hob_commands::resolve(args).map_err(|reason| match reason {
            Unresolved::UnknownCommand | Unresolved::UnknownSubcommand { .. } => {
                Failure::new("ERR Unknown Redis command called from script")
            }
            Unresolved::Arity { .. } => {
                Failure::new("ERR Wrong number of args calling Redis command from script")
            }
        })?;
        let run = match Handler::of(command) {
            Handler::Data(run) if !command.flags.has(Flags::NOSCRIPT) => ScriptHandler::Data(run),
            Handler::Blocking(run) if !command.flags.has(Flags::NOSCRIPT) => ScriptHandler::Blocking(run),
            _ => return Err(Failure::new("ERR This Redis command is not allowed from script")),
        };
        let frame = self.script.as_mut().ok_or(Failure::new("ERR no script is running"))?;
        for key in command.keys.of(args) {
            self.settings.strict.check_key(&frame.keys, key)?;
        }
        if command.flags.has(Flags::WRITE) && frame.declared == Declared::Reads {
            return Err(Failure::new("ERR Write commands are not allowed from read-only scripts."));
        }
        if frame.began_full && !frame.wrote && command.flags.has(Flags::DENYOOM) {
            return Err(Failure::OUT_OF_MEMORY);
        }
        if command.flags.has(Flags::WRITE) && !frame.wrote {
            if !may_write() {
                return Err(Failure::MUST_STOP);
            }
            frame.wrote = true;
        }
        self.commands += 1;
        if self.hub.is_monitored() && !command.flags.has(Flags::ADMIN) {
            self.send_to_monitors("lua", command, args);
        }
        Ok((command, run))
    }
}
