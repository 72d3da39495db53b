//! nginx in the foreground, with its own temporary folder.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::process::{Process, free_address, wait_for};

#[derive(Debug)]
pub struct Nginx {
    pub process: Process,
    pub address: SocketAddr,
    /// Its files, which must exist while it runs.
    pub folder: TempDir,
}

impl Nginx {
    /// Starts nginx with `http` in the `http` block and `server` in its only `server` block. The root folder contains
    /// `files`.
    pub fn start(workers: u32, http: &str, server: &str, files: &[(&str, &[u8])]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for (name, body) in files {
            std::fs::write(folder.path().join(name), body)?;
        }
        let address = free_address()?;
        let root = folder.path().display();
        let text = format!(
            "daemon off; worker_processes {workers}; pid {root}/pid; error_log stderr crit; user root;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 1000000; default_type text/html;\n\
             client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;\n\
             uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;\n\
             {http}\nserver {{ listen {address}; root {root};\n{server}\n}} }}\n"
        );
        let configuration = folder.path().join("nginx.conf");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new("nginx");
        let process = Process::start(command.args(["-e", "stderr", "-c"]).arg(&configuration))
            .context("apt-get install nginx-light")?;
        wait_for(address)?;
        Ok(Self { process, address, folder })
    }
}
