//! The demo: targets on loopback, among them a shop that fails and recovers, a slow API and a job, their monitors, and the
//! history of these monitors.

mod past;

use std::net::SocketAddr;
use std::time::Duration;

use hob_service::Task;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::MonitorSpec;
use crate::monitor::check::MonitorKind;
use crate::monitor::heartbeat::HeartbeatSignal;
use crate::uptime::{AddOutcome, Uptime};

/// In every cycle the shop fails for the length of the outage, for the first time soon after the start.
const CYCLE: Duration = Duration::from_secs(600);
const FIRST_OUTAGE: Duration = Duration::from_secs(60);
const OUTAGE: Duration = Duration::from_secs(25);

/// Starts the targets, adds the monitors and reports the heartbeats.
pub(crate) async fn start(uptime: &Uptime) -> Result<()> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await;
    let Ok((listener, address)) = listener.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    }) else {
        tracing::warn!("demo targets of uptime not started, no free port");
        return Ok(());
    };
    let started = Instant::now();
    tokio::spawn(serve(listener, started, uptime.inner.context.tasks.stop_token()));
    let mut token = None;
    for (id, spec) in demo_monitors(address) {
        if let AddOutcome::Added(monitor) = uptime.add(MonitorId::new(id).ok(), &spec).await? {
            token = token.or_else(|| monitor.token.clone());
        }
    }
    past::write(uptime).await?;
    let Some(token) = token else { return Ok(()) };
    let this = uptime.clone();
    uptime.inner.context.tasks.spawn_demo("uptime demo", move |task: Task| {
        let (this, token) = (this.clone(), token.clone());
        async move {
            loop {
                let _ = this.record_signal(&token, HeartbeatSignal::Succeeded).await;
                task.heartbeat();
                if !task.pause(Duration::from_secs(5)).await {
                    return;
                }
            }
        }
    });
    Ok(())
}

fn demo_monitors(address: SocketAddr) -> Vec<(&'static str, MonitorSpec)> {
    let web = |name: &str, path: &str, group: &str| {
        let mut spec = MonitorSpec::new(name, MonitorKind::Http, &format!("http://{address}{path}"));
        (spec.interval_s, spec.retries, spec.retry_delay_s, spec.published) = (2, 1, 1, true);
        spec.assertions = vec!["status in 200..299".to_owned()];
        spec.group = group.to_owned();
        spec
    };
    let mut slow = web("Search API", "/slow", "APIs");
    slow.assertions.push("latency < 800ms".to_owned());
    slow.tags = vec!["api".to_owned()];
    let mut orders = web("Orders API", "/orders", "APIs");
    orders.assertions.push("json $.ok == true".to_owned());
    orders.tags = vec!["api".to_owned()];
    let mut database = MonitorSpec::new("Database", MonitorKind::Tcp, &address.to_string());
    (database.interval_s, database.group, database.published) = (5, "Inside".to_owned(), true);
    let mut old = web("Retired page", "/gone", "Web");
    (old.published, old.retries) = (false, 0);
    let mut backup = MonitorSpec::new("Nightly backup", MonitorKind::Heartbeat, "");
    (backup.interval_s, backup.group) = (30, "Inside".to_owned());
    vec![
        ("demo-shop", web("Shop", "/shop", "Web")),
        ("demo-blog", web("Blog", "/blog", "Web")),
        ("demo-search", slow),
        ("demo-orders", orders),
        ("demo-database", database),
        ("demo-retired", old),
        ("demo-backup", backup),
    ]
}

async fn serve(listener: TcpListener, started: Instant, stop: tokio_util::sync::CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        if let Ok((stream, _)) = accepted {
            tokio::spawn(tokio::time::timeout(Duration::from_secs(5), respond(stream, started)));
        }
    }
}

async fn respond(mut stream: TcpStream, started: Instant) -> std::io::Result<()> {
    let mut request = [0; 2048];
    let read = stream.read(&mut request).await?;
    let path = String::from_utf8_lossy(&request[..read]);
    let path = path.split(' ').nth(1).unwrap_or_default();
    let since = started.elapsed().as_millis() % CYCLE.as_millis();
    let broken = (FIRST_OUTAGE.as_millis()..(FIRST_OUTAGE + OUTAGE).as_millis()).contains(&since);
    let status = match path {
        "/shop" if broken => "503 Service Unavailable",
        "/gone" => "410 Gone",
        _ => "200 OK",
    };
    if path == "/slow" {
        // A sine wave, so that the chart has a shape.
        let wave = (since as f64 / 10_000.0).sin().abs() * 300.0;
        tokio::time::sleep(Duration::from_millis(40 + wave as u64)).await;
    }
    let body = "{\"ok\":true}";
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).await
}
