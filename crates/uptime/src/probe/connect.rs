//! Connects to a host: resolves its name and tries its addresses.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::time::timeout_at;
use url::Host;

use super::Probe;
use super::failure::without_os_code;
use super::trace::{Stage, Trace};
use crate::monitor::check::{Failure, FailureClass};

impl Probe {
    /// A connection to the first address that accepts one.
    pub(super) async fn connect<S: AsRef<str>>(
        &self,
        host: &Host<S>,
        port: u16,
        trace: &mut Trace,
    ) -> Result<TcpStream, Failure> {
        trace.stage = Stage::Name;
        let started = Instant::now();
        let settings = self.settings();
        let addresses = settings.resolver.addresses(host, &settings.limits.outbound).await?;
        if matches!(host, Host::Domain(_)) {
            trace.phases.dns = Some(started.elapsed());
        }
        trace.stage = Stage::Connection;
        let started = Instant::now();
        let mut refused = None;
        for (tried, address) in addresses.iter().enumerate() {
            let address = SocketAddr::new(*address, port);
            trace.address = Some(address);
            // Every address gets a share of the remaining time, so that one that drops packets does not use it up.
            let left = trace.deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
            match timeout_at((Instant::now() + share).into(), TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    trace.phases.connect = Some(started.elapsed());
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => {
                    refused = Some(Failure::new(
                        FailureClass::Connect,
                        format!("{address}: {}", without_os_code(&error)),
                    ));
                }
                Err(_) => {
                    let message = format!("{address} did not respond");
                    refused.get_or_insert(Failure::new(FailureClass::Timeout, message));
                }
            }
        }
        Err(refused.unwrap_or_else(|| Failure::new(FailureClass::Name, "the name has no address")))
    }
}
