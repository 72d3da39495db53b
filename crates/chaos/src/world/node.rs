//! A node: the real binary, on ports that it keeps when it is restarted.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use hob_testkit::{Port, Process};

use super::NODE_WITH_CLOCK;

/// A running node.
#[derive(Debug)]
pub(crate) struct Node {
    // Dropped first: the process ends before its ports are released.
    pub(crate) process: Process,
    pub(crate) number: usize,
    /// The address of the API.
    pub(crate) api: SocketAddr,
    pub(crate) gateway: SocketAddr,
    /// The file with the offset of the node's clock, if libfaketime is installed.
    pub(crate) clock: Option<PathBuf>,
    _ports: [Port; 2],
}

impl Node {
    pub(crate) fn start(
        number: usize,
        hob: &Path,
        folder: &Path,
        config: &str,
        (redis, database): (&str, &str),
    ) -> Result<Self> {
        let ports = [Port::reserve(), Port::reserve()];
        let [api, gateway] =
            [0, 1].map(|at: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[at].number())));
        let folder = folder.join(format!("node{number}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(folder.join("hob.toml"), config).context("cannot write hob.toml")?;
        let mut command = Command::new(hob);
        for (name, _) in std::env::vars().filter(|(name, _)| is_setting(name)) {
            command.env_remove(name);
        }
        command.args(["serve", "--listen", &api.to_string(), "--redis", redis, "--database", database]);
        command.env("HOB_GATEWAY_LISTEN", gateway.to_string()).env("HOB_LOG", "info");
        command.env("HOB_NODE_NAME", format!("node{number}"));
        let clock = if number == NODE_WITH_CLOCK { with_clock(&mut command, &folder)? } else { None };
        let process = Process::start(&folder, command);
        Ok(Self { process, number, api, gateway, clock, _ports: ports })
    }
}

/// A variable that would change the configuration of a node.
fn is_setting(name: &str) -> bool {
    ["HOB_", "REDIS_", "MESSAGE_RATE_", "DATABASE_URL", "CALL_LIMIT_", "COURTLISTENER_"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Lets the process take its clock from a file, which holds an offset such as `+30s`. Timers are not affected, as on a
/// machine whose clock is set.
fn with_clock(command: &mut Command, folder: &Path) -> Result<Option<PathBuf>> {
    let Some(library) = libfaketime() else { return Ok(None) };
    let clock = folder.join("clock");
    fs::write(&clock, "+0s").context("cannot write the clock of a node")?;
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock);
    command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_RESET", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Ok(Some(clock))
}

fn libfaketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|file| file.exists())
}
