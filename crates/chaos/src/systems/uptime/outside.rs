//! The targets of the monitors and the receiver of alerts, which know what really happened.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::Value;

use super::ledger::{Alert, Outage};
use crate::http::serve;

/// What the targets and the receiver have seen.
#[derive(Debug, Default)]
struct Seen {
    outages: Vec<Vec<Outage>>,
    alerts: Vec<Alert>,
    served: u64,
}

/// Targets and receiver, on one port.
#[derive(Debug)]
pub(super) struct Outside {
    seen: Arc<Mutex<Seen>>,
    address: SocketAddr,
}

impl Outside {
    pub(super) async fn start(monitors: usize) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen { outages: vec![Vec::new(); monitors], ..Seen::default() }));
        let router = Router::new()
            .route("/target/{monitor}", get(check))
            .route("/hook", post(receive))
            .with_state(Arc::clone(&seen));
        Ok(Self { address: serve(router).await?, seen })
    }

    pub(super) fn target(&self, monitor: usize) -> String {
        format!("http://{}/target/{monitor}", self.address)
    }

    pub(super) fn hook(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The target fails from now on.
    pub(super) fn fail(&self, monitor: usize) {
        let outage = Outage { from: Timestamp::now(), to: None, failures: Vec::new(), successes: Vec::new() };
        lock(&self.seen).outages[monitor].push(outage);
    }

    /// The target works again from now on.
    pub(super) fn recover(&self, monitor: usize) {
        if let Some(outage) = lock(&self.seen).outages[monitor].last_mut() {
            outage.to.get_or_insert_with(Timestamp::now);
        }
    }

    pub(super) fn is_failing(&self, monitor: usize) -> bool {
        lock(&self.seen).outages[monitor].last().is_some_and(|outage| outage.to.is_none())
    }

    pub(super) fn outages(&self, monitor: usize) -> Vec<Outage> {
        lock(&self.seen).outages[monitor].clone()
    }

    pub(super) fn alerts(&self) -> Vec<Alert> {
        lock(&self.seen).alerts.clone()
    }

    pub(super) fn served(&self) -> u64 {
        lock(&self.seen).served
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a check as the target of a monitor.
async fn check(State(seen): State<Arc<Mutex<Seen>>>, Path(monitor): Path<usize>) -> StatusCode {
    let mut seen = lock(&seen);
    seen.served += 1;
    let Some(outage) = seen.outages.get_mut(monitor).and_then(|outages| outages.last_mut()) else {
        return StatusCode::OK;
    };
    if outage.to.is_none() {
        outage.failures.push(Timestamp::now());
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        outage.successes.push(Timestamp::now());
        StatusCode::OK
    }
}

async fn receive(State(seen): State<Arc<Mutex<Seen>>>, Json(body): Json<Value>) -> StatusCode {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let alert =
        Alert { key: text(&body["id"]), kind: text(&body["kind"]), incident: text(&body["incident"]["id"]) };
    lock(&seen).alerts.push(alert);
    StatusCode::OK
}
