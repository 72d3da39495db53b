//! How the engine runs the commands of the table in `hob-commands`, one file per family.

mod bits;
mod clients;
mod config;
mod copies;
mod hashes;
mod info;
mod introspection;
mod keys;
mod lists;
mod objects;
mod options;
mod pops;
mod process;
mod pubsub;
mod random;
mod scripts;
mod server;
mod sets;
mod sorted_set_algebra;
mod sorted_set_ranges;
mod sorted_sets;
mod streams;
mod strings;
mod subset;
mod transactions;

pub(crate) use server::{REDIS_VERSION, REDIS_VERSION_NUM};
pub use subset::documentation;

use hob_commands::{Command, CommandId, Unresolved};

use crate::blocked::Attempt;
use crate::dispatch::CommandContext;
use crate::engine::Core;
use crate::reply::{CommandResult, Failure};
use options::Options;

/// A command's arguments, with its name first.
pub(crate) type Args<'a> = &'a [&'a [u8]];

/// The function that runs a command.
#[derive(Debug)]
pub(crate) enum Handler {
    /// Needs only the data, so a script may call it.
    Data(fn(&mut Core, Args<'_>) -> CommandResult),
    /// May make the client wait. Where it must not, as in a transaction, the command replies at once.
    Blocking(fn(&mut Core, Args<'_>) -> CommandResult<Attempt>),
    /// Also needs the session or the scripts.
    Session(fn(&mut CommandContext<'_>, Args<'_>) -> CommandResult),
}

impl Handler {
    pub(crate) fn of(command: &Command) -> Handler {
        match command.id {
            CommandId::Key(id) => keys::handler(id),
            CommandId::String(id) => strings::handler(id),
            CommandId::Hash(id) => hashes::handler(id),
            CommandId::List(id) => lists::handler(id),
            CommandId::Set(id) => sets::handler(id),
            CommandId::SortedSet(id) => sorted_sets::handler(id),
            CommandId::Stream(id) => streams::handler(id),
            CommandId::PubSub(id) => pubsub::handler(id),
            CommandId::Transaction(id) => transactions::handler(id),
            CommandId::Script(id) => scripts::handler(id),
            CommandId::Server(id) => server::handler(id),
        }
    }
}

/// The command for these arguments, or the error that Redis returns.
pub(crate) fn resolve(args: Args<'_>) -> CommandResult<&'static Command> {
    hob_commands::resolve(args).map_err(|reason| match reason {
        Unresolved::UnknownCommand => unknown_command(args),
        Unresolved::UnknownSubcommand { container } => {
            let (name, container) = (printable(args[1], 128), container.to_ascii_uppercase());
            format!("ERR unknown subcommand '{name}'. Try {container} HELP.").into()
        }
        Unresolved::Arity { name } => Failure::arity(name),
    })
}

fn unknown_command(args: Args<'_>) -> Failure {
    let mut beginning = String::new();
    for arg in &args[1..] {
        if beginning.len() >= 128 {
            break;
        }
        beginning += &format!("'{}' ", printable(arg, 128 - beginning.len()));
    }
    let name = printable(args[0], 128);
    format!("ERR unknown command '{name}', with args beginning with: {beginning}").into()
}

/// Bytes as shown in an error. A NUL ends them, as in Redis, which uses C strings.
pub(crate) fn printable(bytes: &[u8], max_bytes: usize) -> String {
    let bytes = bytes[..bytes.len().min(max_bytes)].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}
