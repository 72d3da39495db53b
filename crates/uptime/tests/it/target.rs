//! Small servers for checks, each on its own port until it is dropped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hob_net::{InternalAddresses, Outbound, OutboundPolicy};
use hob_service::config::Secrets;
use hob_testkit::LIMIT;
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::assertion::Assertion;
use hob_uptime::monitor::check::{Check, CheckOutcome, Observation};
use hob_uptime::probe::{Limits, Probe};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Target {
    /// Serves each connection with `serve`.
    pub(crate) async fn raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::on(Ipv4Addr::LOCALHOST.into(), serve).await
    }

    pub(crate) async fn on<F>(ip: IpAddr, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, connections, requests: Arc::default(), task }
    }

    /// Reads a request and sends the response that `answer` returns.
    pub(crate) async fn responding(answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = Arc::clone(&requests);
        let mut target = Self::raw(move |stream| respond(stream, answer.clone(), Arc::clone(&note))).await;
        target.requests = requests;
        target
    }

    /// The same over TLS.
    pub(crate) async fn responding_over_tls(
        acceptor: TlsAcceptor,
        answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::raw(move |stream| {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    respond(stream, answer, Arc::default()).await;
                }
            }
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The requests that were read.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn respond<S>(mut stream: S, answer: impl Fn(&str) -> String, requests: Arc<Mutex<Vec<String>>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = read_request(&mut stream).await;
    let answer = answer(&request);
    requests.lock().unwrap().push(request);
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    // Closing before everything is read causes a reset, which may overtake the response.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// The head, and a body of the length that it declares.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = read_head(stream).await;
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((&request, ""));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let missing = length.map_or(0, |length| length.parse::<usize>().unwrap() - body.len());
    let mut rest = vec![0; missing];
    if stream.read_exact(&mut rest).await.is_ok() {
        request.push_str(&String::from_utf8_lossy(&rest));
    }
    request
}

/// Reads up to an empty line.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => head.extend_from_slice(&buffer[..length]),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A response with its length.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Fine\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

pub(crate) fn check(json: &str) -> Check {
    let mut monitor: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).unwrap();
    monitor.insert("name".to_owned(), "x".into());
    let monitor: MonitorSpec = serde_json::from_value(monitor.into()).unwrap();
    monitor.validate().unwrap().0
}

pub(crate) fn get(url: &str) -> Check {
    check(&format!(r#"{{"kind":"http","target":"{url}"}}"#))
}

pub(crate) fn assertions(list: &[&str]) -> Vec<Assertion> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

/// Allows public addresses and these.
pub(crate) fn only(allow: &[&str]) -> Outbound {
    let allow = allow.iter().map(|network| network.parse().unwrap()).collect();
    Outbound::new(OutboundPolicy { internal: InternalAddresses::Denied, allow })
}

pub(crate) fn probe(limits: Limits) -> Probe {
    Probe::new(limits, Secrets::none())
}

/// Runs a check with a long timeout.
pub(crate) async fn run(probe: &Probe, check: &Check, asserted: &[&str]) -> Observation {
    run_within(probe, check, asserted, LIMIT).await
}

/// Runs a check with a timeout; panics if it takes much longer.
pub(crate) async fn run_within(
    probe: &Probe,
    check: &Check,
    asserted: &[&str],
    timeout: Duration,
) -> Observation {
    let assertions = assertions(asserted);
    let run = probe.run(check, &assertions, timeout);
    tokio::time::timeout(timeout + LIMIT, run).await.expect("the check ends in time")
}

/// Class and message of a failure, or `ok` and the status.
pub(crate) fn outcome(observation: &Observation) -> (String, String) {
    match &observation.outcome {
        CheckOutcome::Ok { status_code } => ("ok".to_owned(), status_code.to_string()),
        CheckOutcome::Failed(failure) => (failure.class.to_string(), failure.message().to_owned()),
    }
}
