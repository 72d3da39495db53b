//! Exit codes.

use std::process::ExitCode;

/// The result of a command that ran. A command that failed exits with 1, a usage error with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Clean,
    /// It found warnings.
    Warnings,
    /// It found errors.
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
