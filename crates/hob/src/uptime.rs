//! `hob uptime`: checks targets, applies files of monitors and lists them.

mod apply;
mod check;
mod list;

use std::path::Path;

use anyhow::Result;

use crate::cli::UptimeCommand;
use crate::exit::Exit;

pub(crate) fn run(command: &UptimeCommand, file: Option<&Path>) -> Result<Exit> {
    match command {
        UptimeCommand::Check(args) => check::run(args, file),
        UptimeCommand::Apply(args) => apply::run(args, file),
        UptimeCommand::List { server } => list::run(server, file),
    }
}
