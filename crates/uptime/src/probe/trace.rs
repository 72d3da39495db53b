//! The progress of a check and the duration of its phases. Still available after a timeout.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::monitor::check::{CertificateExpiry, Failure, FailureClass, Phases};

#[derive(Debug)]
pub(super) struct Trace {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) stage: Stage,
    pub(super) phases: Phases,
    pub(super) address: Option<SocketAddr>,
    pub(super) certificate: Option<CertificateExpiry>,
}

/// What a check is waiting for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Name,
    Connection,
    Handshake,
    Response,
    Body,
}

impl Trace {
    pub(super) fn begin(timeout: Duration) -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + timeout,
            stage: Stage::Name,
            phases: Phases::default(),
            address: None,
            certificate: None,
        }
    }

    /// Starts the next request: only the last one is reported.
    pub(super) fn next_hop(&mut self) {
        self.stage = Stage::Name;
        self.phases = Phases::default();
        self.address = None;
        self.certificate = None;
    }

    pub(super) fn timeout_failure(&self, timeout: Duration) -> Failure {
        let reached = match self.stage {
            Stage::Name => "the name was not resolved",
            Stage::Connection => "no connection",
            Stage::Handshake => "the TLS handshake was not complete",
            Stage::Response => "no response",
            Stage::Body => "the response was not complete",
        };
        Failure::new(FailureClass::Timeout, format!("{reached} after {timeout:?}"))
    }
}
