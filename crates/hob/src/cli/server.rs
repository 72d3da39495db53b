//! The arguments of commands that can talk to a server.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::Args;
use hob_units::Secret;

/// A server that a command talks to, instead of working on this machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Talk to this server, such as https://hob.example.com [default: the one of `hob login`, if there is one]
    #[arg(long, value_name = "URL", env = "HOB_SERVER", hide_env_values = true)]
    pub(crate) server: Option<String>,
    /// API token for the server. Other users of this machine can see options: prefer the variable, or `hob login`
    #[arg(long, value_name = "TOKEN", env = "HOB_TOKEN", hide_env_values = true, value_parser = secret)]
    pub(crate) token: Option<Secret>,
    /// PEM file with the certificate authorities of the server [default: public authorities]
    #[arg(long, value_name = "FILE", env = "HOB_CA", hide_env_values = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Work on this machine, although HOB_SERVER or `hob login` has set a server
    #[arg(long)]
    pub(crate) local: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LoginArgs {
    /// URL of the server, such as https://hob.example.com
    #[arg(value_name = "URL")]
    pub(crate) server: String,
    /// API token. Other users of this machine can see options: prefer the variable, the prompt, or standard input
    #[arg(long, value_name = "TOKEN", env = "HOB_TOKEN", hide_env_values = true, value_parser = secret)]
    pub(crate) token: Option<Secret>,
    /// PEM file with the certificate authorities of the server [default: public authorities]
    #[arg(long, value_name = "FILE", env = "HOB_CA", hide_env_values = true)]
    pub(crate) ca: Option<PathBuf>,
}

/// An empty variable counts as not set.
fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}
