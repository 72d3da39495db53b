//! What can be asked of `hob`.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "hob", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(ServeOptions),
}

#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
    /// Where the API and the console listen
    #[arg(long, env = "HOB_LISTEN", default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,

    /// Where the embedded store listens for redis-cli and other Redis clients
    #[arg(long, env = "HOB_STORE_LISTEN", default_value = "127.0.0.1:7379", value_name = "ADDRESS")]
    pub(crate) store_listen: SocketAddr,

    /// Where hot state lives: redis://, rediss://, redis+cluster://, redis+sentinel://, or embedded://
    /// (also HOB_HOT, or REDIS_HOST, REDIS_PORT and REDIS_PASSWORD)
    #[arg(long, value_name = "URL")]
    pub(crate) hot: Option<String>,

    /// The most memory the embedded store may use, in MiB
    #[arg(long, env = "HOB_STORE_MEMORY_MIB", default_value_t = 512, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) store_memory_mib: u32,

    /// Everything alive on loopback, gone when stopped; a port that is taken is replaced by a free one
    #[arg(long)]
    pub(crate) demo: bool,
}
