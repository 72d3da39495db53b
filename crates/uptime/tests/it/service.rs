//! The running service, and a target with a status that the test sets.

use hob_web::Service as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use hob_fixtures::TestApp;
use hob_service::{Live, Period, ServiceContext};
use hob_testkit::{LIMIT, wait_for};
use hob_uptime::{Config, Uptime};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// An HTTP server that answers every request with the current status.
#[derive(Clone, Debug)]
pub(crate) struct StatusTarget {
    pub(crate) url: String,
    status: Arc<AtomicU16>,
    request_count: Arc<AtomicUsize>,
}

impl StatusTarget {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/health", listener.local_addr().unwrap());
        let target = Self { url, status: Arc::new(AtomicU16::new(200)), request_count: Arc::default() };
        let this = target.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (status, request_count) = (Arc::clone(&this.status), Arc::clone(&this.request_count));
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    request_count.fetch_add(1, Ordering::SeqCst);
                    let status = status.load(Ordering::SeqCst);
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{{\"ok\":true}}"
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        target
    }

    pub(crate) fn respond_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn request_count(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }
}

/// The running service and its API.
pub(crate) struct Service {
    pub(crate) uptime: Uptime,
    pub(crate) app: TestApp,
}

impl Service {
    pub(crate) async fn start(context: &ServiceContext) -> Self {
        Self::configured(context, Config { grace: Period::from_secs(1), ..Config::default() }).await
    }

    pub(crate) async fn configured(context: &ServiceContext, config: Config) -> Self {
        Self::live(context, Live::fixed(config)).await
    }

    /// With a configuration that the test can reload.
    pub(crate) async fn live(context: &ServiceContext, config: Live<Config>) -> Self {
        let uptime = Uptime::open(context, config).await.unwrap();
        let app = TestApp::start(context, uptime.routes()).await;
        app.web().start();
        uptime.start(app.web().changes());
        Self { uptime, app }
    }

    /// Adds a monitor of the target and returns its id. The interval is also the timeout of a check: with a shorter one,
    /// a busy machine would look like an outage.
    pub(crate) async fn add_monitor(&self, target: &StatusTarget, more: Value) -> String {
        let mut monitor = json!({
            "name": "Shop", "kind": "http", "target": target.url, "interval_s": 5, "retries": 1, "retry_delay_s": 1,
            "assertions": ["status in 200..299"],
        });
        monitor.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let added = self.app.post("/api/v1/uptime/monitors", &monitor).await;
        assert_eq!(added.status, 201, "{}", added.text());
        added.json::<Value>()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn monitor(&self, id: &str) -> Value {
        self.app.get(&format!("/api/v1/uptime/monitors/{id}")).await.json()
    }

    pub(crate) async fn wait_for_state(&self, id: &str, state: &str) {
        wait_for(format!("{id} to be {state}"), LIMIT, async || {
            let monitor = self.monitor(id).await;
            if monitor["state"] == state { Ok(()) } else { Err(monitor) }
        })
        .await;
    }

    pub(crate) async fn incidents(&self) -> Vec<Incident> {
        self.app.get("/api/v1/uptime/incidents").await.json::<Incidents>().items
    }
}

#[derive(Debug, Deserialize)]
struct Incidents {
    items: Vec<Incident>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Incident {
    pub(crate) id: String,
    pub(crate) monitor: String,
    pub(crate) resolved_at: Option<String>,
    pub(crate) acknowledged_by: Option<String>,
    pub(crate) told_at: Option<String>,
    pub(crate) class: String,
}
