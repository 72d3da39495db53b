//! `hob uptime`: looks at targets, and at what watches them.

mod check;

use anyhow::Result;

use crate::cli::UptimeCommand;
use crate::exit::Exit;

pub(crate) fn run(command: &UptimeCommand) -> Result<Exit> {
    match command {
        UptimeCommand::Check(args) => check::run(args),
    }
}
