//! The ACL categories of a command, as Redis derives them.

use crate::command::{Command, Flags};
use crate::table::{CommandId, ServerCommand, StringCommand};

/// All categories, in the order in which `COMMAND` lists them.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Dangerous although they are not administrative: they take long, delete everything, or reveal details.
const DANGEROUS: [&str; 4] = ["keys", "flushdb", "flushall", "info"];

impl Command {
    /// The categories, without the `@` before each.
    pub fn categories(&self) -> impl Iterator<Item = &'static str> {
        CATEGORIES.into_iter().filter(|category| self.is_in_category(category))
    }

    #[must_use]
    pub fn is_in_category(&self, category: &str) -> bool {
        let flag = match category {
            "read" if !matches!(self.id, CommandId::Script(_)) => Flags::READONLY,
            "write" => Flags::WRITE,
            "pubsub" => Flags::PUBSUB,
            "admin" => Flags::ADMIN,
            "fast" => Flags::FAST,
            "blocking" => Flags::BLOCKING,
            "slow" => return !self.flags.has(Flags::FAST),
            "dangerous" => return self.flags.has(Flags::ADMIN) || DANGEROUS.contains(&self.name),
            category => return self.family_category() == Some(category),
        };
        self.flags.has(flag)
    }

    fn family_category(&self) -> Option<&'static str> {
        match self.id {
            CommandId::Key(_) if self.name.starts_with("memory|") => None,
            CommandId::Key(_) => Some("keyspace"),
            CommandId::String(id) if is_about_bits(id) => Some("bitmap"),
            CommandId::String(_) => Some("string"),
            CommandId::Hash(_) => Some("hash"),
            CommandId::List(_) => Some("list"),
            CommandId::Set(_) => Some("set"),
            CommandId::SortedSet(_) => Some("sortedset"),
            CommandId::Stream(_) => Some("stream"),
            CommandId::PubSub(_) => Some("pubsub"),
            CommandId::Transaction(_) => Some("transaction"),
            CommandId::Script(_) => Some("scripting"),
            CommandId::Server(id) => self.is_about_the_connection(id).then_some("connection"),
        }
    }

    fn is_about_the_connection(&self, id: ServerCommand) -> bool {
        self.name.starts_with("client|")
            || matches!(
                id,
                ServerCommand::Ping
                    | ServerCommand::Echo
                    | ServerCommand::Hello
                    | ServerCommand::Auth
                    | ServerCommand::Select
                    | ServerCommand::Reset
                    | ServerCommand::Quit
                    | ServerCommand::Command
                    | ServerCommand::Wait
            )
    }
}

fn is_about_bits(id: StringCommand) -> bool {
    matches!(
        id,
        StringCommand::SetBit
            | StringCommand::GetBit
            | StringCommand::BitCount
            | StringCommand::BitPos
            | StringCommand::BitOp
    )
}
