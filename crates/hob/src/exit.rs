//! Exit codes.

use std::process::ExitCode;

/// How a command that could do its work ended. One that could not exits with 1, and a call whose words are off
/// with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Clean,
    /// Something was found that should be looked at.
    Warnings,
    /// Something was found that is wrong.
    Errors,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Clean => 0,
            Exit::Warnings => 3,
            Exit::Errors => 4,
        })
    }
}
